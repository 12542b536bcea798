/* host_mirrors.c - see host_mirrors.h; and the files that come of it.
 *
 * An address may carry a token, so a file with anything doubtful in it is left out as a whole. A
 * token that is part of a path cannot be told from a path: the option is the operator's word. */
#include "jail/host_mirrors.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>

#include "jail/dpkg.h"
#include "jail/host_build.h"

enum { TEXT_MAX = 1 << 20 };

static bool is_break(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '[' || c == ']' || c == ',' ||
           c == '=';
}

static struct str next_word(struct str *rest)
{
    struct str word;

    while (rest->n && is_break(*rest->p))
        rest->p++, rest->n--;
    word = (struct str){ rest->p, 0 };
    while (rest->n && !is_break(*rest->p))
        rest->p++, rest->n--, word.n++;
    return word;
}

/* What stands between "//" and the next "/"; false: no such address. */
static bool authority(struct str word, struct str *out)
{
    const char *at = memmem(word.p, word.n, "://", 3);
    struct str tail;

    if (!at)
        return false;
    *out = (struct str){ at + 3, word.n - (size_t)(at + 3 - word.p) };
    str_cut(*out, '/', out, &tail);
    return true;
}

static bool safe_word(struct str w)
{
    static const char *const local[] = { "file:", "copy:", "cdrom:", "ssh:", "rsh:", "store:" };
    struct str host;

    for (size_t i = 0; i < ARRAY_LEN(local); i++)
        if (w.n >= strlen(local[i]) && str_iis((struct str){ w.p, strlen(local[i]) }, local[i]))
            return false;
    if (authority(w, &host) && memchr(host.p, '@', host.n))
        return false;
    if (w.p[0] != '/' || w.n == 1) /* "/" alone is the suite of a flat archive */
        return true;
    return dpkg_clean_path(w) && (str_starts(w, "/usr/") || str_starts(w, "/etc/apt/"));
}

void host_mirrors_strip(struct str text, struct buf *out)
{
    struct str line, tail;

    while (text.n) {
        str_cut(text, '\n', &line, &text);
        if (str_starts(str_trim(line), "#"))
            continue;
        str_cut(line, '#', &line, &tail);
        buf_add_str(out, line);
        buf_putc(out, '\n');
    }
}

bool host_mirrors_safe(struct str text)
{
    struct str word;

    if (text.n && memchr(text.p, 0, text.n))
        return false;
    while ((word = next_word(&text)).n)
        if (!safe_word(word))
            return false;
    return true;
}

/* An address alone, or for trusted-host a name. */
static bool safe_value(struct str v)
{
    struct str rest = v, host;

    if (!v.n || v.n > 512 || next_word(&rest).n != v.n || memchr(v.p, '?', v.n) ||
        memchr(v.p, '@', v.n) || memchr(v.p, '$', v.n))
        return false;
    for (size_t i = 0; i < v.n; i++)
        if ((unsigned char)v.p[i] <= ' ' || (unsigned char)v.p[i] >= 0x7f)
            return false;
    return !authority(v, &host) || str_starts(v, "http://") || str_starts(v, "https://");
}

size_t host_mirrors_keys(struct str text, const char *const *keys, struct buf *out)
{
    struct str line, key, value;
    size_t found = 0;

    while (text.n) {
        str_cut(text, '\n', &line, &text);
        if (!str_cut(line, '=', &key, &value))
            continue;
        key = str_trim(key);
        value = str_trim(value);
        for (const char *const *k = keys; *k; k++)
            if (str_is(key, *k) && safe_value(value)) {
                buf_printf(out, "%s = %.*s\n", *k, STR_ARG(value));
                found++;
            }
    }
    return found;
}

static int put(struct host_build *b, const char *path, const struct buf *text, struct err *err)
{
    struct host_node n = { .path = path, .mode = 0644, .bytes = buf_str(text) };

    return host_tree_put(b, &b->base, &n, err);
}

/* A list that everybody may read, without its comments, if nothing in it is doubtful. */
static int take_list(struct host_build *b, const char *path, struct err *err)
{
    AUTO(buf_free) struct buf text = { 0 };
    AUTO(buf_free) struct buf plain = { 0 };
    struct stat st;

    if (!host_tree_public(b, path) || host_tree_read(b, path, TEXT_MAX, &text, &st))
        return 0;
    host_mirrors_strip(buf_str(&text), &plain);
    if (!plain.len || !host_mirrors_safe(buf_str(&plain)))
        return 0;
    return put(b, path, &plain, err);
}

static int visit_list(void *arg, const struct host_entry *e, struct err *err)
{
    if (fnmatch("*.list", e->name, 0) && fnmatch("*.sources", e->name, 0))
        return 0;
    return take_list(arg, e->path, err);
}

static int take_keys(struct host_build *b, const char *path, const char *head,
                     const char *const *keys, struct err *err)
{
    AUTO(buf_free) struct buf text = { 0 };
    AUTO(buf_free) struct buf out = { 0 };
    struct stat st;

    if (!host_tree_public(b, path) || host_tree_read(b, path, TEXT_MAX, &text, &st))
        return 0;
    buf_puts(&out, head);
    if (!host_mirrors_keys(buf_str(&text), keys, &out))
        return 0;
    return put(b, path, &out, err);
}

static int take_machines(struct host_build *b, struct err *err)
{
    static const char *const pip[] = { "index-url", "extra-index-url", "trusted-host", NULL };
    static const char *const npm[] = { "registry", NULL };

    if (take_list(b, "etc/apt/sources.list", err) ||
        host_walk(b->source, "etc/apt/sources.list.d", visit_list, b, err) ||
        take_keys(b, "etc/pip.conf", "[global]\n", pip, err) ||
        take_keys(b, "etc/npmrc", "", npm, err))
        return -1;
    return 0;
}

int host_mirrors_build(struct host_build *b, struct err *err)
{
    if (take_list(b, "etc/apk/repositories", err)) /* Alpine has no other default */
        return -1;
    return b->o->mirrors ? take_machines(b, err) : 0;
}
