/* layers.c - see layers.h. */
#include "jail/layers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/json.h"
#include "base/mem.h"
#include "jail/rmtree.h"

#define TEMPORARY ".tmp."
#define ROOT      "rootfs"
#define ABOUT     "layer.json"

enum { RANDOM = 12, HASH = 32, ABOUT_BYTES = 64 << 10 };

static int open_dir(int at, const char *name)
{
    return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* ---- using ---- */

void layers_current(const char *data_dir, const char *name, char id[static LAYERS_ID])
{
    AUTO(freep) char *link = NULL;
    ssize_t n;

    if (asprintf(&link, "%s/layers/%s", data_dir, name) < 0)
        abort();
    n = readlink(link, id, LAYERS_ID - 1);
    id[MAX(n, (ssize_t)0)] = 0;
    if (strchr(id, '/') || id[0] == '.') /* nobody but us writes there, but a path it is not */
        id[0] = 0;
}

int layers_hold(const char *data_dir, const char *id, struct layers_held *out, struct err *err)
{
    AUTO(freep) char *dir = NULL;
    struct layers_held h = LAYERS_NONE;

    if (asprintf(&dir, "%s/layers/%s", data_dir, id) < 0 || asprintf(&h.path, "%s/" ROOT, dir) < 0)
        abort();
    h.lock = open_dir(AT_FDCWD, dir);
    if (h.lock >= 0 && !flock(h.lock, LOCK_SH | LOCK_NB))
        h.root = open(h.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (h.root < 0) {
        err_sys(err, "layer %s", id);
        layers_release(&h);
        return -1;
    }
    snprintf(h.id, sizeof(h.id), "%s", id);
    *out = h;
    return 0;
}

void layers_release(struct layers_held *h)
{
    closep(&h->root);
    closep(&h->lock);
    free(h->path);
    *h = LAYERS_NONE;
}

int *layers_hold_all(const char *data_dir)
{
    AUTO(freep) char *path = NULL;
    int *held = NULL, fd;
    size_t n = 0;
    DIR *d;

    if (asprintf(&path, "%s/layers", data_dir) < 0)
        abort();
    d = opendir(path);
    if (!d)
        return NULL;
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.' || (fd = open_dir(dirfd(d), e->d_name)) < 0)
            continue; /* links are not followed */
        flock(fd, LOCK_SH | LOCK_NB);
        held = xrealloc(held, sizeof(*held) * (n + 2));
        held[n++] = fd;
        held[n] = -1;
    }
    closedir(d);
    return held;
}

/* ---- adding ---- */

int layers_folder(const char *data_dir, struct err *err)
{
    AUTO(freep) char *path = NULL;
    int fd;

    if (asprintf(&path, "%s/layers", data_dir) < 0)
        abort();
    if ((mkdir(data_dir, 0755) && errno != EEXIST) || (mkdir(path, 0700) && errno != EEXIST))
        return err_sys(err, "%s", path);
    fd = open_dir(AT_FDCWD, path);
    return fd < 0 ? err_sys(err, "%s", path) : fd;
}

struct work { /* a directory in the making, locked so that nobody sweeps it */
    int folder, dir;
    char name[sizeof(TEMPORARY) + RANDOM];
};

static void drop_work(struct work *w)
{
    if (w->dir < 0)
        return;
    rmtree(w->folder, w->name);
    close(w->dir);
}

static int make_work(struct work *w, struct err *err)
{
    char random[RANDOM + 1];

    id_random(random, RANDOM);
    snprintf(w->name, sizeof(w->name), TEMPORARY "%s", random);
    flock(w->folder, LOCK_EX);
    if (!mkdirat(w->folder, w->name, 0700))
        w->dir = open_dir(w->folder, w->name);
    if (w->dir < 0 || flock(w->dir, LOCK_EX | LOCK_NB) || mkdirat(w->dir, ROOT, 0755)) {
        flock(w->folder, LOCK_UN);
        return err_sys(err, "make a directory for the layer");
    }
    flock(w->folder, LOCK_UN);
    return 0;
}

/* Exactly one entry, a directory of that name: 0, and *at is it. */
static int only_entry(int *at, const char *name)
{
    DIR *d = fdopendir(openat(*at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    bool right = false, wrong = false;
    int next;

    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        right |= !strcmp(e->d_name, name);
        wrong |= strcmp(e->d_name, name) != 0;
    }
    if (d)
        closedir(d);
    next = right && !wrong ? open_dir(*at, name) : -1;
    close(*at);
    *at = next;
    return next < 0 ? -1 : 0;
}

/* It is below every sandbox's root: a file of it outside its own place would be everybody's. */
static int check_place(int dir, const char *name, struct err *err)
{
    AUTO(closep) int at = open_dir(dir, ROOT);

    if (at < 0)
        return err_sys(err, ROOT);
    if (only_entry(&at, "opt") || only_entry(&at, "cove") || only_entry(&at, name))
        return err_set(err, ERR_INVALID, "the layer's archive holds more than opt/cove/%s", name);
    return 0;
}

static int write_about(int dir, const char *name, const char *about, const struct layers_added *a,
                       struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 }, time = { 0 };
    AUTO(closep) int fd = openat(dir, ABOUT, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    clock_rfc3339(&time, clock_wall_s(), 0);
    json_open(&json, '{');
    json_kv_str(&json, "name", name);
    json_kv_str(&json, "id", a->id);
    json_kv_str(&json, "created", buf_cstr(&time));
    json_kv_int(&json, "entries", (int64_t)a->unpacked.stats.entries);
    json_kv_int(&json, "bytes", (int64_t)a->unpacked.stats.bytes);
    json_kv_str(&json, "sha256", a->unpacked.sha256);
    buf_printf(&json, "%s%s", *about ? "," : "", about);
    json_close(&json, '}');
    if (fd < 0 || write(fd, json.data, json.len) != (ssize_t)json.len)
        return err_sys(err, ABOUT);
    return 0;
}

/* The link changes from one whole layer to another. */
static int point(int folder, const char *name, const char *id, struct err *err)
{
    char link[sizeof(TEMPORARY) + RANDOM], random[RANDOM + 1];

    id_random(random, RANDOM);
    snprintf(link, sizeof(link), TEMPORARY "%s", random);
    if (symlinkat(id, folder, link) || renameat(folder, link, folder, name)) {
        err_sys(err, "put layer %s in force", id);
        unlinkat(folder, link, 0);
        return -1;
    }
    fsync(folder);
    return 0;
}

static void sweep_one(int folder, const char *name, jail_named_fn *named, void *arg)
{
    AUTO(closep) int dir = open_dir(folder, name);
    bool ours, ends = str_starts(str_of(name), TEMPORARY);

    flock(folder, LOCK_EX);
    ours = dir >= 0 && !flock(dir, LOCK_EX | LOCK_NB);
    flock(folder, LOCK_UN);
    if (ours && (ends || !named || !named(arg, name)))
        rmtree(folder, name);
    else if (dir < 0 && ends)
        unlinkat(folder, name, 0); /* a link that was never renamed */
}

/* Those of `name` that are not `keep`, and remnants; what a sandbox uses is locked or named, and
 * stays. */
static void sweep(int folder, const char *name, const char *keep, jail_named_fn *named, void *arg)
{
    DIR *d = fdopendir(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    size_t n = strlen(name);

    for (struct dirent *e; d && (e = readdir(d));) {
        bool old = !strncmp(e->d_name, name, n) && e->d_name[n] == '-' && strcmp(e->d_name, keep);

        if (old || str_starts(str_of(e->d_name), TEMPORARY))
            sweep_one(folder, e->d_name, named, arg);
    }
    if (d)
        closedir(d);
}

static int give_name(struct work *w, struct layers_added *out, struct err *err)
{
    int r = 0;

    if (syncfs(w->dir))
        return err_sys(err, "write the layer to disk");
    flock(w->folder, LOCK_EX);
    flock(w->dir, LOCK_SH);
    if (!renameat2(w->folder, w->name, w->folder, out->id, RENAME_NOREPLACE))
        close(TAKE(w->dir, -1));
    else if (errno == EEXIST)
        out->same = true;
    else
        r = err_sys(err, "name layer %s", out->id);
    flock(w->folder, LOCK_UN);
    return r;
}

int layers_add(const char *data_dir, const char *name, int archive, const char *about,
               jail_named_fn *named, void *arg, struct layers_added *out, struct err *err)
{
    AUTO(closep) int folder = layers_folder(data_dir, err);
    AUTO(drop_work) struct work w = { .folder = folder, .dir = -1 };
    AUTO(freep) char *target = NULL;

    *out = (struct layers_added){ 0 };
    if (folder < 0 || make_work(&w, err))
        return -1;
    if (asprintf(&target, "%s/layers/%s/" ROOT, data_dir, w.name) < 0)
        abort();
    if (unpack_run(&(struct unpack_request){ .archive = archive, .target = target }, &out->unpacked,
                   err) ||
        check_place(w.dir, name, err))
        return -1;
    snprintf(out->id, sizeof(out->id), "%.64s-%.*s", name, HASH, out->unpacked.sha256);
    if (write_about(w.dir, name, about, out, err) || give_name(&w, out, err) ||
        point(folder, name, out->id, err))
        return -1;
    sweep(folder, name, out->id, named, arg);
    return 0;
}

int layers_remove(const char *data_dir, const char *name, jail_named_fn *named, void *arg,
                  struct err *err)
{
    AUTO(closep) int folder = layers_folder(data_dir, err);

    if (folder < 0)
        return -1;
    if (unlinkat(folder, name, 0))
        return errno == ENOENT ? err_set(err, ERR_NOT_FOUND, "there is no layer '%.64s'", name)
                               : err_sys(err, "remove layer %.64s", name);
    fsync(folder);
    sweep(folder, name, "", named, arg);
    return 0;
}

int layers_describe(const char *data_dir, const char *name, struct buf *json, struct err *err)
{
    AUTO(freep) char *path = NULL;
    AUTO(closep) int fd = -1;
    char id[LAYERS_ID];
    ssize_t n;

    layers_current(data_dir, name, id);
    if (!*id)
        return err_set(err, ERR_NOT_FOUND, "there is no layer '%.64s'", name);
    if (asprintf(&path, "%s/layers/%s/" ABOUT, data_dir, id) < 0)
        abort();
    fd = open(path, O_RDONLY | O_CLOEXEC);
    buf_reserve(json, ABOUT_BYTES);
    n = fd < 0 ? -1 : read(fd, json->data, ABOUT_BYTES);
    if (n < 0)
        return err_sys(err, "%s", path);
    json->len = (size_t)n;
    json->data[n] = 0;
    return 0;
}
