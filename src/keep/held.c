/* held.c - what must stay because a sandbox's file names it: generations of template host, other
 * templates, layers. While its keeper runs locks hold them; while it does not, and where it cannot
 * reach its sandbox, only this does.
 *
 * The records lie in run directories, of which <data>/run-dirs has a line for each that a keeper of
 * this data directory has used; the notes in the data directory itself. What cannot be read may
 * name anything, and so holds everything. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "keep/keeper.h"
#include "keep/rundir.h"
#include "keep/statedir.h"

enum { RUN_DIRS_BYTES = 1 << 20 };

/* ---- where records are ---- */

static int seen_root = -1;

void held_look_from(int root) { seen_root = root; }

/* As whoever started us sees it: a keeper hides the machine's run directory from itself, and a
 * record that its reaper did not find would hold nothing. */
static int open_seen(const char *path, uint64_t flags)
{
    struct open_how how = { .flags = flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT };

    if (seen_root < 0 || *path != '/')
        return open(path, (int)how.flags);
    return (int)syscall(SYS_openat2, seen_root, path, &how, sizeof(how));
}

static char *path_in(const char *data_dir, const char *name)
{
    char *path;

    if (asprintf(&path, "%s/%s", data_dir, name) < 0)
        abort();
    return path;
}

/* 0: there is none; -1 with errno. */
static int read_run_dirs(const char *data_dir, struct buf *out)
{
    AUTO(freep) char *path = path_in(data_dir, "run-dirs");
    AUTO(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n;

    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    buf_reserve(out, RUN_DIRS_BYTES);
    n = read(fd, out->data, RUN_DIRS_BYTES);
    if (n < 0)
        return -1;
    out->len = (size_t)n;
    return 1;
}

static bool next_line(struct str *rest, struct str *line)
{
    while (rest->n)
        if (str_next(rest, '\n', line) && line->n)
            return true;
    return false;
}

/* A line is written at once, between two ends of lines: one that was cut short spoils no other. */
int held_register(const struct keeper *k, struct err *err)
{
    AUTO(freep) char *path = path_in(k->o.data_dir, "run-dirs");
    AUTO(buf_free) struct buf known = { 0 };
    AUTO(buf_free) struct buf text = { 0 };
    AUTO(closep) int fd = -1;
    char link[32], dir[4096];
    struct str rest, line;
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", k->records);
    n = readlink(link, dir, sizeof(dir));
    if (n <= 0 || n == sizeof(dir) || read_run_dirs(k->o.data_dir, &known) < 0)
        return err_sys(err, "read %s", path);
    for (rest = buf_str(&known); next_line(&rest, &line);)
        if (line.n == (size_t)n && !memcmp(line.p, dir, line.n))
            return 0;
    buf_printf(&text, "\n%.*s\n", (int)n, dir);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, text.data, text.len) != (ssize_t)text.len)
        return err_sys(err, "write %s", path);
    return 0;
}

/* ---- what one names ---- */

/* Of a former boot there are files, if any: what they were built on is looked for anew. */
static bool may_live(const struct boxfile *f)
{
    char boot[BOOT_ID];

    return !adopt_boot(boot) || !memcmp(boot, f->boot, sizeof(boot));
}

static bool is_of_host(const struct boxfile *f, enum boxfile_kind kind)
{
    return kind == BOXFILE_RECORD && *f->fingerprint;
}

static bool names_it(const struct boxfile *f, enum boxfile_kind kind, enum keep_named what,
                     const char *name)
{
    switch (what) {
    case KEEP_NAMED_GENERATION: return may_live(f) && !strcmp(f->fingerprint, name);
    case KEEP_NAMED_TEMPLATE: return !is_of_host(f, kind) && !strcmp(f->order.template, name);
    case KEEP_NAMED_LAYER: /* releases before this field did not say which: any of them */
        return may_live(f) &&
               (*f->python ? !strcmp(f->python, name) : kind == BOXFILE_RECORD && f->pid > 0);
    }
    return true;
}

/* ---- all of them ---- */

/* true: enough. */
typedef bool each_fn(void *arg, int dir, const char *id, enum boxfile_kind kind);

/* true: fn said so, or a directory cannot be read. */
static bool each_in(const char *path, enum boxfile_kind kind, each_fn *fn, void *arg)
{
    int fd = open_seen(path, O_RDONLY | O_DIRECTORY);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *e;
    bool enough = false;

    if (!d) {
        enough = errno != ENOENT && errno != ENOTDIR;
        closep(&fd);
        return enough;
    }
    while (!enough && (errno = 0, e = readdir(d)))
        enough = adopt_is_name(e->d_name) && fn(arg, dirfd(d), e->d_name, kind);
    if (!enough && errno)
        enough = true;
    closedir(d);
    return enough;
}

/* unlisted: where no keeper has written yet which run directories it uses, those of the usual one
 * count, too; they may be another data directory's. */
static bool each_file(const char *data_dir, bool unlisted, each_fn *fn, void *arg)
{
    AUTO(freep) char *notes = path_in(data_dir, "paused");
    AUTO(buf_free) struct buf dirs = { 0 };
    int known = read_run_dirs(data_dir, &dirs);
    struct str rest = buf_str(&dirs), line;

    if (known < 0 || each_in(notes, BOXFILE_NOTE, fn, arg))
        return true;
    if (!known && unlisted && !geteuid())
        return each_in(KEEP_RUN_DIR "/boxes", BOXFILE_RECORD, fn, arg);
    while (next_line(&rest, &line)) {
        AUTO(freep) char *dir = xstrndup(line.p, line.n);

        if (each_in(dir, BOXFILE_RECORD, fn, arg))
            return true;
    }
    return false;
}

static int read_file(int dir, const char *id, enum boxfile_kind kind, struct boxfile *f,
                     struct err *err)
{
    AUTO(buf_free) struct buf bytes = { 0 };

    if (statedir_read(dir, id, &bytes, err))
        return -1;
    if (boxfile_decode(buf_str(&bytes), kind, id, f, NULL, err) >= 0)
        return 0;
    err->code = ERR_INVALID; /* an empty one is there, too */
    return -1;
}

struct question {
    enum keep_named what;
    const char *name;
};

/* One that is gone when we come to it ended meanwhile. */
static bool file_names(void *arg, int dir, const char *id, enum boxfile_kind kind)
{
    const struct question *q = arg;
    struct boxfile f;
    struct err err = { 0 };

    return read_file(dir, id, kind, &f, &err) ? err.code != ERR_NOT_FOUND
                                              : names_it(&f, kind, q->what, q->name);
}

bool keep_names(const char *data_dir, enum keep_named what, const char *name)
{
    return each_file(data_dir, true, file_names, &(struct question){ what, name });
}

/* ---- other run directories ---- */

static bool is_same_dir(const char *a, const char *b)
{
    AUTO(closep) int one = open_seen(a, O_PATH | O_DIRECTORY);
    AUTO(closep) int two = open_seen(b, O_PATH | O_DIRECTORY);
    struct stat x, y;

    return !strcmp(a, b) || (one >= 0 && two >= 0 && !fstat(one, &x) && !fstat(two, &y) &&
                             x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

bool held_elsewhere(const struct keeper *k, const struct boxfile *f)
{
    char boot[BOOT_ID];

    return adopt_boot(boot) && !memcmp(boot, f->boot, sizeof(boot)) &&
           strncmp(f->run_dir, k->o.run_dir, sizeof(f->run_dir) - 1) != 0 &&
           !is_same_dir(f->run_dir, k->o.run_dir);
}

bool held_by_another(const struct keeper *k, const struct boxfile *f)
{
    AUTO(freep) char *place = keep_place(f->run_dir, &k->owner);
    AUTO(freep) char *path = path_in(place, "keep.lock");
    AUTO(closep) int lock = -1;

    if (!held_elsewhere(k, f))
        return false;
    lock = open_seen(path, O_RDONLY | O_NOFOLLOW);
    return lock >= 0 && flock(lock, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
}

/* -1: it cannot be told. */
static int is_there(const char *path)
{
    AUTO(closep) int fd = open_seen(path, O_PATH | O_NOFOLLOW);

    return fd >= 0 ? 1 : errno == ENOENT || errno == ENOTDIR ? 0 : -1;
}

/* In a keeper's place; releases before had them in the run directory itself. */
bool held_recorded(const struct keeper *k, const struct boxfile *f)
{
    AUTO(freep) char *place = keep_place(f->run_dir, &k->owner);
    const char *dirs[] = { place, f->run_dir };
    bool found = false;

    for (size_t i = 0; i < ARRAY_LEN(dirs) && !found && held_elsewhere(k, f); i++) {
        AUTO(freep) char *boxes = path_in(dirs[i], "boxes");
        AUTO(freep) char *path = path_in(boxes, f->id);

        found = is_there(path) != 0;
    }
    return found;
}

/* What cannot be read may live. */
static bool count_living(void *arg, int dir, const char *id, enum boxfile_kind kind)
{
    AUTO(closep) int pidfd = -1;
    size_t *n = arg;
    struct boxfile f;
    struct err err = { 0 };

    if (read_file(dir, id, kind, &f, &err))
        *n += err.code != ERR_NOT_FOUND;
    else
        *n += adopt_life(&f, &pidfd, &err) != LIFE_ENDED;
    return false;
}

bool held_living(const char *records)
{
    size_t living = 0;

    return each_in(records, BOXFILE_RECORD, count_living, &living) || living;
}

/* Of the directory of records in it: it is in the place of its data directory there; releases
 * before had it in the run directory itself. */
static char *run_dir_of(struct str records, const struct keep_owner *o)
{
    char *path = xstrndup(records.p, records.n), *end = strrchr(path, '/');

    if (end)
        *end = 0;
    end = strrchr(path, '/');
    if (end && !strcmp(end + 1, o->identity))
        *end = 0;
    return path;
}

int keep_check_run_dir(const char *data_dir, const char *run_dir, const struct keep_owner *o,
                       struct err *err)
{
    AUTO(buf_free) struct buf dirs = { 0 };
    struct str rest, line;

    if (read_run_dirs(data_dir, &dirs) < 0)
        return err_sys(err, "read %s/run-dirs", data_dir);
    for (rest = buf_str(&dirs); next_line(&rest, &line);) {
        AUTO(freep) char *records = xstrndup(line.p, line.n), *there = run_dir_of(line, o);
        size_t living = 0;

        if (is_same_dir(there, run_dir))
            continue;
        if (each_in(records, BOXFILE_RECORD, count_living, &living))
            return err_set(err, ERR_UNAVAILABLE,
                           "the records of sandboxes in %.150s cannot be read: they may live",
                           records);
        if (living)
            return err_set(err, ERR_PRECONDITION,
                           "%zu sandboxes of %.90s live by the run directory %.90s: start with "
                           "--run-dir %.90s, or end them there first",
                           living, data_dir, there, there);
    }
    return 0;
}

/* ---- is it their volume? ---- */

struct claims { /* of sandboxes that live or are paused, on the volume */
    const char *data_dir;
    size_t n, met;
    int64_t oldest; /* when the first of their files was written, by the wall clock, in us */
};

static int64_t us_of(int64_t s, int64_t ns) { return s * 1000000 + ns / 1000; }

static bool count_claim(void *arg, int dir, const char *id, enum boxfile_kind kind)
{
    struct claims *c = arg;
    AUTO(freep) char *layer = NULL;
    AUTO(closep) int pidfd = -1;
    struct boxfile f;
    struct stat st;
    struct err err = { 0 };
    int r = read_file(dir, id, kind, &f, &err);

    if (r && err.code == ERR_NOT_FOUND)
        return false;
    if (!r && kind == BOXFILE_RECORD && adopt_life(&f, &pidfd, &err) == LIFE_ENDED)
        return false;
    if (asprintf(&layer, "%s/volume/layers/%s%s", c->data_dir, r ? "box-" : "", r ? id : f.name) <
        0)
        abort();
    c->n++;
    c->met += !access(layer, F_OK);
    if (!fstatat(dir, id, &st, AT_SYMLINK_NOFOLLOW))
        c->oldest = MIN(c->oldest, us_of(st.st_mtim.tv_sec, st.st_mtim.tv_nsec));
    return false;
}

/* A new volume in the place of the one that is missing would be in its way when it comes back, and
 * what was paused on that would be taken for lost. */
int held_check_volume(const char *data_dir, bool made, struct err *err)
{
    AUTO(freep) char *layers = path_in(data_dir, "volume/layers");
    AUTO(freep) char *image = path_in(data_dir, "volume.img");
    struct claims c = { .data_dir = data_dir, .oldest = INT64_MAX };
    struct statx st;
    bool is_there = !access(image, F_OK) || errno != ENOENT || !access(layers, F_OK);

    if (is_there && !made)
        return 0;
    if (each_file(data_dir, false, count_claim, &c))
        return err_set(err, ERR_UNAVAILABLE, "the files of sandboxes on %s cannot be read",
                       data_dir);
    if (!c.n || (made && c.met))
        return 0;
    if (!made)
        return err_set(err, ERR_PRECONDITION,
                       "%.90s/volume.img is missing, and %zu sandboxes have their files in it: put "
                       "it back, or remove %.50s/paused and start again to give them up",
                       data_dir, c.n, data_dir);
    if (statx(AT_FDCWD, layers, 0, STATX_BTIME, &st) || !(st.stx_mask & STATX_BTIME) ||
        us_of(st.stx_btime.tv_sec, st.stx_btime.tv_nsec) <= c.oldest)
        return 0;
    return err_set(err, ERR_PRECONDITION,
                   "%.80s/volume was made after the %zu sandboxes that have their files in it, and "
                   "has none of them: put theirs back, or remove %.50s/paused to give them up",
                   data_dir, c.n, data_dir);
}
