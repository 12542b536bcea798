/* host.c - see host.h: fingerprints, generations and their locks. The parts that fill a generation
 * are host_*.c, in the order of build_layers().
 *
 * A generation is built as <fingerprint>.tmp.<pid> and renamed when it is complete and on disk, so
 * a crash or a power cut leaves no half of one under its final name. Its builder holds an
 * exclusive lock on the directory meanwhile: what has such a name and no lock is a dead builder's.
 * Two builders at once both finish; the second finds the name taken and drops its own. */
#include "jail/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "jail/host_build.h"
#include "jail/rmtree.h"
#include "jail/weaken.h"

#define SUM "sum="

enum { TEXT_MAX = 8 << 20, BUSY_TRIES = 20, BUSY_US = 5000, OPEN_TRIES = 4, LOCAL_MAX = 256 };

/* What a change of the machine shows in. Directories show names that come and go in them; what
 * changes deeper in /usr is seen only through the package database. */
static const char *const watched[] = {
    "var/lib/dpkg/status",
    "var/lib/rpm/rpmdb.sqlite",
    "usr/lib/sysimage/rpm/rpmdb.sqlite",
    "lib/apk/db/installed",
    "usr/lib/apk/db/installed",
    "var/lib/pacman/local",
    "etc/ld.so.cache",
    "etc/passwd",
    "etc/group",
    "etc/login.defs",
    "etc/alternatives",
    "etc/ssl/certs",
    "etc/pki/ca-trust/extracted/pem",
    "etc/localtime",
    "bin",
    "sbin",
    "lib",
    "usr",
    "usr/bin",
    "usr/sbin",
    "usr/lib",
    "usr/libexec",
    "usr/share",
    "usr/local", /* and what is in it: see hash_local() */
};
static const char *const watched_mirrors[] = { "etc/apt/sources.list", "etc/apt/sources.list.d",
                                               "etc/pip.conf", "etc/npmrc" };

static const char *source_of(const struct host_options *o) { return o->source ? o->source : "/"; }

static void hash_text(struct sha256_ctx *h, const char *text)
{
    text = text ? text : "\1"; /* absent is not empty */
    sha256_update(h, strlen(text) + 1, (const uint8_t *)text);
}

static void hash_file(struct sha256_ctx *h, int source, const char *path)
{
    struct stat st = { 0 };
    uint64_t v[5] = { 0 };

    if (!fstatat(source, path, &st, AT_SYMLINK_NOFOLLOW)) {
        v[0] = (uint64_t)st.st_size;
        v[1] = (uint64_t)st.st_mtim.tv_sec;
        v[2] = (uint64_t)st.st_mtim.tv_nsec;
        v[3] = st.st_ino;
        v[4] = st.st_mode;
    }
    hash_text(h, path);
    sha256_update(h, sizeof(v), (const uint8_t *)v);
}

/* Administrators put things into /usr/local by hand, and pip and npm theirs below its lib: no
 * package database tells of it. What is in the directory, and in those in it. */
static void hash_local(struct sha256_ctx *h, int at, const char *path, bool deeper)
{
    int fd = host_tree_open(at, path, O_RDONLY | O_DIRECTORY);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *e;

    for (int n = 0; d && n < LOCAL_MAX && (e = readdir(d)); n++) {
        if (!strcmp(e->d_name, ".."))
            continue;
        hash_file(h, fd, e->d_name);
        if (deeper && e->d_type == DT_DIR && strcmp(e->d_name, "."))
            hash_local(h, fd, e->d_name, false);
    }
    if (d)
        closedir(d);
    else
        closep(&fd);
}

/* Another kernel may be able to do more; and a generation of the weakened build is its own. */
static void hash_kernel(struct sha256_ctx *h)
{
    struct utsname u;

    hash_text(h, uname(&u) ? NULL : u.release);
    hash_text(h, weakened("usr-owner") ? "weakened" : NULL);
}

static void hash_extra(struct sha256_ctx *h, int source, const struct host_options *o)
{
    AUTO(buf_free) struct buf path = { 0 };

    for (const char *const *name = o->etc_extra; name && *name; name++) {
        path.len = 0;
        buf_printf(&path, "etc/%s", *name + (str_starts(str_of(*name), "/etc/") ? 5 : 0));
        hash_file(h, source, path.data);
    }
}

int host_fingerprint(const struct host_options *o, char out[static HOST_FINGERPRINT],
                     struct err *err)
{
    AUTO(closep) int source = open(source_of(o), O_PATH | O_DIRECTORY | O_CLOEXEC);
    unsigned char digest[SHA256_DIGEST_SIZE];
    const uint8_t flags[] = { o->hide_local, o->no_ca, o->mirrors, geteuid() == 0 };
    struct sha256_ctx h;

    if (source < 0)
        return err_sys(err, "open %.150s", source_of(o));
    sha256_init(&h);
    hash_text(&h, COVE_VERSION);
    hash_text(&h, source_of(o));
    hash_text(&h, o->resolver);
    sha256_update(&h, sizeof(flags), flags);
    for (size_t i = 0; i < ARRAY_LEN(watched); i++)
        hash_file(&h, source, watched[i]);
    for (size_t i = 0; o->mirrors && i < ARRAY_LEN(watched_mirrors); i++)
        hash_file(&h, source, watched_mirrors[i]);
    hash_local(&h, source, "usr/local", true);
    hash_local(&h, source, "usr/local/lib", true);
    hash_kernel(&h);
    if (o->stamp)
        hash_file(&h, AT_FDCWD, o->stamp);
    hash_extra(&h, source, o);
    sha256_digest(&h, sizeof(digest), digest);
    for (size_t i = 0; i < (HOST_FINGERPRINT - 1) / 2; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return 0;
}

static bool is_fingerprint(const char *s)
{
    return strspn(s, "0123456789abcdef") == HOST_FINGERPRINT - 1 && !s[HOST_FINGERPRINT - 1];
}

static bool is_temporary(const char *s)
{
    return strspn(s, "0123456789abcdef") == HOST_FINGERPRINT - 1 &&
           str_starts(str_of(s + HOST_FINGERPRINT - 1), ".tmp.");
}

static void remove_layers(const char *dir, const char *name)
{
    AUTO(closep) int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || rmtree(fd, name))
        log_warn("cannot delete an old generation of template host", KV("directory", dir),
                 KV("name", name), KV("error", strerrordesc_np(errno)));
}

/* ---- opening ---- */

static int read_info(int fd, struct host_template *t, bool *image)
{
    AUTO(closep) int info = openat(fd, "info", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char text[128] = "";
    ssize_t n = info < 0 ? -1 : read(info, text, sizeof(text) - 1);
    struct str rest = { text, n > 0 ? (size_t)n : 0 }, item;

    if (!str_starts(rest, "cove-host 1 "))
        return -1;
    while (str_next(&rest, ' ', &item)) {
        t->merged_usr |= str_is(item, "merged_usr");
        t->whiteouts |= str_is(item, "whiteouts");
        t->owners |= str_is(item, "owners");
        *image |= str_is(item, "image");
        if (str_starts(item, SUM))
            t->sum = strtoull(item.p + strlen(SUM), NULL, 16);
    }
    return 0;
}

/* Whether path still is the directory that we have a lock on. */
static bool same_place(const char *path, const struct stat *st)
{
    struct stat now;

    return !lstat(path, &now) && now.st_ino == st->st_ino && now.st_dev == st->st_dev;
}

static char *layer_path(const char *generation, const char *name)
{
    struct buf path = { 0 };

    buf_printf(&path, "%s/%s", generation, name);
    return path.data;
}

enum { GENERATION_OPEN = 1, GENERATION_BUSY = 2 };

/* Or 0: no such generation. BUSY: a sweeper has it, who leaves it or takes it away in a moment. */
static int open_generation(const char *dir, const char *fingerprint, struct host_template *out,
                           struct err *err)
{
    AUTO(buf_free) struct buf path = { 0 };
    AUTO(closep) int fd = -1;
    struct host_template t = { 0 };
    bool image = false;
    struct stat st;

    buf_printf(&path, "%s/%s", dir, fingerprint);
    fd = open(path.data, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(err, "open %.150s", path.data);
    if (flock(fd, LOCK_SH | LOCK_NB))
        return errno == EWOULDBLOCK ? GENERATION_BUSY : err_sys(err, "lock %.150s", path.data);
    if (fstat(fd, &st))
        return err_sys(err, "stat %.150s", path.data);
    if (!same_place(path.data, &st))
        return 0;
    if (st.st_uid != geteuid() || st.st_mode & 022)
        return err_set(err, ERR_DENIED,
                       "%.150s is not ours alone: delete it, or use another data directory",
                       path.data);
    if (read_info(fd, &t, &image))
        return err_set(err, ERR_INTERNAL, "%.150s/info is damaged: delete that directory",
                       path.data);
    snprintf(t.fingerprint, sizeof(t.fingerprint), "%s", fingerprint);
    t.lock = TAKE(fd, -1);
    t.base = layer_path(path.data, "base");
    t.usrfix = image ? NULL : layer_path(path.data, "usrfix");
    t.image = image ? layer_path(path.data, HOST_IMAGE) : NULL;
    *out = t;
    return GENERATION_OPEN;
}

static int open_soon(const char *dir, const char *fingerprint, struct host_template *out,
                     struct err *err)
{
    int r = GENERATION_BUSY;

    for (int i = 0; r == GENERATION_BUSY && i < BUSY_TRIES; i++) {
        if (i)
            usleep(BUSY_US);
        r = open_generation(dir, fingerprint, out, err);
    }
    return r;
}

int host_hold(const char *dir, const char *fingerprint, struct host_template *out, struct err *err)
{
    int r;

    if (!is_fingerprint(fingerprint))
        return err_set(err, ERR_INVALID, "'%.40s' is no fingerprint", fingerprint);
    r = open_soon(dir, fingerprint, out, err);
    if (r == GENERATION_BUSY)
        return err_set(err, ERR_UNAVAILABLE, "generation %s of template host is being looked at",
                       fingerprint);
    if (!r)
        return err_set(
            err, ERR_NOT_FOUND,
            "generation %s of template host is gone from %.100s: the machine has changed "
            "since it was made",
            fingerprint, dir);
    return r < 0 ? -1 : 0;
}

void host_close(struct host_template *t)
{
    if (t->base)
        close(t->lock);
    free(t->base);
    free(t->usrfix);
    free(t->image);
    *t = (struct host_template){ 0 };
}

/* ---- sweeping ---- */

struct sweep { /* what stays */
    const char *keep;
    jail_named_fn *named;
    void *arg;
};

/* Deletes dir/name unless somebody has a lock on it, or needs it. */
static void sweep_one(const char *dir, const char *name, const struct sweep *s)
{
    AUTO(buf_free) struct buf path = { 0 };
    AUTO(buf_free) struct buf away = { 0 };
    AUTO(closep) int fd = -1;
    struct stat st;

    buf_printf(&path, "%s/%s", dir, name);
    fd = open(path.data, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) || fstat(fd, &st) || !same_place(path.data, &st))
        return;
    if (is_temporary(name)) {
        remove_layers(dir, name);
        return;
    }
    if (s && s->named && s->named(s->arg, name))
        return;
    /* out of the way first: nobody may open a generation that is half deleted */
    buf_printf(&away, "%s/%s.tmp.%d-old", dir, name, getpid());
    if (!rename(path.data, away.data))
        remove_layers(dir, away.data + strlen(dir) + 1);
}

/* s NULL: generations stay. */
static void sweep(const char *dir, const struct sweep *s)
{
    DIR *d = opendir(dir);
    struct dirent *e;

    while (d && (e = readdir(d)))
        if (is_temporary(e->d_name) ||
            (s && is_fingerprint(e->d_name) && (!s->keep || strcmp(e->d_name, s->keep))))
            sweep_one(dir, e->d_name, s);
    if (d)
        closedir(d);
}

void host_sweep(const char *dir, const char *keep_fingerprint, jail_named_fn *named, void *arg)
{
    sweep(dir, &(struct sweep){ keep_fingerprint, named, arg });
}

/* ---- building ---- */

/* /usr as an overlay will see it: without what is mounted below it. A clone of the one mount shows
 * just that; an ordinary user may not make one and relies on the walk's st_dev. */
static int open_usr(int source)
{
    enum { CLONE = 1 }; /* OPEN_TREE_CLONE */
    long fd = syscall(SYS_open_tree, source, "usr", CLONE | O_CLOEXEC | AT_SYMLINK_NOFOLLOW);

    return fd >= 0 ? (int)fd : host_tree_open(source, "usr", O_RDONLY | O_DIRECTORY);
}

static const char *first_of(const struct host_build *b, const char *const *paths)
{
    while (paths[1] && !host_tree_has(b, *paths + 1))
        paths++;
    return *paths;
}

static int read_accounts(struct host_build *b, struct err *err)
{
    static const char *const login[] = { "/bin/bash", "/usr/bin/bash", "/bin/ash", "/bin/sh",
                                         NULL };
    static const char *const nologin[] = { "/usr/sbin/nologin", "/sbin/nologin", "/usr/bin/nologin",
                                           "/bin/false", NULL };
    static const char *const names[] = { "etc/passwd", "etc/group", "etc/login.defs" };
    const struct host_shells shells = { first_of(b, login), first_of(b, nologin) };
    struct buf text[ARRAY_LEN(names)] = { 0 };
    struct stat st;
    int r = 0;

    for (size_t i = 0; !r && i < ARRAY_LEN(names); i++)
        if (host_tree_read(b, names[i], TEXT_MAX, &text[i], &st) && !host_tree_absent(errno))
            r = err_sys(err, "read /%s", names[i]);
    if (!r)
        host_accounts_parse(&b->accounts, buf_str(&text[0]), buf_str(&text[1]), buf_str(&text[2]),
                            &shells);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        buf_free(&text[i]);
    return r;
}

static int build_layers(struct host_build *b, int tmp, struct err *err)
{
    /* the scan of /usr is before /var, which wants to know the links it met */
    static int (*const parts[])(struct host_build *, struct err *) = {
        read_accounts,      host_root_build,  host_usr_build, host_etc_build,
        host_mirrors_build, host_files_build, host_var_build,
    };
    AUTO(closep) int usr = open_usr(b->source);
    int r = 0;

    if (usr < 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "this machine has no directory /usr: use an image template");
    b->dir = tmp;
    b->usrfix.model = usr;
    if (host_tree_layer(tmp, "base", b->source, &b->base))
        r = err_sys(err, "make a layer");
    b->dpkg = host_tree_has(b, "var/lib/dpkg/status");
    for (size_t i = 0; !r && i < ARRAY_LEN(parts); i++)
        r = parts[i](b, err);
    closep(&b->base.fd);
    closep(&b->usrfix.fd);
    host_accounts_free(&b->accounts);
    buf_free(&b->var_links);
    return r;
}

int host_look(const struct host_template *t, const struct host_options *o, struct err *err)
{
    AUTO(closep) int source = open(source_of(o), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO(closep) int usr = source < 0 ? -1 : open_usr(source);
    struct host_build b = { .o = o, .source = source, .usrfix = { -1, usr } };

    if (usr < 0)
        return err_sys(err, "open /usr");
    b.dpkg = host_tree_has(&b, "var/lib/dpkg/status");
    return host_usr_look(&b, err) ? -1 : b.sum != t->sum;
}

static int write_info(int tmp, const struct host_build *b)
{
    AUTO(closep) int fd = openat(tmp, "info", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    char text[128];
    int n = snprintf(text, sizeof(text), "cove-host 1 %s %s %s %s " SUM "%016" PRIx64,
                     b->merged_usr ? "merged_usr" : "", b->whiteouts ? "whiteouts" : "",
                     b->owners ? "owners" : "", b->image ? "image" : "", b->sum);

    return fd < 0 || write(fd, text, (size_t)n) != n ? -1 : 0;
}

/* A directory for the build with its lock, or -1. A sweeper may be quicker with the lock than we
 * are: then another name. */
static int make_temporary(const char *dir, const char *fingerprint, struct buf *path)
{
    for (int n = 0; n < 100; n++) {
        AUTO(closep) int fd = -1;
        struct stat st;

        path->len = 0;
        buf_printf(path, "%s/%s.tmp.%d-%d", dir, fingerprint, getpid(), n);
        if (mkdir(path->data, 0700)) {
            if (errno != EEXIST)
                return -1;
            continue;
        }
        fd = open(path->data, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &st) &&
            same_place(path->data, &st))
            return TAKE(fd, -1);
    }
    return errno = EEXIST, -1;
}

static int build_in(int tmp, const struct host_options *o, struct err *err)
{
    AUTO(closep) int source = open(source_of(o), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct host_build b = { .o = o, .source = source, .whiteouts = true, .owners = true };

    b.base.fd = b.usrfix.fd = -1;
    if (source < 0)
        return err_sys(err, "open %.150s", source_of(o));
    if (build_layers(&b, tmp, err))
        return -1;
    if (write_info(tmp, &b) || syncfs(tmp))
        return err_sys(err, "write info");
    return 0;
}

static int build(const char *dir, const char *fingerprint, const struct host_options *o,
                 struct err *err)
{
    AUTO(buf_free) struct buf path = { 0 };
    AUTO(buf_free) struct buf final = { 0 };
    AUTO(closep) int tmp = -1;

    if (mkdir(dir, 0700) && errno != EEXIST)
        return err_sys(err, "make %.150s", dir);
    sweep(dir, NULL);
    tmp = make_temporary(dir, fingerprint, &path);
    if (tmp < 0)
        return err_sys(err, "make %.150s", buf_cstr(&path));
    buf_printf(&final, "%s/%s", dir, fingerprint);
    if (build_in(tmp, o, err)) {
        remove_layers(dir, path.data + strlen(dir) + 1);
        return err_in(err, "template host");
    }
    if (renameat2(AT_FDCWD, path.data, AT_FDCWD, final.data, RENAME_NOREPLACE)) {
        int error = errno;

        remove_layers(dir, path.data + strlen(dir) + 1);
        if (error != EEXIST) { /* EEXIST: another builder was quicker, and made the same */
            errno = error;
            return err_sys(err, "rename %.150s", path.data);
        }
    }
    return 0;
}

int host_open(const char *dir, const struct host_options *o, struct host_template *out,
              struct err *err)
{
    char fingerprint[HOST_FINGERPRINT];

    for (int tries = 0; tries < OPEN_TRIES; tries++) {
        int r;

        /* again each time: a package manager may be at work while we build */
        if (host_fingerprint(o, fingerprint, err))
            return -1;
        r = open_soon(dir, fingerprint, out, err);
        if (r == GENERATION_OPEN || r < 0)
            return r < 0 ? -1 : 0;
        if (!r && build(dir, fingerprint, o, err))
            return -1;
    }
    return err_set(
        err, ERR_UNAVAILABLE,
        "template host: the machine keeps changing while its layers are built; try again");
}
