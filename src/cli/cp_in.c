/* cp_in.c - from this machine into a sandbox. The walk keeps a list of directories still to visit,
 * not a stack of calls: a coroutine's stack is small. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cp.h"
#include "cli/terminal.h"

struct walk {
    struct cp *cp;
    struct cp_list items, modes;
};

/* ---- a file ---- */

static int send_bytes(struct cp *c, struct exchange *x, int fd, int64_t size, struct err *err)
{
    while (size) {
        ssize_t n = read(fd, c->bytes, (size_t)MIN(size, (int64_t)CP_BYTES));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "read");
        if (!n)
            return err_set(err, ERR_CONFLICT, "became shorter while it was read");
        if (client_write(x, c->bytes, (size_t)n, err))
            return 1; /* the guest stopped reading: it may have said why */
        size -= n;
        cp_moved(c, (size_t)n);
    }
    return 0;
}

static int send_file(struct cp *c, int dir, const char *name, const char *here, const char *there,
                     bool follow, struct err *err)
{
    AUTO(closep)
    int fd =
        openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (follow ? 0 : O_NOFOLLOW));
    struct exchange *x;
    struct stat st;
    int r;

    if (fd < 0 || fstat(fd, &st))
        return err_sys(err, "%.180s", here);
    if (!S_ISREG(st.st_mode)) /* it was one a moment ago */
        return err_set(err, ERR_INVALID, "%.180s is not a file", here);
    x = envd_write(&c->guest.envd, c->user, there, st.st_mode & 0777, st.st_size, err);
    if (!x)
        return -1;
    r = send_bytes(c, x, fd, st.st_size, err);
    if (r < 0) {
        client_close(x); /* without its end the guest forgets what it has */
        return err_in(err, "%.150s", here);
    }
    if (envd_written(x, r > 0, err))
        return -1;
    c->files++;
    return 0;
}

static int send_input(struct cp *c, const char *there, struct err *err)
{
    struct exchange *x = envd_write(&c->guest.envd, c->user, there, -1, CLIENT_CHUNKED, err);
    ssize_t n;
    bool failed = false;

    if (!x)
        return -1;
    while (!failed && (n = terminal_read(0, c->bytes, CP_BYTES)) > 0) {
        failed = client_write(x, c->bytes, (size_t)n, err) != 0;
        cp_moved(c, (size_t)n);
    }
    if (!failed && n < 0) {
        client_close(x);
        return err_sys(err, "standard input");
    }
    if (envd_written(x, failed, err))
        return -1;
    c->files++;
    return 0;
}

/* ---- a directory ---- */

static int make_dir(struct walk *w, char *here, char *there, mode_t mode, struct err *err)
{
    struct cp_step p = { here, there, mode };

    if (!envd_make_dir(&w->cp->guest.envd, w->cp->user, there, err)) {
        w->cp->directories++;
        if ((mode & 0777) != 0755) /* set when it is full: it may not let us write */
            cp_push(&w->modes, (struct cp_step){ NULL, xstrdup(there), mode & 0777 });
    } else if (err->code == ERR_CONFLICT) {
        *err = (struct err){ 0 }; /* it was there: it keeps its mode */
    } else {
        cp_drop(&p);
        return -1;
    }
    cp_push(&w->items, p);
    return 0;
}

static int send_link(struct walk *w, int dir, const char *name, const char *here, const char *there,
                     struct err *err)
{
    char text[CP_PATH];
    ssize_t n = readlinkat(dir, name, text, sizeof(text) - 1);

    if (n < 0)
        return err_sys(err, "%.180s", here);
    text[n] = 0;
    if (!utf8_valid(str_of(text)))
        return err_set(err, ERR_INVALID, "%.150s: a link to what is not UTF-8", here);
    if (envd_make_link(&w->cp->guest.envd, w->cp->user, there, text, err))
        return -1;
    w->cp->links++;
    return 0;
}

static int send_entry(struct walk *w, int dir, const char *name, const struct cp_step *at,
                      struct err *err)
{
    char *here = cp_join(at->here, name), *there = cp_join(at->there, name);
    struct stat st;
    int r = 0;

    if (!utf8_valid(str_of(name))) /* the protocol is JSON: it would arrive as another name */
        r = err_set(err, ERR_INVALID, "%.180s: the name is not UTF-8", here);
    else if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
        r = err_sys(err, "%.180s", here);
    else if (S_ISDIR(st.st_mode))
        return make_dir(w, here, there, st.st_mode, err); /* takes both */
    else if (S_ISLNK(st.st_mode))
        r = send_link(w, dir, name, here, there, err);
    else if (S_ISREG(st.st_mode))
        r = send_file(w->cp, dir, name, here, there, false, err);
    else
        w->cp->skipped++;
    free(here);
    free(there);
    return r;
}

static int send_dir(struct walk *w, const struct cp_step *at, struct err *err)
{
    int fd = open(at->here, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    int r = 0;

    if (!d) {
        err_sys(err, "%.180s", at->here);
        closep(&fd);
        return -1;
    }
    for (const struct dirent *e; !r && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            r = send_entry(w, dirfd(d), e->d_name, at, err);
    closedir(d);
    return r;
}

static int send_tree(struct cp *c, const char *from, const char *to, mode_t mode, struct err *err)
{
    struct walk w = { .cp = c };
    int r = make_dir(&w, xstrdup(from), xstrdup(to), mode, err);

    while (w.items.n) {
        struct cp_step at = w.items.items[--w.items.n];

        if (!r)
            r = send_dir(&w, &at, err);
        cp_drop(&at);
    }
    while (w.modes.n) {
        struct cp_step *p = &w.modes.items[--w.modes.n];

        if (!r)
            r = envd_set_mode(&c->guest.envd, c->user, p->there, p->mode, err);
        cp_drop(p);
    }
    free(w.items.items);
    free(w.modes.items);
    return r;
}

/* Into TO, if that is a directory; else as TO. */
static char *target(struct cp *c, const char *from, const char *to, struct err *err)
{
    struct str name = cp_name(from);
    AUTO(freep) char *copy = name.p ? xstrndup(name.p, name.n) : NULL;
    struct envd_entry e;
    size_t n = strlen(to);
    bool inside = !n || to[n - 1] == '/';

    if (!inside && !envd_stat(&c->guest.envd, c->user, to, &c->guest.arena, &e, err))
        inside = e.type == ENVD_DIRECTORY || e.leads_to_dir;
    else if (!inside && err->code != ERR_NOT_FOUND)
        return NULL;
    *err = (struct err){ 0 };
    return inside && copy ? cp_join(to, copy) : xstrdup(to);
}

int cp_in(struct cp *c, const char *from, const char *to, struct err *err)
{
    AUTO(freep) char *there = NULL;
    struct stat st;

    if (!strcmp(from, "-"))
        return send_input(c, to, err);
    if (stat(from, &st)) /* what was named is meant, even through a link */
        return err_sys(err, "%.180s", from);
    there = target(c, from, to, err);
    if (!there)
        return -1;
    if (S_ISDIR(st.st_mode))
        return send_tree(c, from, there, st.st_mode, err);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID,
                       "%.180s is neither a file nor a directory (- reads "
                       "standard input)",
                       from);
    c->size = st.st_size;
    return send_file(c, AT_FDCWD, from, from, there, true, err);
}
