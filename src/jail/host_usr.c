/* host_usr.c - what sandboxes see of the machine's /usr.
 *
 * An image (erofs.h) says which files there are, and whose they are: root's are sandbox root's.
 * What is in them is read in the live /usr, where sandbox root is nobody: a file that is not for
 * everybody is closed to it, whenever it became so; it cannot watch the page cache of one; and a
 * file that the image does not name is not there. Left out of the image are:
 *   1. files that others may neither read nor run, and directories that they may not enter. Of one
 *      that they may run only, a program's contents are in the image: mode 4711 hides nothing, and
 *      without them nobody inside could run it;
 *   2. places where configuration, credentials and keys live, whatever their mode;
 *   3. names of secrets below /usr/local, and in /usr itself. Not in lib and share: packages ship
 *      keys for their tests there.
 * What everybody may read elsewhere stays visible, as it is to every user of the machine: a token
 * in a script in /usr/local/bin, for one. host_options.hide_local takes all of /usr/local away.
 *
 * Where the kernel cannot do that (host_image_works) sandboxes have the live /usr idmapped, which
 * makes sandbox root the owner of root's files, below a layer of whiteouts for the same three. What
 * becomes closed after the scan is open to sandbox root there until the next one. */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "jail/erofs.h"
#include "jail/host_build.h"
#include "jail/ids.h"
#include "jail/weaken.h"

enum { VAR_LINKS_MAX = 256 << 10, CLOSED_MAX = 64 << 20, NOBODY = 65534 };

/* Packages ask it before they start a daemon while they are being installed. */
static const char policy_path[] = "sbin/policy-rc.d", policy[] = "#!/bin/sh\nexit 101\n";

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
    struct erofs *image; /* NULL: whiteouts instead, unless ... */
    bool looking;        /* ... only the sum is wanted */
    struct sha256_ctx sum;
    uint32_t dirs[HOST_WALK_DEPTH + 1]; /* in the image: the one that is walked, and those above */
    size_t copied;                      /* bytes in the image */
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
    if (S_ISDIR(mode)) /* inside it would be root's own: it could list what others may not */
        return (mode & (S_IROTH | S_IXOTH)) != (S_IROTH | S_IXOTH);
    return !(mode & (S_IROTH | S_IXOTH)) || !S_ISREG(mode);
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

/* ---- the image ---- */

/* What a program may do beyond its owner. */
static struct str capability_of(const struct host_entry *e, char *out, size_t room)
{
    char path[32 + NAME_MAX];
    ssize_t n;

    if (!S_ISREG(e->st.st_mode) || !(e->st.st_mode & 0111))
        return (struct str){ 0 };
    snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", e->dir, e->name);
    n = lgetxattr(path, "security.capability", out, room);
    return (struct str){ out, n > 0 ? (size_t)n : 0 };
}

/* Contents that only the image can show. 1: it is not for us; a script that nobody else can read,
 * nobody else can run. */
static int read_closed(struct scan *s, const struct host_entry *e)
{
    struct host_build in = { .source = s->b->usrfix.model };
    struct stat st;

    s->raw.len = 0;
    if (host_tree_read(&in, e->path, CLOSED_MAX - s->copied, &s->raw, &st) ||
        !(st.st_mode & S_IXOTH) || !str_starts(buf_str(&s->raw), "\177ELF"))
        return 1;
    s->copied += s->raw.len;
    return 0;
}

static unsigned own_id(unsigned id) { return id < IDS_RANGE ? id : NOBODY; }

/* 1: go into it. */
static int show(struct scan *s, const struct host_entry *e)
{
    struct stat st = e->st;
    char capability[64];
    struct erofs_node n = { .name = e->name, .st = &st };
    uint32_t number;

    if (S_ISLNK(st.st_mode)) {
        if (!host_walk_readlink(e, &s->raw) || fstatat(e->dir, e->name, &st, AT_SYMLINK_NOFOLLOW) ||
            !S_ISLNK(st.st_mode))
            return 0;
        n.bytes = buf_str(&s->raw);
    } else if (S_ISREG(st.st_mode)) {
        n.elsewhere = st.st_mode & S_IROTH;
        if (!n.elsewhere && read_closed(s, e))
            return 0;
        if (!n.elsewhere)
            n.bytes = buf_str(&s->raw);
        n.capability = capability_of(e, capability, sizeof(capability));
    }
    st.st_uid = own_id(st.st_uid);
    st.st_gid = own_id(st.st_gid);
    number = erofs_add(s->image, s->dirs[e->depth - 1], &n);
    s->dirs[e->depth] = number;
    return S_ISDIR(st.st_mode);
}

static void show_policy(struct scan *s)
{
    const struct stat st = { .st_mode = S_IFREG | 0755 };

    erofs_add(s->image, s->dirs[1],
              &(struct erofs_node){
                  .name = strchr(policy_path, '/') + 1, .st = &st, .bytes = str_of(policy) });
}

/* Directories change with what is hidden in them. */
static void hash_entry(struct sha256_ctx *h, const struct host_entry *e)
{
    const struct stat *st = &e->st;
    bool file = S_ISREG(st->st_mode);
    const uint64_t v[] = { st->st_mode,
                           st->st_uid,
                           st->st_gid,
                           file ? (uint64_t)st->st_size : 0,
                           file ? (uint64_t)st->st_mtim.tv_sec : 0,
                           file ? (uint64_t)st->st_mtim.tv_nsec : 0 };

    sha256_update(h, strlen(e->path) + 1, (const uint8_t *)e->path);
    sha256_update(h, sizeof(v), (const uint8_t *)v);
}

static int visit(void *arg, const struct host_entry *e, struct err *err)
{
    struct scan *s = arg;
    bool layer = !s->image && !s->looking;
    bool ours = s->b->dpkg && !layer && !strcmp(e->path, policy_path);
    int into = S_ISDIR(e->st.st_mode);

    if (hidden_mode(e->st.st_mode) || hidden_place(s, e) || hidden_name(e) || ours)
        return layer ? whiteout(s->b, e, err) : 0;
    hash_entry(&s->sum, e);
    if (S_ISLNK(e->st.st_mode) && !s->looking)
        note_var_link(s, e);
    if (s->image)
        into = show(s, e);
    if (into && s->image && s->b->dpkg && !strcmp(e->path, "sbin"))
        show_policy(s);
    return into;
}

static int walk_usr(struct scan *s, struct err *err)
{
    unsigned char digest[SHA256_DIGEST_SIZE];
    int r;

    s->b->var_links.len = 0;
    sha256_init(&s->sum);
    r = host_walk(s->b->usrfix.model, "", visit, s, err);
    sha256_digest(&s->sum, sizeof(digest), digest);
    memcpy(&s->b->sum, digest, sizeof(s->b->sum));
    buf_free(&s->raw);
    buf_free(&s->path);
    buf_free(&s->target);
    return r;
}

static int write_image(struct scan *s, struct err *err)
{
    AUTO(closep)
    int fd = openat(s->b->dir, HOST_IMAGE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    return fd < 0 ? err_sys(err, HOST_IMAGE) : erofs_write(s->image, fd, err);
}

/* 1: this kernel cannot use one. */
static int build_image(struct scan *s, struct err *err)
{
    struct err why = { 0 };
    struct stat st;
    int r;

    if (fstat(s->b->usrfix.model, &st))
        return err_sys(err, "/usr");
    s->image = erofs_create(&st);
    r = walk_usr(s, err) || write_image(s, err) ? -1 : 0;
    erofs_destroy(TAKE(s->image, NULL));
    if (r)
        return -1;
    r = host_image_works(s->b->dir, s->b->usrfix.model, &why);
    if (r < 0) { /* that is no reason to show more */
        *err = why;
        return err_in(err, "the image of /usr");
    }
    s->b->image = r;
    if (r)
        return 0;
    log_warn("root in a sandbox can read files of /usr that become root's alone: this needs erofs "
             "and Linux 6.16",
             KV("error", why.msg));
    unlinkat(s->b->dir, HOST_IMAGE, 0);
    return 1;
}

/* ---- the layer of whiteouts ---- */

static int build_layer(struct scan *s, struct err *err)
{
    const struct host_node n = { .path = policy_path, .mode = 0755, .bytes = str_of(policy) };
    struct host_build *b = s->b;
    struct stat st;

    if (host_tree_layer(b->dir, "usrfix", b->usrfix.model, &b->usrfix))
        return err_sys(err, "make a layer");
    if (walk_usr(s, err))
        return -1;
    if (!b->dpkg || fstatat(b->usrfix.model, "sbin", &st, AT_SYMLINK_NOFOLLOW) ||
        !S_ISDIR(st.st_mode)) /* a directory above a link would hide all that it leads to */
        return 0;
    return host_tree_put(b, &b->usrfix, &n, err);
}

static bool is_suse(const struct host_build *b)
{
    AUTO(buf_free) struct buf text = { 0 };
    struct stat st;

    return !host_tree_read(b, "usr/lib/os-release", 64 << 10, &text, &st) &&
           strstr(buf_cstr(&text), "suse");
}

int host_usr_look(struct host_build *b, struct err *err)
{
    struct scan s = { .b = b, .keep_etc = is_suse(b), .looking = true };

    return walk_usr(&s, err);
}

/* An ordinary user's sandboxes use neither: they have /usr bound read-only. */
int host_usr_build(struct host_build *b, struct err *err)
{
    struct scan s = { .b = b, .keep_etc = is_suse(b) };
    int r = geteuid() || weakened("usr-owner") ? 1 : build_image(&s, err);

    return r > 0 ? build_layer(&s, err) : r;
}
