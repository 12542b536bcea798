/* cp_out.c - from a sandbox to this machine.
 *
 * Names, types and links come from inside and may change between two calls, so every step here is
 * one that cannot leave the target: a directory is opened beneath it without following any link, a
 * name is one checked component, a file gets its name by a rename, which replaces a link and does
 * not follow it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/id.h"
#include "base/mem.h"
#include "cli/cp.h"
#include "cli/terminal.h"

enum { TEMPORARY = 40 };

static int open_beneath(int root, const char *path)
{
    struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW,
                            .resolve =
                                RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };

    return (int)syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof(how));
}

static void temporary_name(char out[static TEMPORARY])
{
    memcpy(out, ".cove-cp-", 10);
    id_random(out + 9, 16);
}

/* ---- a file ---- */

struct incoming { /* a file without its name */
    int dir, fd;
    char temporary[TEMPORARY]; /* "": it has none at all */
};

static int begin(struct incoming *f, int dir, const char *name, struct err *err)
{
    *f = (struct incoming){ .dir = dir };
    f->fd = openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (f->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
        temporary_name(f->temporary);
        f->fd = openat(dir, f->temporary, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        if (f->fd < 0)
            f->temporary[0] = 0;
    }
    return f->fd < 0 ? err_sys(err, "write %.180s", name) : 0;
}

/* Gives it its name, in one step whatever had it before. */
static int commit(struct incoming *f, const char *name, int64_t mode, struct err *err)
{
    char self[40];

    if (fchmod(f->fd, (mode_t)mode & 0777))
        return err_sys(err, "mode of %.180s", name);
    if (!f->temporary[0]) {
        snprintf(self, sizeof(self), "/proc/self/fd/%d", f->fd);
        if (!linkat(AT_FDCWD, self, f->dir, name, AT_SYMLINK_FOLLOW))
            return 0;
        temporary_name(f->temporary);
        if (errno != EEXIST || linkat(AT_FDCWD, self, f->dir, f->temporary, AT_SYMLINK_FOLLOW)) {
            f->temporary[0] = 0;
            return err_sys(err, "write %.180s", name);
        }
    }
    if (renameat(f->dir, f->temporary, f->dir, name))
        return err_sys(err, "write %.180s", name);
    f->temporary[0] = 0;
    return 0;
}

static void finish(struct incoming *f)
{
    if (f->temporary[0])
        unlinkat(f->dir, f->temporary, 0);
    closep(&f->fd);
}

/* stream: fd may be a pipe or a terminal, and make us wait */
static int take_bytes(struct cp *c, struct exchange *x, int fd, bool stream, const char *name,
                      struct err *err)
{
    struct str more;
    ssize_t n;

    while ((n = http_body_next(&x->body, &more, err)) > 0) {
        cp_moved(c, more.n);
        if (stream && terminal_write(fd, more.p, more.n))
            return err_sys(err, "write %.180s", name);
        while (!stream && more.n) {
            ssize_t w = write(fd, more.p, more.n);

            if (w < 0 && errno != EINTR)
                return err_sys(err, "write %.180s", name);
            if (w > 0)
                more = (struct str){ more.p + w, more.n - (size_t)w };
        }
    }
    return n < 0 ? err_in(err, "%.150s", name) : 0;
}

static int take_file(struct cp *c, const char *there, int dir, const char *name, int64_t mode,
                     struct err *err)
{
    AUTO(client_closep)
    struct exchange *x = envd_read(&c->guest.envd, c->user, there, err);
    struct incoming f;
    int r;

    if (!x || begin(&f, dir, name, err))
        return -1;
    r = take_bytes(c, x, f.fd, false, name, err);
    if (!r)
        r = commit(&f, name, mode, err);
    finish(&f);
    c->files += !r;
    return r;
}

/* To what is there already and is no file: our own output, a pipe, a device. */
static int take_stream(struct cp *c, const char *there, int fd, const char *name, struct err *err)
{
    AUTO(client_closep)
    struct exchange *x = envd_read(&c->guest.envd, c->user, there, err);
    int r = x ? take_bytes(c, x, fd, true, name, err) : -1;

    c->files += !r;
    return r;
}

/* ---- a directory ---- */

struct walk {
    struct cp *cp;
    int root;
    struct cp_list items, modes; /* here is below root */
};

static int take_link(struct walk *w, const struct envd_entry *e, int dir, struct err *err)
{
    char temporary[TEMPORARY];

    if (!e->link || !*e->link) {
        w->cp->skipped++;
        return 0;
    }
    temporary_name(temporary);
    if (symlinkat(e->link, dir, temporary))
        return err_sys(err, "link %.180s", e->name);
    if (renameat(dir, temporary, dir, e->name)) {
        err_sys(err, "link %.180s", e->name);
        unlinkat(dir, temporary, 0);
        return -1;
    }
    w->cp->links++;
    return 0;
}

static int take_dir_entry(struct walk *w, const struct cp_step *at, const struct envd_entry *e,
                          int dir, struct err *err)
{
    struct cp_step p = { cp_join(at->here, e->name), cp_join(at->there, e->name), e->mode };

    if (strlen(p.here) >= CP_PATH || strlen(p.there) >= CP_PATH) {
        cp_drop(&p);
        return err_set(err, ERR_LIMIT, "a path of more than %d bytes below %.150s", CP_PATH - 1,
                       e->name);
    }
    if (!mkdirat(dir, e->name, 0700)) {
        w->cp->directories++; /* its mode is set when it is full */
        cp_push(&w->modes, (struct cp_step){ xstrdup(p.here), NULL, e->mode });
    } else if (errno != EEXIST) {
        err_sys(err, "make %.180s", p.here);
        cp_drop(&p);
        return -1;
    }
    cp_push(&w->items, p); /* one that is no directory is refused when opened */
    return 0;
}

static int take_entry(struct walk *w, const struct cp_step *at, const struct envd_entry *e, int dir,
                      struct err *err)
{
    AUTO(freep) char *there = NULL;

    if (!cp_name_safe(e->name))
        return err_set(err, ERR_UPSTREAM, "%.100s: the sandbox names a file '%.100s': refused",
                       at->there, e->name);
    switch (e->type) {
    case ENVD_DIRECTORY: return take_dir_entry(w, at, e, dir, err);
    case ENVD_LINK: return take_link(w, e, dir, err);
    case ENVD_FILE:
        there = cp_join(at->there, e->name);
        return take_file(w->cp, there, dir, e->name, e->mode, err);
    case ENVD_OTHER: break;
    }
    w->cp->skipped++;
    return 0;
}

static int take_dir(struct walk *w, const struct cp_step *at, struct err *err)
{
    struct cp *c = w->cp;
    AUTO(closep) int dir = open_beneath(w->root, at->here);
    struct envd_entries list = { 0 };
    struct arena a = { 0 };
    int r;

    if (dir < 0 && (errno == ELOOP || errno == ENOTDIR))
        return err_set(err, ERR_CONFLICT, "%.180s is in the way: it is no directory", at->here);
    if (dir < 0)
        return err_sys(err, "%.180s", at->here);
    r = envd_list(&c->guest.envd, c->user, at->there, &a, &list, err);
    for (size_t i = 0; !r && i < list.n; i++)
        r = take_entry(w, at, &list.items[i], dir, err);
    arena_free(&a);
    return r;
}

static int set_mode(struct walk *w, const struct cp_step *p, struct err *err)
{
    AUTO(closep) int dir = open_beneath(w->root, p->here);

    return dir < 0 || fchmod(dir, (mode_t)p->mode & 0777) ? err_sys(err, "mode of %.180s", p->here)
                                                          : 0;
}

/* follow: TO itself may be a link, as the user named it */
static int take_tree(struct cp *c, const char *from, const char *to, int64_t mode, bool follow,
                     struct err *err)
{
    bool made = !mkdir(to, 0700);
    AUTO(closep)
    int root = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));
    struct walk w = { .cp = c, .root = root };
    int r = 0;

    if (root < 0)
        return err_sys(err, "%.180s", to);
    c->directories += made;
    cp_push(&w.items, (struct cp_step){ xstrdup(""), xstrdup(from), mode });
    if (made)
        cp_push(&w.modes, (struct cp_step){ xstrdup(""), NULL, mode });
    while (w.items.n) {
        struct cp_step at = w.items.items[--w.items.n];

        if (!r)
            r = take_dir(&w, &at, err);
        cp_drop(&at);
    }
    while (w.modes.n) { /* also after a failure: what is there has its mode */
        struct cp_step *p = &w.modes.items[--w.modes.n];
        struct err other = { 0 };

        if (set_mode(&w, p, &other) && !r) {
            *err = other;
            r = -1;
        }
        cp_drop(p);
    }
    free(w.items.items);
    free(w.modes.items);
    return r;
}

/* ---- where to ---- */

/* Names of something that is open or a device, and not of a file: to be written to, never to be
 * replaced. /dev/stdout may well lead to a plain file. */
static bool is_stream(const char *path)
{
    struct stat st;

    return str_starts(str_of(path), "/dev/") || str_starts(str_of(path), "/proc/") ||
           (!stat(path, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
}

/* A link that the user named is followed; one that is where the copy goes only by its name is
 * replaced, for a sandbox may have made it in an earlier copy. */
static int take_named(struct cp *c, const char *from, const char *to, int64_t mode, bool follow,
                      struct err *err)
{
    AUTO(freep) char *real = follow ? realpath(to, NULL) : NULL;
    AUTO(freep) char *path = xstrdup(real ? real : to);
    char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    AUTO(closep) int dir = -1;

    if (follow && is_stream(to)) {
        dir = open(to, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        return dir < 0 ? err_sys(err, "%.180s", to) : take_stream(c, from, dir, to, err);
    }
    if (slash)
        *slash = 0;
    dir = open(!slash ? "." : *path ? path : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir < 0 ? err_sys(err, "%.180s", to) : take_file(c, from, dir, name, mode, err);
}

int cp_out(struct cp *c, const char *from, const char *to, struct err *err)
{
    struct str name = cp_name(from);
    AUTO(freep) char *copy = name.p ? xstrndup(name.p, name.n) : NULL;
    AUTO(freep) char *here = NULL;
    struct envd_entry e;
    struct stat st;
    bool tree, inside;

    if (envd_stat(&c->guest.envd, c->user, from, &c->guest.arena, &e, err))
        return -1;
    tree = e.type == ENVD_DIRECTORY || e.leads_to_dir;
    if (!strcmp(to, "-"))
        return tree ? err_set(err, ERR_INVALID, "%.150s is a directory", from)
                    : take_stream(c, from, STDOUT_FILENO, "standard output", err);
    inside = !stat(to, &st) && S_ISDIR(st.st_mode) && copy;
    if (inside)
        here = cp_join(to, copy);
    else if (!tree && to[strlen(to) - 1] == '/')
        return err_set(err, ERR_NOT_FOUND, "%.180s is no directory", to);
    else
        here = xstrdup(to);
    c->size = tree || e.type == ENVD_LINK ? 0 : e.size;
    return tree ? take_tree(c, from, here, e.mode, !inside, err)
                : take_named(c, from, here, e.mode, !inside, err);
}
