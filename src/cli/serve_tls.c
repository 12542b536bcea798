/* serve_tls.c - certificate and key where the server's user can read them. They belong to root, and
 * the server's small root does not hold their directory: the monitor copies them to <run>/tls, and
 * again when they have changed. The server looks at the copies as if they were the files.
 *
 * <run>/tls is root's: the server may read in it and write nothing. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/serve.h"

enum { FILE_MAX = 1 << 20 };

static int read_file(const char *path, struct buf *out, struct stat *st, struct err *err)
{
    AUTO(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char piece[4096];
    ssize_t n;

    if (fd < 0 || fstat(fd, st))
        return err_sys(err, "TLS file %.150s", path);
    if (!S_ISREG(st->st_mode) || st->st_size > FILE_MAX)
        return err_set(err, ERR_INVALID, "TLS file %.150s: not a file of at most 1 MiB", path);
    while ((n = read(fd, piece, sizeof(piece))) > 0)
        buf_add(out, piece, (size_t)n);
    return n < 0 ? err_sys(err, "read %.150s", path) : 0;
}

/* Whole or not at all: the server may look at any moment. */
static int write_copy(const struct serve *s, const char *path, const struct buf *text,
                      struct err *err)
{
    AUTO(freep) char *next = NULL;
    AUTO(closep) int fd = -1;

    if (asprintf(&next, "%s.new", path) < 0)
        abort();
    unlink(next);
    fd = open(next, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0440);
    if (fd < 0 || write(fd, text->data, text->len) != (ssize_t)text->len || fchown(fd, 0, s->gid) ||
        rename(next, path))
        return err_sys(err, "write %.150s", path);
    return 0;
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* 1: copied, 0: it is as it was. */
static int copy(const struct serve *s, const char *from, const char *to, struct stat *seen,
                struct err *err)
{
    AUTO(buf_free) struct buf text = { 0 };
    struct stat st;
    int r;

    if (!stat(from, &st) && same(&st, seen))
        return 0;
    r = read_file(from, &text, &st, err) || write_copy(s, to, &text, err) ? -1 : 1;
    if (text.data)
        explicit_bzero(text.data, text.cap);
    if (r > 0)
        *seen = st;
    return r;
}

static int make_place(struct serve *s, struct err *err)
{
    AUTO(freep) char *dir = NULL;

    if (asprintf(&dir, "%s/tls", s->place) < 0 ||
        asprintf(&s->shown_chain, "%s/chain.pem", dir) < 0 ||
        asprintf(&s->shown_key, "%s/key.pem", dir) < 0)
        abort();
    if ((mkdir(dir, 0710) && errno != EEXIST) || chown(dir, 0, s->gid) || chmod(dir, 0710))
        return err_sys(err, "make %.150s", dir);
    return 0;
}

int serve_tls_copy(struct serve *s, struct err *err)
{
    static struct stat chain, key; /* as copied last */
    int a, b;

    if (!s->tls_chain)
        return 0;
    if (!s->root) { /* our own user's */
        s->shown_chain = s->shown_chain ? s->shown_chain : xstrdup(s->tls_chain);
        s->shown_key = s->shown_key ? s->shown_key : xstrdup(s->tls_key);
        return 0;
    }
    if (!s->shown_chain && make_place(s, err))
        return -1;
    a = copy(s, s->tls_chain, s->shown_chain, &chain, err);
    b = a < 0 ? -1 : copy(s, s->tls_key, s->shown_key, &key, err);
    return b < 0 ? -1 : a | b;
}

void serve_tls_forget(const struct serve *s)
{
    if (!s->root || !s->shown_chain)
        return;
    unlink(s->shown_chain);
    unlink(s->shown_key);
}
