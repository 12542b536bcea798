/* host_usr.c - the layer above the machine's /usr: whiteouts, and the files that packages expect.
 *
 * Why: a sandbox has /usr idmapped, so what belongs to root there belongs to sandbox root, and a
 * file with mode 0600 is open to it. Hidden are:
 *   1. files and directories that others may neither read nor run. Not "may not read": a program
 *      with mode 4111 or 0711 has public contents;
 *   2. places where configuration, credentials and keys live, whatever their mode;
 *   3. names of secrets below /usr/local, and in /usr itself. Not in lib and share: packages ship
 *      keys for their tests there.
 * What everybody may read elsewhere stays visible, as it is to every user of the machine: a token
 * in a script in /usr/local/bin, for one. host_options.hide_local takes all of /usr/local away. */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/host_build.h"

enum { VAR_LINKS_MAX = 256 << 10 };

static const char *const places[] = {
    /* at most three components: see hidden_place() */
    "local/etc", "etc", "lib/credstore*", "src", "share/polkit-1/rules.d", "lib/ssl/private",
};

static const char *const secrets[] = {
    "*.key",
    "id_rsa*",
    "id_ed25519*",
    "id_ecdsa*",
    "id_dsa*",
    ".env",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    "*credentials*.json",
    ".git-credentials",
    ".docker",
    ".ssh",
    ".aws",
    ".kube",
    ".gnupg",
};

struct scan {
    struct host_build *b;
    bool keep_etc; /* openSUSE: packages' defaults live in /usr/etc */
    struct buf raw, path, target;
};

static bool hidden_place(const struct scan *s, const struct host_entry *e)
{
    if (!strcmp(e->name, "lost+found"))
        return true;
    if (e->depth == 1 && s->b->o->hide_local && !strcmp(e->name, "local"))
        return true;
    if (e->depth > 3 || (s->keep_etc && !strcmp(e->path, "etc")))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (!fnmatch(places[i], e->path, FNM_PATHNAME))
            return true;
    return false;
}

static bool hidden_name(const struct host_entry *e)
{
    bool local = host_below(e->path, "local") && !host_below(e->path, "local/lib") &&
                 !host_below(e->path, "local/share");

    if (!local && e->depth > 1)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(secrets); i++)
        if (!fnmatch(secrets[i], e->name, 0))
            return true;
    return false;
}

static bool hidden_mode(mode_t mode)
{
    if (S_ISLNK(mode))
        return false;
    return !(mode & (S_IROTH | S_IXOTH)) || (!S_ISREG(mode) && !S_ISDIR(mode));
}

static int whiteout(struct host_build *b, const struct host_entry *e, struct err *err)
{
    AUTO(freep) char *dir = xstrndup(e->path, strlen(e->path) - strlen(e->name));
    size_t n = strlen(dir);
    AUTO(closep) int at = -1;

    if (!b->whiteouts)
        return 0;
    if (n)
        dir[n - 1] = 0;
    at = host_tree_dir(b, &b->usrfix, dir);
    if (at >= 0 && !mknodat(at, e->name, S_IFCHR, makedev(0, 0)))
        return 0;
    if (at >= 0 && errno == EPERM) { /* see host.h for what that means */
        b->whiteouts = false;
        return 0;
    }
    return err_sys(err, "hide /usr/%.150s", e->path);
}

/* Files of /usr that live in /var/lib (CMaps of ghostscript, catalogues of SGML) have to come
 * along. Links of an administrator in /usr/local lead to a service's data: not those. */
static void note_var_link(struct scan *s, const struct host_entry *e)
{
    struct buf *out = &s->b->var_links;

    if (!host_walk_readlink(e, &s->raw) || !strstr(s->raw.data, "var/lib/") ||
        host_below(e->path, "local"))
        return;
    s->path.len = 0;
    buf_printf(&s->path, "usr/%s", e->path);
    if (host_walk_resolve(s->path.data, buf_str(&s->raw), &s->target) &&
        str_starts(buf_str(&s->target), "var/lib/") && out->len + s->target.len < VAR_LINKS_MAX)
        buf_add(out, s->target.data, s->target.len + 1);
}

static int visit(void *arg, const struct host_entry *e, struct err *err)
{
    struct scan *s = arg;

    if (hidden_mode(e->st.st_mode) || hidden_place(s, e) || hidden_name(e))
        return whiteout(s->b, e, err);
    if (S_ISLNK(e->st.st_mode))
        note_var_link(s, e);
    return S_ISDIR(e->st.st_mode);
}

static bool is_suse(const struct host_build *b)
{
    AUTO(buf_free) struct buf text = { 0 };
    struct stat st;

    return !host_tree_read(b, "usr/lib/os-release", 64 << 10, &text, &st) &&
           strstr(buf_cstr(&text), "suse");
}

int host_usr_build(struct host_build *b, struct err *err)
{
    /* Packages ask it before they start a daemon while they are being installed. */
    static const struct host_node policy = { .path = "sbin/policy-rc.d",
                                             .mode = 0755,
                                             .bytes = STR("#!/bin/sh\nexit 101\n") };
    struct scan s = { .b = b, .keep_etc = is_suse(b) };
    struct stat st;
    int r = host_walk(b->usrfix.model, "", visit, &s, err);

    buf_free(&s.raw);
    buf_free(&s.path);
    buf_free(&s.target);
    if (r || !b->dpkg || fstatat(b->usrfix.model, "sbin", &st, AT_SYMLINK_NOFOLLOW) ||
        !S_ISDIR(st.st_mode)) /* a directory above a link would hide all that it leads to */
        return r;
    return host_tree_put(b, &b->usrfix, &policy, err);
}
