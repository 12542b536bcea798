/* host_mirrors.c - see host_mirrors.h; and the files that come of it.
 *
 * By default the machine's own settings are not looked at: an address may carry a token. With
 * mirrors = host they are, and a file with anything doubtful in it is left out as a whole. A token
 * that is part of a path cannot be told from a path: the option is the operator's word. */
#include "jail/host_mirrors.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>

#include "jail/dpkg.h"
#include "jail/host_build.h"

enum { TEXT_MAX = 1 << 20 };

static const struct distribution {
    const char *id, *uri, *security, *suites[4], *components, *keyring;
} distributions[] = {
    { "debian",
      "http://deb.debian.org/debian",
      "http://deb.debian.org/debian-security",
      { "", "-updates" },
      "main",
      "usr/share/keyrings/debian-archive-keyring.gpg" },
#ifdef __x86_64__
    { "ubuntu",
      "http://archive.ubuntu.com/ubuntu",
      "http://security.ubuntu.com/ubuntu",
#else
    { "ubuntu",
      "http://ports.ubuntu.com/ubuntu-ports",
      "http://ports.ubuntu.com/ubuntu-ports",
#endif
      { "", "-updates", "-backports" },
      "main restricted universe multiverse",
      "usr/share/keyrings/ubuntu-archive-keyring.gpg" },
};

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

struct str host_mirrors_release(struct str os_release, const char *name)
{
    struct str line, key, value;

    while (os_release.n) {
        str_cut(os_release, '\n', &line, &os_release);
        if (!str_cut(line, '=', &key, &value) || !str_is(key, name))
            continue;
        if (value.n >= 2 && (value.p[0] == '"' || value.p[0] == '\'') &&
            value.p[value.n - 1] == value.p[0])
            value.p++, value.n -= 2;
        return value;
    }
    return (struct str){ 0 };
}

static const struct distribution *distribution(struct str id)
{
    for (size_t i = 0; i < ARRAY_LEN(distributions); i++)
        if (str_is(id, distributions[i].id))
            return &distributions[i];
    return NULL;
}

const char *host_mirrors_keyring(struct str id)
{
    const struct distribution *d = distribution(id);

    return d ? d->keyring : NULL;
}

static bool plain_word(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < 'a' || s.p[i] > 'z')
            return false;
    return s.n > 0 && s.n < 64;
}

bool host_mirrors_default(struct str os_release, bool keyring, struct buf *out)
{
    const struct distribution *d = distribution(host_mirrors_release(os_release, "ID"));
    struct str codename = host_mirrors_release(os_release, "VERSION_CODENAME");

    if (!d || !plain_word(codename))
        return false;
    for (int security = 0; security < 2; security++) {
        buf_printf(out, "Types: deb\nURIs: %s\nSuites:", security ? d->security : d->uri);
        if (security)
            buf_printf(out, " %.*s-security", STR_ARG(codename));
        for (size_t i = 0; !security && i < ARRAY_LEN(d->suites) && d->suites[i]; i++)
            buf_printf(out, " %.*s%s", STR_ARG(codename), d->suites[i]);
        buf_printf(out, "\nComponents: %s\n", d->components);
        if (keyring)
            buf_printf(out, "Signed-By: /%s\n", d->keyring);
        buf_puts(out, security ? "" : "\n");
    }
    return true;
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
    AUTO(buf_free) struct buf release = { 0 };
    AUTO(buf_free) struct buf out = { 0 };
    const char *keyring;
    struct stat st;

    if (take_list(b, "etc/apk/repositories", err)) /* Alpine has no other default */
        return -1;
    if (b->o->mirrors == HOST_MIRRORS_HOST)
        return take_machines(b, err);
    if (!b->dpkg || host_tree_read(b, "usr/lib/os-release", TEXT_MAX, &release, &st))
        return 0;
    keyring = host_mirrors_keyring(host_mirrors_release(buf_str(&release), "ID"));
    if (!host_mirrors_default(buf_str(&release), keyring && host_tree_has(b, keyring), &out))
        return 0;
    return put(b, "etc/apt/sources.list.d/cove.sources", &out, err);
}
