/* host_files.c - the files of base that are generated: never read from the machine, because there
 * they say who it is, where it is and whom it trusts.
 *
 * No row may be a path that a package owns as its configuration file: the package's next upgrade
 * would stop at a question, and dpkg be broken from there on (/etc/sudoers, pam.d/sudo: tried).
 * Drop-in directories exist for this. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "jail/host_build.h"

enum when { ALWAYS, WITH_DPKG, WITH_CHROMIUM };

static const struct row {
    const char *path;
    mode_t mode;
    enum when when;
    const char *group; /* NULL: root; the owner is root */
    const char *text;
} rows[] = {
    /* an own name, hosts and machine-id per sandbox are put above these */
    { "etc/hostname", 0644, ALWAYS, NULL, "cove\n" },
    { "etc/hosts", 0644, ALWAYS, NULL,
      "127.0.0.1 localhost\n"
      "127.0.1.1 cove\n" /* sudo complains at each call when its own name is not here */
      "::1 localhost ip6-localhost ip6-loopback\n" },
    { "etc/environment", 0644, ALWAYS, NULL, "" },
    { "etc/fstab", 0644, ALWAYS, NULL, "" },
    { "etc/motd", 0644, ALWAYS, NULL, "" },
    { "etc/subuid", 0644, ALWAYS, NULL, "" },
    { "etc/subgid", 0644, ALWAYS, NULL, "" },
    /* the machine's may ask sss, ldap, winbind, systemd */
    { "etc/nsswitch.conf", 0644, ALWAYS, NULL,
      "passwd: files\ngroup: files\nshadow: files\ngshadow: files\n"
      "hosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n"
      "ethers: files\nrpc: files\nnetgroup: files\n" },
    /* sites put proxies and tokens into theirs */
    { "etc/profile", 0644, ALWAYS, NULL,
      "# for login shells\n"
      "if [ \"$(id -u)\" = 0 ]; then\n"
      "    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
      "else\n"
      "    PATH=\"$HOME/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games\"\n"
      "fi\n"
      "[ ! -d /usr/local/go/bin ] || PATH=\"$PATH:/usr/local/go/bin\"\n"
      "export PATH\n"
      "if [ -n \"${BASH-}\" ] && [ -n \"${PS1-}\" ] && [ -r /etc/bash.bashrc ]; then\n"
      "    . /etc/bash.bashrc\n"
      "fi\n"
      "for part in /etc/profile.d/*.sh; do\n"
      "    [ ! -r \"$part\" ] || . \"$part\"\n"
      "done\n"
      "unset part\n" },
    { "etc/sudoers.d/cove", 0440, ALWAYS, NULL, "user ALL=(ALL:ALL) NOPASSWD: ALL\n" },
    { "etc/apt/apt.conf.d/90cove", 0644, WITH_DPKG, NULL,
      "Dpkg::Options { \"--force-confdef\"; \"--force-confold\"; };\n" },
    /* plain pam_unix: the machine's may ask a directory or a smart card */
    { "etc/pam.d/common-account", 0644, WITH_DPKG, NULL, "account required pam_unix.so\n" },
    { "etc/pam.d/common-auth", 0644, WITH_DPKG, NULL, "auth required pam_unix.so nullok\n" },
    { "etc/pam.d/common-password", 0644, WITH_DPKG, NULL,
      "password required pam_unix.so obscure yescrypt\n" },
    { "etc/pam.d/common-session", 0644, WITH_DPKG, NULL, "session required pam_unix.so\n" },
    { "etc/pam.d/common-session-noninteractive", 0644, WITH_DPKG, NULL,
      "session required pam_unix.so\n" },
    /* its own sandbox needs user namespaces, which are closed inside */
    { "etc/chromium.d/cove", 0644, WITH_CHROMIUM, NULL,
      "export CHROMIUM_FLAGS=\"$CHROMIUM_FLAGS --no-sandbox\"\n" },
    /* it trusts only authorities that it brings along, but the machine's may be others */
    { "etc/uv/uv.toml", 0644, ALWAYS, NULL, "native-tls = true\n" },
    { "var/log/wtmp", 0664, ALWAYS, "utmp", "" },
    { "var/log/lastlog", 0664, ALWAYS, "utmp", "" },
    { "var/log/btmp", 0660, ALWAYS, "utmp", "" },
};

static int put(struct host_build *b, const char *path, mode_t mode, struct str text,
               struct err *err)
{
    struct host_node n = { .path = path, .mode = mode, .bytes = text };

    return host_tree_put(b, &b->base, &n, err);
}

static int put_row(struct host_build *b, const struct row *r, struct err *err)
{
    struct host_node n = { .path = r->path,
                           .mode = r->mode,
                           .gid = host_accounts_gid(&b->accounts, r->group),
                           .bytes = str_of(r->text) };

    if ((r->when == WITH_DPKG && !b->dpkg) ||
        (r->when == WITH_CHROMIUM && !host_tree_has(b, "usr/bin/chromium")))
        return 0;
    return host_tree_put(b, &b->base, &n, err);
}

static int put_accounts(struct host_build *b, struct err *err)
{
    static const struct {
        const char *path;
        void (*write)(const struct host_accounts *a, struct buf *out);
        bool secret;
    } files[] = {
        { "etc/passwd", host_accounts_passwd, false },
        { "etc/group", host_accounts_group, false },
        { "etc/shadow", host_accounts_shadow, true },
        { "etc/gshadow", host_accounts_gshadow, true },
    };
    gid_t shadow = host_accounts_gid(&b->accounts, "shadow");

    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        AUTO(buf_free) struct buf text = { 0 };
        struct host_node n = { .path = files[i].path, .mode = 0644 };

        files[i].write(&b->accounts, &text);
        n.bytes = buf_str(&text);
        if (files[i].secret) {
            n.gid = shadow;
            n.mode = shadow ? 0640 : 0600;
        }
        if (host_tree_put(b, &b->base, &n, err))
            return -1;
    }
    return 0;
}

static int put_shells(struct host_build *b, struct err *err)
{
    static const char *const shells[] = { "sh", "bash", "dash", "zsh", "fish", "ash", "rbash" };
    AUTO(buf_free) struct buf text = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(shells); i++) {
        char path[32];

        snprintf(path, sizeof(path), "bin/%s", shells[i]);
        if (host_tree_has(b, path)) /* /bin may be a link: any path to it is good */
            buf_printf(&text, "/%s\n", path);
        snprintf(path, sizeof(path), "usr/bin/%s", shells[i]);
        if (host_tree_has(b, path))
            buf_printf(&text, "/%s\n", path);
    }
    return put(b, "etc/shells", 0644, buf_str(&text), err);
}

static int put_resolver(struct host_build *b, struct err *err)
{
    AUTO(buf_free) struct buf text = { 0 };

    if (b->o->resolver)
        buf_printf(&text, "nameserver %s\n", b->o->resolver);
    return put(b, "etc/resolv.conf", 0644, buf_str(&text), err);
}

/* The machine's time zone, unless it is a file of unknown contents; then UTC. */
static int put_links(struct host_build *b, struct err *err)
{
    AUTO(buf_free) struct buf to = { 0 };
    char zone[PATH_MAX];
    ssize_t n = readlinkat(b->source, "etc/localtime", zone, sizeof(zone) - 1);

    if (host_tree_symlink(b, "etc/mtab", "../proc/self/mounts", err) ||
        host_tree_symlink(b, "etc/os-release", "../usr/lib/os-release", err))
        return -1;
    if (n > 0 && host_walk_resolve("etc/localtime", (struct str){ zone, (size_t)n }, &to) &&
        host_below(to.data, "usr/share/zoneinfo")) {
        zone[n] = 0;
        return host_tree_symlink(b, "etc/localtime", zone, err);
    }
    if (host_tree_has(b, "etc/timezone") && put(b, "etc/timezone", 0644, STR("Etc/UTC\n"), err))
        return -1;
    return host_tree_symlink(b, "etc/localtime", "/usr/share/zoneinfo/Etc/UTC", err);
}

/* No sysfs inside; these three are what lscpu needs, and what programs count processors by. */
static int put_cpus(struct host_build *b, struct err *err)
{
    static const char *const names[] = { "online", "possible", "present" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        AUTO(buf_free) struct buf text = { 0 };
        char path[64];
        struct stat st;

        snprintf(path, sizeof(path), "sys/devices/system/cpu/%s", names[i]);
        if (host_tree_read(b, path, 1024, &text, &st) || !text.len ||
            strspn(text.data, "0123456789,-\n") != text.len) {
            text.len = 0;
            buf_puts(&text, "0\n");
        }
        if (put(b, path, 0444, buf_str(&text), err))
            return -1;
    }
    return 0;
}

/* The home directory begins as the untouched skeleton, and as the user's own. */
static int visit_skel(void *arg, const struct host_entry *e, struct err *err)
{
    struct host_build *b = arg;
    AUTO(buf_free) struct buf text = { 0 };
    AUTO(buf_free) struct buf path = { 0 };
    struct host_build in = { .source = b->base.fd };
    struct host_node n = { .mode = e->st.st_mode & 07777,
                           .uid = HOST_USER_ID,
                           .gid = HOST_USER_ID };

    buf_printf(&path, "home/user%s", e->path + strlen("etc/skel"));
    n.path = path.data;
    if (S_ISDIR(e->st.st_mode))
        return host_tree_mkdir(b, &n, err) ? -1 : 1;
    if (!S_ISREG(e->st.st_mode))
        return 0;
    if (host_tree_read(&in, e->path, 1 << 20, &text, &(struct stat){ 0 }))
        return err_sys(err, "read %.150s", e->path);
    n.bytes = buf_str(&text);
    return host_tree_put(b, &b->base, &n, err);
}

int host_files_build(struct host_build *b, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (put_row(b, &rows[i], err))
            return -1;
    if (put_accounts(b, err) || put_shells(b, err) || put_resolver(b, err) || put_links(b, err) ||
        put_cpus(b, err))
        return -1;
    return host_walk(b->base.fd, "etc/skel", visit_skel, b, err);
}
