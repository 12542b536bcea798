/* host_etc.c - what of the machine's /etc may come into base, by four rules:
 *
 *   pristine  a configuration file whose MD5 is still the one that its package brought. It equals
 *             what everybody can download, so it cannot hold anything of this machine, whatever
 *             its mode. Needs no list of good names, and each program finds its own defaults.
 *   links     that lead into /usr (alternatives above all), or to a pristine file of the same name
 *             (conf.d to conf.avail). The link, never what it leads to.
 *   listed    made by tools, no secret in any of them by nature, and readable to everybody
 *   extra     what the operator names
 *
 * Everything else stays outside: a changed file, a file of nobody, a credential, a key. */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <nettle/md5.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/dpkg.h"
#include "jail/host_build.h"

enum { STATUS_MAX = 64 << 20, CONFFILE_MAX = 8 << 20, CONFFILES_MAX = 65536 };

/* By the first name below /etc: of no use inside, or misleading there. */
static const char *const left_out[] = {
    "cron*",      "init.d",   "rc?.d",         "systemd",    "kernel",
    "modprobe.d", "modules*", "udev",          "apparmor*",  "ufw",
    "sysctl*",    "selinux",  "initramfs*",    "grub*",      "logcheck",
    "dhcp",       "network*", "cni",           "containerd", "containers",
    "docker",     "qemu*",    "update-motd.d", "sensors*",   "NetworkManager",
};

/* Places of /etc and /var that a link in /etc may lead to, besides /usr. */
static const char *const led_to[] = {
    "etc/alternatives",
    "var/lib/sgml-base",
    "var/lib/xml-core",
    "var/lib/ghostscript",
};

enum how {
    ONE,   /* a file */
    FILES, /* the files of a directory */
    TREE,  /* all files below it */
    LINK,  /* a link, wherever in /etc it leads */
};
enum { CA = 1, NO_DPKG = 2 };

static const struct listed {
    const char *path;
    enum how how;
    unsigned when; /* CA: unless the options say none; NO_DPKG: where "pristine" cannot be told */
} listed[] = {
    { "etc/ld.so.cache", ONE },
    { "etc/timezone", ONE },
    { "etc/locale.gen", ONE },
    { "etc/default/locale", ONE },
    { "etc/inputrc", ONE },
    { "etc/papersize", ONE },
    { "etc/dpkg/origins/default", LINK },
    { "etc/xml", FILES },
    { "etc/python3", FILES },
    { "etc/apt/trusted.gpg", ONE }, /* public keys, these three */
    { "etc/apt/trusted.gpg.d", FILES },
    { "etc/apt/keyrings", FILES },
    { "etc/ca-certificates.conf", ONE, CA },
    { "etc/ssl/certs/ca-certificates.crt", ONE, CA },
    { "etc/ssl/certs/java/cacerts", ONE, CA },
    { "etc/ssl/cert.pem", LINK, CA },
    { "etc/ca-certificates/extracted", TREE, CA }, /* Arch */
    { "etc/pki/ca-trust/extracted", TREE, CA },    /* Fedora, from here */
    { "etc/pki/tls/certs", LINK, CA },
    { "etc/pki/tls/cert.pem", LINK, CA },
    { "etc/pki/tls/openssl.cnf", ONE },
    { "etc/pki/rpm-gpg", FILES },
    { "etc/crypto-policies", FILES },
    { "etc/crypto-policies/state", FILES },
    { "etc/apk/keys", FILES }, /* Alpine, from here */
    { "etc/apk/arch", ONE },
    { "etc/apk/world", ONE },
    { "etc/alpine-release", ONE },
    { "etc/services", ONE, NO_DPKG },
    { "etc/protocols", ONE, NO_DPKG },
    { "etc/rpc", ONE, NO_DPKG },
    { "etc/ethertypes", ONE, NO_DPKG },
    { "etc/host.conf", ONE, NO_DPKG },
    { "etc/login.defs", ONE, NO_DPKG },
    { "etc/magic", ONE, NO_DPKG },
    { "etc/mime.types", ONE, NO_DPKG },
};

static bool is_left_out(const char *path) /* "etc/..." */
{
    size_t n = strcspn(path + 4, "/");
    char top[NAME_MAX + 1];

    if (n > NAME_MAX)
        return true;
    memcpy(top, path + 4, n);
    top[n] = 0;
    for (size_t i = 0; i < ARRAY_LEN(left_out); i++)
        if (!fnmatch(left_out[i], top, 0))
            return true;
    return false;
}

static bool same_md5(struct str bytes, const unsigned char want[16])
{
    struct md5_ctx ctx;
    unsigned char got[MD5_DIGEST_SIZE];

    md5_init(&ctx);
    md5_update(&ctx, bytes.n, (const uint8_t *)bytes.p);
    md5_digest(&ctx, sizeof(got), got);
    return !memcmp(got, want, sizeof(got));
}

/* The bytes that are compared are the bytes that are written: no race with an editor. */
static int take_pristine(struct host_build *b, const struct dpkg_conffile *c, struct buf *bytes,
                         struct err *err)
{
    AUTO(freep) char *path = xstrndup(c->path.p + 1, c->path.n - 1);
    struct host_node n = { .path = path };
    struct stat st;

    bytes->len = 0;
    if (!str_starts(c->path, "/etc/") || is_left_out(path))
        return 0;
    if (host_tree_read(b, path, CONFFILE_MAX, bytes, &st)) {
        if (host_tree_absent(errno) || errno == EFBIG || errno == EINVAL)
            return 0;
        return err_sys(err, "read /%.150s", path);
    }
    if (!same_md5(buf_str(bytes), c->md5))
        return 0;
    n.bytes = buf_str(bytes);
    n.mode = st.st_mode & 07777;
    n.uid = host_accounts_system(&b->accounts, st.st_uid) ? st.st_uid : 0;
    n.gid = host_accounts_system(&b->accounts, st.st_gid) ? st.st_gid : 0;
    return host_tree_put(b, &b->base, &n, err);
}

static int take_all_pristine(struct host_build *b, struct err *err)
{
    AUTO(buf_free) struct buf status = { 0 };
    AUTO(buf_free) struct buf bytes = { 0 };
    struct dpkg_conffiles it = { 0 };
    struct dpkg_conffile c;
    struct stat st;

    if (host_tree_read(b, "var/lib/dpkg/status", STATUS_MAX, &status, &st)) {
        if (host_tree_absent(errno))
            return 0;
        return err_sys(err, "read /var/lib/dpkg/status (at most %d MiB)", STATUS_MAX >> 20);
    }
    it.rest = buf_str(&status);
    for (size_t n = 0; n < CONFFILES_MAX && dpkg_next_conffile(&it, &c); n++)
        if (take_pristine(b, &c, &bytes, err))
            return -1;
    return 0;
}

struct links {
    struct host_build *b;
    struct buf raw, target;
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static bool link_wanted(const struct links *l, const struct host_entry *e)
{
    const char *to = l->target.data;
    struct stat st;

    if (host_in_usr(to))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(led_to); i++)
        if (host_below(to, led_to[i]))
            return true;
    return host_below(to, "etc") && !strcmp(base_name(to), e->name) &&
           !fstatat(l->b->base.fd, to, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode);
}

static int visit_link(void *arg, const struct host_entry *e, struct err *err)
{
    struct links *l = arg;

    if (is_left_out(e->path) || !strcmp(e->path, "etc/ssl/certs")) /* see take_certificate() */
        return 0;
    if (S_ISDIR(e->st.st_mode)) /* what others cannot list is not for the sandbox */
        return (e->st.st_mode & 05) == 05;
    if (!host_walk_readlink(e, &l->raw) ||
        !host_walk_resolve(e->path, buf_str(&l->raw), &l->target) || !link_wanted(l, e))
        return 0;
    return host_tree_symlink(l->b, e->path, l->raw.data, err);
}

/* Only links whose chain ends among the installed authorities. Others, and files, may name the
 * machine: ssl-cert-snakeoil.pem has its host name as subject. */
static int visit_certificate(void *arg, const struct host_entry *e, struct err *err)
{
    struct links *l = arg;
    char next[PATH_MAX];
    ssize_t n;

    if (!host_walk_readlink(e, &l->raw) ||
        !host_walk_resolve(e->path, buf_str(&l->raw), &l->target))
        return 0;
    for (int hops = 0; hops < 4 && host_below(l->target.data, "etc/ssl/certs"); hops++) {
        AUTO(freep) char *at = xstrdup(l->target.data);

        n = readlinkat(l->b->source, at, next, sizeof(next));
        if (n <= 0 || !host_walk_resolve(at, (struct str){ next, (size_t)n }, &l->target))
            return 0;
    }
    if (!host_below(l->target.data, "usr/share/ca-certificates") &&
        (l->b->o->hide_local || !host_below(l->target.data, "usr/local/share/ca-certificates")))
        return 0;
    return host_tree_symlink(l->b, e->path, l->raw.data, err);
}

static int take_links(struct host_build *b, struct err *err)
{
    struct links l = { .b = b };
    int r = host_walk(b->source, "etc", visit_link, &l, err);

    if (!r && !b->o->no_ca)
        r = host_walk(b->source, "etc/ssl/certs", visit_certificate, &l, err);
    buf_free(&l.raw);
    buf_free(&l.target);
    return r;
}

static int visit_file(void *arg, const struct host_entry *e, struct err *err)
{
    struct host_build *b = arg;

    if (!S_ISREG(e->st.st_mode))
        return 0;
    return host_tree_copy(b, e->path, HOST_COPY_PUBLIC, err) < 0 ? -1 : 0;
}

static int take_link(struct host_build *b, const char *path, struct err *err)
{
    AUTO(buf_free) struct buf to = { 0 };
    char target[PATH_MAX];
    ssize_t n = readlinkat(b->source, path, target, sizeof(target) - 1);

    if (n <= 0)
        return 0;
    target[n] = 0;
    if (!host_walk_resolve(path, str_of(target), &to) || !host_below(to.data, "etc"))
        return 0;
    return host_tree_symlink(b, path, target, err);
}

static int take_listed(struct host_build *b, const struct listed *l, struct err *err)
{
    if ((l->when & CA && b->o->no_ca) || (l->when & NO_DPKG && b->dpkg))
        return 0;
    if (l->how == LINK)
        return take_link(b, l->path, err);
    if (!host_tree_public(b, l->path))
        return 0;
    if (l->how == ONE)
        return host_tree_copy(b, l->path, HOST_COPY_PUBLIC, err) < 0 ? -1 : 0;
    if (l->how == FILES)
        return host_walk(b->source, l->path, visit_file, b, err);
    return host_tree_copy_all(b, l->path, HOST_COPY_PUBLIC, err);
}

/* Named by the operator: any mode, and an error when it is not there. */
static int take_extra(struct host_build *b, const char *name, struct err *err)
{
    AUTO(freep) char *path = NULL;
    struct buf full = { 0 };
    struct stat st;
    int r;

    buf_puts(&full, str_starts(str_of(name), "/etc/") ? "" : "/etc/");
    buf_puts(&full, name);
    path = full.data;
    if (!dpkg_clean_path(buf_str(&full)))
        return err_set(err, ERR_INVALID, "etc_extra: '%.100s' is not a plain name below /etc",
                       name);
    if (fstatat(b->source, path + 1, &st, AT_SYMLINK_NOFOLLOW))
        return err_sys(err, "etc_extra names %.150s", path);
    if (S_ISDIR(st.st_mode))
        return host_tree_copy_all(b, path + 1, 0, err);
    r = host_tree_copy(b, path + 1, 0, err);
    if (!r)
        return err_set(err, ERR_INVALID, "etc_extra: %.150s is no file we may read", path);
    return r < 0 ? -1 : 0;
}

int host_etc_build(struct host_build *b, struct err *err)
{
    int r = take_all_pristine(b, err);

    if (!r)
        r = take_links(b, err);
    for (size_t i = 0; !r && i < ARRAY_LEN(listed); i++)
        r = take_listed(b, &listed[i], err);
    for (const char *const *name = b->o->etc_extra; !r && name && *name; name++)
        r = take_extra(b, *name, err);
    return r;
}
