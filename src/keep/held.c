/* held.c - what must stay because a sandbox's file names it: generations of template host, other
 * templates, layers. While its keeper runs locks hold them; while it does not, only this does.
 *
 * The records lie in run directories, of which <data>/run-dirs has a line for each that a keeper of
 * this data directory has used; the notes in the data directory itself. What cannot be read may
 * name anything, and so holds everything. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "keep/keeper.h"
#include "keep/statedir.h"

enum { RUN_DIRS_BYTES = 1 << 20 };

/* ---- where records are ---- */

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

/* One that is gone when we come to it ended meanwhile. */
static bool file_names(int dir, const char *id, enum boxfile_kind kind, enum keep_named what,
                       const char *name)
{
    AUTO(buf_free) struct buf bytes = { 0 };
    struct boxfile f;
    struct err err = { 0 };

    if (statedir_read(dir, id, &bytes, &err))
        return err.code != ERR_NOT_FOUND;
    return boxfile_decode(buf_str(&bytes), kind, id, &f, NULL, &err) < 0 ||
           names_it(&f, kind, what, name);
}

static bool directory_names(const char *path, enum boxfile_kind kind, enum keep_named what,
                            const char *name)
{
    DIR *d = opendir(path);
    const struct dirent *e;
    bool named = false;

    if (!d)
        return errno != ENOENT && errno != ENOTDIR;
    while (!named && (errno = 0, e = readdir(d)))
        named = adopt_is_name(e->d_name) && file_names(dirfd(d), e->d_name, kind, what, name);
    if (!named && errno)
        named = true;
    closedir(d);
    return named;
}

bool keep_names(const char *data_dir, enum keep_named what, const char *name)
{
    AUTO(freep) char *notes = path_in(data_dir, "paused");
    AUTO(buf_free) struct buf dirs = { 0 };
    int known = read_run_dirs(data_dir, &dirs);
    struct str rest = buf_str(&dirs), line;

    if (known < 0 || directory_names(notes, BOXFILE_NOTE, what, name))
        return true;
    if (!known && !geteuid()) /* no keeper that writes them has run here yet */
        return directory_names(KEEP_RUN_DIR "/boxes", BOXFILE_RECORD, what, name);
    while (next_line(&rest, &line)) {
        AUTO(freep) char *dir = xstrndup(line.p, line.n);

        if (directory_names(dir, BOXFILE_RECORD, what, name))
            return true;
    }
    return false;
}
