/* serve_confine.c - how the part that strangers talk to gives up everything it does not need.
 *
 * With root: a mount namespace whose root is an empty tmpfs with a handful of read-only binds (name
 * resolution, certificates, libraries that are loaded on first use), its own state directory and
 * our place in the run directory, where the keeper's socket is; then another user, no capability
 * (none to be had either), no_new_privs, no core file. Without root: the last ones. The system call
 * filter comes after either. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/serve.h"

enum { SHOW_WRITE = 1, SHOW_CODE = 2 };

static const struct {
    const char *path;
    unsigned flags;
} shown[] = {
    /* where they exist */
    { "/etc/hosts", 0 },
    { "/etc/resolv.conf", 0 },
    { "/etc/nsswitch.conf", 0 },
    { "/etc/host.conf", 0 },
    { "/etc/gai.conf", 0 },
    { "/etc/services", 0 },
    { "/etc/localtime", 0 },
    { "/etc/ssl/certs", 0 },
    { "/etc/ssl/openssl.cnf", 0 },
    { "/etc/ld.so.cache", 0 },
    { "/usr/lib", SHOW_CODE },
    { "/usr/lib64", SHOW_CODE },
    { "/lib", SHOW_CODE },
    { "/lib64", SHOW_CODE },
    { "/usr/share/zoneinfo", 0 },
    { "/usr/share/ca-certificates", 0 },
    { "/usr/local/share/ca-certificates", 0 },
};

/* Makes the place for a bind of path below the new root: a directory, or an empty file. */
static int make_place(const char *root, const char *path, bool directory, char *out, size_t n,
                      struct err *err)
{
    int fd;

    if (snprintf(out, n, "%s%s", root, path) >= (int)n)
        return err_set(err, ERR_INVALID, "the path %s is too long", path);
    for (char *p = out + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = 0;
        if (mkdir(out, 0755) && errno != EEXIST)
            return err_sys(err, "make %s", out);
    }
    if (directory)
        return mkdir(out, 0755) && errno != EEXIST ? err_sys(err, "make %s", out) : 0;
    fd = open(out, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_sys(err, "make %s", out);
    close(fd);
    return 0;
}

static int show(const char *root, const char *path, unsigned flags, struct err *err)
{
    unsigned long how = MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV |
                        (flags & SHOW_WRITE ? 0 : MS_RDONLY) | (flags & SHOW_CODE ? 0 : MS_NOEXEC);
    struct stat st;
    char place[512];

    if (stat(path, &st))
        return errno == ENOENT && !(flags & SHOW_WRITE) ? 0 : err_sys(err, "look at %s", path);
    if (make_place(root, path, S_ISDIR(st.st_mode), place, sizeof(place), err))
        return -1;
    if (mount(path, place, NULL, MS_BIND, NULL) || mount(NULL, place, NULL, how, NULL))
        return err_sys(err, "show %s to the server", path);
    return 0;
}

/* The operator's own certificates, unless they lie below what is shown already. */
static int show_ca(const char *root, const struct serve *s, struct err *err)
{
    char place[512];

    if (!s->fetch_ca)
        return 0;
    if (snprintf(place, sizeof(place), "%s%s", root, s->fetch_ca) < (int)sizeof(place) &&
        !access(place, F_OK))
        return 0;
    return show(root, s->fetch_ca, 0, err);
}

static int small_root(const struct serve *s, struct err *err)
{
    static const char root[] = WALLS_ROOT;

    if (walls_root_begin(err))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(shown); i++)
        if (show(root, shown[i].path, shown[i].flags, err))
            return -1;
    /* a socket on a read-only mount can be connected to all the same */
    if (show_ca(root, s, err) || show(root, s->state_dir, SHOW_WRITE, err) ||
        show(root, s->old_keeper ? s->run_dir : s->place, 0, err))
        return -1;
    return walls_root_enter(err);
}

/* Descriptors are one per connection: as many as there may be, before that needs a privilege. */
static void raise_open_files(void)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l))
        return;
    l.rlim_cur = l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
}

/* Without the monitor there is nobody to start us again, and the next one needs our place. Set
 * last: a change of user clears it. */
static int die_with_monitor(const struct serve *s, struct err *err)
{
    if (prctl(PR_SET_PDEATHSIG, SIGTERM))
        return err_sys(err, "follow the monitor");
    return getppid() == s->monitor ? 0 : err_set(err, ERR_GONE, "the monitor has died");
}

int serve_confine(const struct serve *s, struct err *err)
{
    raise_open_files();
    if (s->root && !SERVE_SANITIZED && (small_root(s, err) || walls_become(s->uid, s->gid, err)))
        return -1;
    if (s->fetch_ca && access(s->fetch_ca, R_OK)) /* said now, not at the first request */
        return err_sys(err, "read --fetch-ca %.150s as user %u", s->fetch_ca, geteuid());
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }); /* there are keys and tokens in memory */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_DUMPABLE, SERVE_SANITIZED, 0, 0, 0))
        return err_sys(err, "give up privileges");
    return die_with_monitor(s, err) ? -1 : serve_filter(err);
}
