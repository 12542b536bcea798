/* envfile.c - see envfile.h. */
#include "base/envfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"

static bool name_byte(char c, bool first)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

static bool blank(char c) { return c == ' ' || c == '\t'; }

static void skip(struct str *s, size_t n) { *s = (struct str){ s->p + n, s->n - n }; }

static void skip_blanks(struct str *s)
{
    while (s->n && blank(s->p[0]))
        skip(s, 1);
}

/* The letter behind a backslash inside double quotes; others stand for themselves. */
static char escaped(char c) { return (char)(c == 'n' ? '\n' : c == 't' ? '\t' : c); }

/* Up to the closing quote, which is taken. */
static int take_quoted(struct str *s, struct buf *out, struct err *err)
{
    char quote = s->p[0];

    for (skip(s, 1); s->n; skip(s, 1)) {
        if (s->p[0] == quote) {
            skip(s, 1);
            return 0;
        }
        if (quote == '"' && s->p[0] == '\\') {
            skip(s, 1);
            if (!s->n)
                break;
            buf_putc(out, escaped(s->p[0]));
            continue;
        }
        buf_putc(out, s->p[0]);
    }
    return err_set(err, ERR_INVALID, "a %c is not closed on its line", quote);
}

/* Without quotes: to the end, or to a # behind a blank. */
static void take_plain(struct str *s, struct buf *out)
{
    size_t n = 0, keep = 0;

    for (; n < s->n && !(s->p[n] == '#' && (!n || blank(s->p[n - 1]))); n++)
        if (!blank(s->p[n]))
            keep = n + 1;
    buf_add(out, s->p, keep);
    skip(s, n);
}

static int take_value(struct str *s, struct buf *out, struct err *err)
{
    if (s->n && (s->p[0] == '"' || s->p[0] == '\'')) {
        if (take_quoted(s, out, err))
            return -1;
        if (s->n && !blank(s->p[0]))
            return err_set(err, ERR_INVALID, "there is something behind the closing quote");
        skip_blanks(s);
        if (s->n && s->p[0] != '#')
            return err_set(err, ERR_INVALID, "there is something behind the closing quote");
        return 0;
    }
    take_plain(s, out);
    return 0;
}

/* 1: a pair, 0: nothing on it, -1 with err */
static int take_line(struct str s, struct arena *a, struct envfile_pair *out, struct err *err)
{
    AUTO(buf_free) struct buf value = { 0 };
    size_t n = 0;
    int failed;

    if (s.n && s.p[s.n - 1] == '\r')
        s.n--;
    skip_blanks(&s);
    if (!s.n || s.p[0] == '#')
        return 0;
    if (str_starts(s, "export") && s.n > 6 && blank(s.p[6])) {
        skip(&s, 6);
        skip_blanks(&s);
    }
    while (n < s.n && name_byte(s.p[n], !n))
        n++;
    if (!n || n == s.n || s.p[n] != '=')
        return err_set(err, ERR_INVALID,
                       "not NAME=VALUE (a name has letters, digits and _, and no "
                       "blank before the =)");
    out->name = arena_strdup(a, (struct str){ s.p, n });
    skip(&s, n + 1);
    skip_blanks(&s);
    failed = take_value(&s, &value, err);
    if (!failed && value.len && memchr(value.data, 0, value.len))
        failed = err_set(err, ERR_INVALID, "a value with a NUL byte");
    out->value = arena_strdup(a, buf_str(&value));
    if (value.data)
        explicit_bzero(value.data, value.len);
    return failed ? -1 : 1;
}

int envfile_parse(struct str text, struct arena *a, struct envfile *out, struct err *err)
{
    size_t number = 0, cap = 0;

    *out = (struct envfile){ 0 };
    if (str_starts(text, "\xef\xbb\xbf")) /* what some editors put in front */
        skip(&text, 3);
    while (text.n) {
        struct envfile_pair pair = { .line = ++number };
        struct str line, rest = { 0 };
        int r;

        str_cut(text, '\n', &line, &rest);
        text = rest;
        r = take_line(line, a, &pair, err);
        if (r < 0) {
            envfile_free(out);
            return err_in(err, "line %zu", number);
        }
        if (!r)
            continue;
        if (out->n == cap) {
            cap = cap ? cap * 2 : 16;
            out->items = xrealloc(out->items, cap * sizeof(*out->items));
        }
        out->items[out->n++] = pair;
    }
    return 0;
}

void envfile_free(struct envfile *f)
{
    free(f->items);
    *f = (struct envfile){ 0 };
}

const struct envfile_pair *envfile_find(const struct envfile *f, const char *name)
{
    for (size_t i = f->n; i-- > 0;)
        if (!strcmp(f->items[i].name, name))
            return &f->items[i];
    return NULL;
}

/* ---- the file ---- */

static int check_owner(const char *path, const struct stat *st, struct err *err)
{
    if (!S_ISREG(st->st_mode))
        return err_set(err, ERR_INVALID, "%.150s is not a file", path);
    if (st->st_size > ENVFILE_BYTES)
        return err_set(err, ERR_TOO_LARGE, "%.150s has more than %d bytes", path, ENVFILE_BYTES);
    if (st->st_mode & 022 || (st->st_uid && st->st_uid != geteuid()))
        return err_set(err, ERR_DENIED,
                       "%.150s can be written by others: it must be yours or root's, mode 644 or "
                       "less",
                       path);
    return 0;
}

int envfile_read(const char *path, bool required, struct arena *a, struct envfile *out,
                 struct err *err)
{
    AUTO(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    AUTO(freep) char *text = NULL;
    struct stat st;
    ssize_t n;
    int failed;

    *out = (struct envfile){ 0 };
    if (fd < 0 && errno == ENOENT && !required)
        return 0;
    if (fd < 0 || fstat(fd, &st))
        return err_sys(err, "%.150s", path);
    if (check_owner(path, &st, err))
        return -1;
    text = xmalloc(ENVFILE_BYTES);
    n = read(fd, text, ENVFILE_BYTES);
    if (n < 0)
        return err_sys(err, "%.150s", path);
    failed = envfile_parse((struct str){ text, (size_t)n }, a, out, err);
    explicit_bzero(text, (size_t)n);
    return failed ? err_in(err, "%.150s", path) : 1;
}

int envfile_load(const char *path, bool required, struct err *err)
{
    struct arena a = { 0 };
    struct envfile f;
    int r = envfile_read(path, required, &a, &f, err);

    for (size_t i = 0; r > 0 && i < f.n; i++) {
        const struct envfile_pair *last = envfile_find(&f, f.items[i].name);

        setenv(f.items[i].name, last->value, 0);
    }
    if (r > 0)
        envfile_free(&f);
    arena_free(&a);
    return r;
}
