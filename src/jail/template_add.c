/* template_add.c - adding and removing templates.
 *
 * Both work under a name that no template can have, and rename: a crash at any instruction leaves a
 * whole template, or none and a remnant. A remnant is a directory that nobody holds the lock of;
 * the next add or remove deletes it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"
#include "jail/rmtree.h"
#include "jail/template_impl.h"

enum { RANDOM = 8, WORK_NAME = sizeof(TEMPLATE_GONE) + TEMPLATE_NAME_MAX + 1 + RANDOM };

/* A directory in the making, or in the unmaking: locked, so that nobody takes it for a remnant. */
struct work {
    int folder; /* of all templates; borrowed */
    int dir;    /* itself, with the exclusive lock; -1: there is none */
    char name[WORK_NAME];
};

static void work_name(struct work *w, const char *prefix, const char *name)
{
    char random[RANDOM + 1];

    id_random(random, RANDOM);
    snprintf(w->name, sizeof(w->name), "%s%s.%s", prefix, name, random);
}

/* What it still holds is not to stay. */
static void drop_work(struct work *w)
{
    if (w->dir < 0)
        return;
    rmtree(w->folder, w->name);
    close(w->dir);
}

static bool is_remnant(const char *name)
{
    return str_starts(str_of(name), TEMPLATE_TMP) || str_starts(str_of(name), TEMPLATE_GONE);
}

/* The folder's lock keeps us from a directory between its making and its locking. It is held for as
 * long as taking one lock takes, not for the deleting. */
static void sweep_one(int folder, const char *name)
{
    AUTO(closep) int dir = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool ours;

    flock(folder, LOCK_EX);
    ours = dir >= 0 && !flock(dir, LOCK_EX | LOCK_NB);
    flock(folder, LOCK_UN);
    if (ours)
        rmtree(folder, name);
}

static void sweep(int folder)
{
    DIR *d = fdopendir(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));

    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));)
        if (is_remnant(e->d_name))
            sweep_one(folder, e->d_name);
    closedir(d);
}

static int make_work(struct work *w, const char *name, struct err *err)
{
    int r = 0;

    work_name(w, TEMPLATE_TMP, name);
    flock(w->folder, LOCK_EX);
    if (mkdirat(w->folder, w->name, 0700))
        r = err_sys(err, "make a directory for template '%s'", name);
    else
        w->dir = openat(w->folder, w->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (!r && (w->dir < 0 || flock(w->dir, LOCK_EX | LOCK_NB)))
        r = err_sys(err, "lock the directory of template '%s'", name);
    flock(w->folder, LOCK_UN);
    return r;
}

/* ---- adding ---- */

static bool has(int root, const char *path)
{
    struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT };
    AUTO(closep) int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));

    return fd >= 0;
}

static bool has_programs(int root)
{
    static const char *const any[] = { "bin/sh", "usr/bin/sh", "usr/bin/env", "bin/busybox" };

    for (size_t i = 0; i < ARRAY_LEN(any); i++)
        if (has(root, any[i]))
            return true;
    return false;
}

static int check_spec(const struct template_spec *s, struct err *err)
{
    struct limits filled = s->limits;

    if (template_check_name(s->name, err) < 0)
        return -1;
    if (!strcmp(s->name, "host"))
        return err_set(err, ERR_INVALID, "the name 'host' is taken by this machine's own template");
    if (s->user && (!*s->user || strlen(s->user) > 64 || strpbrk(s->user, ":/\n\t ")))
        return err_set(err, ERR_INVALID, "user '%.70s' is not a user's name", s->user);
    if (s->workdir && (s->workdir[0] != '/' || strlen(s->workdir) > TEMPLATE_WORKDIR_MAX))
        return err_set(err, ERR_INVALID,
                       "workdir '%.100s' must be an absolute path of at most %d bytes", s->workdir,
                       TEMPLATE_WORKDIR_MAX);
    return limits_fill(&filled, NULL, err);
}

static int unpack_into(struct work *w, const char *data_dir, const struct template_spec *spec,
                       int archive, struct template_added *out, struct err *err)
{
    AUTO(buf_free) struct buf target = { 0 };
    AUTO(closep) int root = -1;
    struct unpack_request request = { .archive = archive,
                                      .progress = spec->progress,
                                      .arg = spec->arg };

    if (mkdirat(w->dir, TEMPLATE_ROOT, 0755))
        return err_sys(err, "make " TEMPLATE_ROOT);
    buf_printf(&target, "%s/templates/%s/" TEMPLATE_ROOT, data_dir, w->name);
    request.target = target.data;
    if (unpack_run(&request, &out->unpacked, err) < 0)
        return -1;
    root = openat(w->dir, TEMPLATE_ROOT, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    out->no_programs = root >= 0 && !has_programs(root);
    return 0;
}

/* A directory is used where it is; an archive is unpacked. Anything else is neither. */
static int take_source(struct work *w, const char *data_dir, const struct template_spec *spec,
                       struct template_added *out, struct err *err)
{
    AUTO(closep) int fd = -1;
    AUTO(closep) int dir = -1;
    struct stat st;

    out->kind = TEMPLATE_HOST;
    if (!spec->source)
        return 0;
    fd = open(spec->source, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st))
        return err_sys(err, "open %.150s", spec->source);
    out->kind = S_ISDIR(st.st_mode) ? TEMPLATE_DIRECTORY : TEMPLATE_ARCHIVE;
    if (S_ISREG(st.st_mode)) {
        if (unpack_into(w, data_dir, spec, fd, out, err) < 0)
            return err_in(err, "unpack %.60s", spec->source);
        return 0;
    }
    dir = template_open_directory(spec->source, err);
    if (dir < 0)
        return -1;
    out->no_programs = !has_programs(dir);
    return 0;
}

/* Whoever opens it from now on wants a shared lock, so ours becomes one; the folder's keeps a sweep
 * away meanwhile. */
static int give_name(struct work *w, const char *name, struct err *err)
{
    int r = 0;

    flock(w->folder, LOCK_EX);
    flock(w->dir, LOCK_SH);
    if (renameat2(w->folder, w->name, w->folder, name, RENAME_NOREPLACE))
        r = errno == EEXIST ? err_set(err, ERR_CONFLICT, "template '%s' was added meanwhile", name)
                            : err_sys(err, "name template '%s'", name);
    flock(w->folder, LOCK_UN);
    return r;
}

/* Through the kernel's caches to the disk before the name: after a power cut a template is whole.
 */
static int publish(struct work *w, const struct template_spec *spec,
                   const struct template_added *added, struct err *err)
{
    AUTO(buf_free) struct buf created = { 0 };
    struct limits limits = spec->limits;
    static const struct limits none;
    struct template t = {
        .name = (char *)(size_t)spec->name,
        .kind = added->kind,
        .source = (char *)(size_t)spec->source,
        .user = (char *)(size_t)spec->user,
        .workdir = (char *)(size_t)spec->workdir,
        .kernels = spec->kernels,
        .entries = (int64_t)added->unpacked.stats.entries,
        .bytes = (int64_t)added->unpacked.stats.bytes,
        .squashed = added->kind == TEMPLATE_ARCHIVE && added->unpacked.squashed,
        .limits = memcmp(&limits, &none, sizeof(none)) ? &limits : NULL,
    };

    clock_rfc3339(&created, clock_wall_s(), 0);
    t.created = created.data;
    if (added->kind == TEMPLATE_ARCHIVE)
        t.sha256 = (char *)(size_t)added->unpacked.sha256;
    if (template_save(w->dir, &t, err) < 0)
        return -1;
    if (syncfs(w->dir))
        return err_sys(err, "write template '%s' to disk", spec->name);
    if (give_name(w, spec->name, err) < 0)
        return -1;
    close(TAKE(w->dir, -1));
    fsync(w->folder);
    return 0;
}

int template_add(const char *data_dir, const struct template_spec *spec, struct template_added *out,
                 struct err *err)
{
    AUTO(closep) int folder = -1;
    AUTO(drop_work) struct work w = { .dir = -1 };

    *out = (struct template_added){ 0 };
    if (check_spec(spec, err) < 0)
        return -1;
    w.folder = folder = template_folder(data_dir, true, err);
    if (folder < 0)
        return -1;
    if (!faccessat(folder, spec->name, F_OK, AT_SYMLINK_NOFOLLOW))
        return err_set(err, ERR_CONFLICT,
                       "template '%s' exists (cove template remove takes it away)", spec->name);
    sweep(folder);
    if (make_work(&w, spec->name, err) < 0 || take_source(&w, data_dir, spec, out, err) < 0)
        return -1;
    return publish(&w, spec, out, err);
}

/* ---- removing ---- */

static int in_use(const char *name, struct err *err)
{
    return err_set(err, ERR_CONFLICT, "template '%s' is in use by a sandbox: end it first", name);
}

static int take_away(struct work *w, const char *name, jail_named_fn *is_named, void *arg,
                     struct err *err)
{
    struct stat named, held;

    if (is_named && is_named(arg, name)) /* before nobody can open it for a moment */
        return in_use(name, err);

    w->dir = openat(w->folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (w->dir < 0 && errno != ENOENT)
        return err_sys(err, "open template '%s'", name);
    if (w->dir >= 0 && flock(w->dir, LOCK_EX | LOCK_NB)) {
        close(TAKE(w->dir, -1));
        return in_use(name, err);
    }
    /* somebody else may have removed it, and another may have added one, before our lock */
    if (w->dir < 0 || fstatat(w->folder, name, &named, AT_SYMLINK_NOFOLLOW) ||
        fstat(w->dir, &held) || named.st_ino != held.st_ino) {
        closep(&w->dir);
        w->dir = -1;
        return err_set(err, ERR_NOT_FOUND, "there is no template '%s'", name);
    }
    if (is_named && is_named(arg, name)) {
        close(TAKE(w->dir, -1));
        return in_use(name, err);
    }
    work_name(w, TEMPLATE_GONE, name);
    if (renameat2(w->folder, name, w->folder, w->name, RENAME_NOREPLACE)) {
        err_sys(err, "remove template '%s'", name);
        close(TAKE(w->dir, -1));
        return -1;
    }
    return 0;
}

int template_remove(const char *data_dir, const char *name, jail_named_fn *named, void *arg,
                    struct err *err)
{
    AUTO(closep) int folder = -1;
    AUTO(drop_work) struct work w = { .dir = -1 };

    if (template_check_name(name, err) < 0)
        return -1;
    if (!strcmp(name, "host"))
        return err_set(err, ERR_INVALID, "template 'host' is this machine's own and always there");
    w.folder = folder = template_folder(data_dir, false, err);
    if (folder < 0)
        return err->code == ERR_NOT_FOUND
                   ? err_set(err, ERR_NOT_FOUND, "there is no template '%s'", name)
                   : -1;
    if (take_away(&w, name, named, arg, err) < 0)
        return -1;
    fsync(folder);
    sweep(folder);
    return 0;
}
