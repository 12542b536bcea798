/* host_fixture.h - a made-up machine below a temporary directory, and questions about the layers
 * that are built from it. Nothing here needs root; owners are asked for only by root. */
#ifndef TESTS_HOST_FIXTURE_H
#define TESTS_HOST_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "jail/host.h"
#include "jail/rmtree.h"
#include "test.h"

#define CANARY    "kanarie"                          /* may be nowhere in a layer */
#define HELLO     "hello\n"                          /* what packages ship here ... */
#define HELLO_MD5 "b1946ac92492d2347c6235b4d2611184" /* ... and its MD5 */

enum { TOPS = 64 };
static char tops[TOPS][32]; /* a directory per case, removed at the end whatever failed */
static int ntops;
static pid_t owner;
static const char *top;           /* of this case */
static char machine[80], dir[80]; /* top/machine, top/host */
static struct err err;
static struct host_template t;

static inline char *in(const char *root, const char *path)
{
    static char text[4][512];
    static unsigned turn;
    char *out = text[turn++ % 4];

    snprintf(out, sizeof(text[0]), "%s/%s", root, path);
    return out;
}

static inline void make_parents(const char *path)
{
    char *at = in(machine, path);

    for (char *slash = at + strlen(machine) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        CHECK(!mkdir(at, 0755) || errno == EEXIST);
        *slash = '/';
    }
}

static inline void put(const char *path, mode_t mode, const char *text)
{
    int fd;

    make_parents(path);
    fd = open(in(machine, path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK_INT(write(fd, text, strlen(text)), strlen(text));
    CHECK_INT(fchmod(fd, mode), 0);
    close(fd);
}

static inline void put_link(const char *path, const char *target)
{
    make_parents(path);
    CHECK_INT(symlink(target, in(machine, path)), 0);
}

static inline void put_dir(const char *path, mode_t mode)
{
    make_parents(path);
    CHECK(!mkdir(in(machine, path), 0755) || errno == EEXIST);
    CHECK_INT(chmod(in(machine, path), mode), 0);
}

static inline void clean_up(void)
{
    AUTO(closep) int tmp = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (getpid() != owner) /* a child that left by exit() */
        return;
    for (int i = 0; i < ntops; i++)
        if (rmtree(tmp, tops[i] + strlen("/tmp/")))
            printf("# left behind: %s\n", tops[i]);
}

static inline void begin(void)
{
    if (!owner) {
        owner = getpid();
        atexit(clean_up);
    }
    top = tops[ntops];
    CHECK(ntops < TOPS);
    snprintf(tops[ntops], sizeof(tops[0]), "/tmp/cove-host-XXXXXX");
    CHECK(mkdtemp(tops[ntops]));
    ntops++;
    CHECK_INT(chmod(top, 0755), 0);
    snprintf(machine, sizeof(machine), "%s/machine", top);
    snprintf(dir, sizeof(dir), "%s/host", top);
    CHECK_INT(mkdir(machine, 0755), 0);
    host_close(&t); /* of the case before */
    err = (struct err){ 0 };
}

/* A small Debian. */
static inline void debian(void)
{
    begin();
    put("usr/bin/env", 0755, "env");
    put("usr/bin/bash", 0755, "bash");
    put("usr/bin/sh", 0755, "sh");
    put("usr/sbin/nologin", 0755, "nologin");
    put("usr/lib/os-release", 0644, "ID=debian\nVERSION_CODENAME=bookworm\n");
    put_link("bin", "usr/bin");
    put_link("sbin", "usr/sbin");
    put_link("lib", "usr/lib");
    put("etc/passwd", 0644,
        "root:x:0:0:" CANARY ":/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
        "_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n" CANARY ":x:1000:1000:A " CANARY
        ":/home/" CANARY ":/bin/bash\n"
        "svc:x:120:120:" CANARY ":/home/" CANARY "/svc:/bin/bash\n");
    put("etc/group", 0644,
        "root:x:0:\nsudo:x:27:" CANARY "\nshadow:x:42:\nutmp:x:43:\nmail:x:8:" CANARY
        "\nstaff:x:50:\n" CANARY ":x:1000:\n");
    put("etc/login.defs", 0644, "UID_MIN 1000\n");
    put("var/lib/dpkg/status", 0644,
        "Package: a\nStatus: install ok installed\nConffiles:\n /etc/pristine.conf " HELLO_MD5
        "\n /etc/secret.conf " HELLO_MD5 "\n /etc/changed.conf " HELLO_MD5
        "\n /etc/skel/.profile " HELLO_MD5 "\n /etc/cron.d/a " HELLO_MD5
        "\n /etc/linked.d/a.conf " HELLO_MD5 "\n /etc/gone.conf " HELLO_MD5
        "\n /usr/share/a.conf " HELLO_MD5 "\n /etc/fonts/conf.avail/10.conf " HELLO_MD5 "\n\n");
    put("var/lib/dpkg/info/a.list", 0644, "/.\n");
    put("etc/pristine.conf", 0644, HELLO);
    put("etc/secret.conf", 0440, HELLO);
    put("etc/skel/.profile", 0644, HELLO);
}

/* ---- questions ---- */

static inline bool exists(const char *layer, const char *path)
{
    struct stat st;

    return !lstat(in(layer, path), &st);
}

static inline mode_t mode_of(const char *layer, const char *path)
{
    struct stat st = { 0 };

    return lstat(in(layer, path), &st) ? 0 : st.st_mode & 07777;
}

/* Owner and group of a file in base, as the caller says; an ordinary user owns everything. */
static inline bool owned(const char *path, uid_t uid, gid_t gid)
{
    struct stat st;

    return !lstat(in(t.base, path), &st) && (geteuid() || (st.st_uid == uid && st.st_gid == gid));
}

/* What a generation says of /usr, as a directory: its image mounted, or its layer of whiteouts. */
static inline const char *usr_of(const struct host_template *of)
{
    static int mount = -1;
    static char path[32];

    closep(&mount);
    mount = -1;
    if (!of->image)
        return of->usrfix;
    mount = host_mount_image(of, &err);
    CHECK_STR(err.msg, "");
    snprintf(path, sizeof(path), "/proc/self/fd/%d/.", mount);
    return path;
}

/* Absent from the image; in a layer, a whiteout there or above. */
static inline bool hidden(const char *path)
{
    const char *usr = usr_of(&t);
    char *at = in(usr, path);
    bool found = false;
    struct stat st;

    if (t.image)
        return lstat(at, &st) && errno == ENOENT;
    for (char *end = at + strlen(at); !found && end > at + strlen(usr); *end = 0) {
        found = !lstat(at, &st) && S_ISCHR(st.st_mode) && !st.st_rdev;
        while (*end != '/')
            end--;
    }
    return found;
}

static inline const char *text_of(const char *layer, const char *path)
{
    static char text[65536];
    int fd = open(in(layer, path), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = 0;
    return n < 0 ? "(absent)" : text;
}

static inline const char *link_of(const char *path)
{
    static char text[512];
    ssize_t n = readlink(in(t.base, path), text, sizeof(text) - 1);

    text[n < 0 ? 0 : n] = 0;
    return n < 0 ? "(absent)" : text;
}

static const char *canary_word;

static inline int look(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    AUTO(buf_free) struct buf text = { 0 };
    AUTO(closep) int fd = -1;
    ssize_t n = 0;

    (void)kind;
    buf_reserve(&text, (size_t)st->st_size + 4096);
    if (S_ISLNK(st->st_mode))
        n = readlink(path, text.data, 4096);
    else if (S_ISREG(st->st_mode) && lgetxattr(path, "user.overlay.metacopy", NULL, 0) < 0 &&
             (fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0)
        n = read(fd, text.data, (size_t)st->st_size + 1);
    if (n < 0 || strstr(path + ftw->base, canary_word) ||
        memmem(text.data, (size_t)n, canary_word, strlen(canary_word))) {
        printf("# %s has it\n", path);
        return 1;
    }
    return 0;
}

/* In a name, a link or the bytes of any file. */
static inline bool appears_in(const char *layer, const char *word)
{
    canary_word = word;
    return nftw(layer, look, 64, FTW_PHYS);
}

static inline bool appears(const char *word)
{
    return appears_in(t.base, word) || appears_in(usr_of(&t), word);
}

static inline int entries(void) /* of the directory of generations, temporary ones too */
{
    AUTO(buf_free) struct buf cmd = { 0 };
    char text[16] = "";
    FILE *p;

    buf_printf(&cmd, "ls -A %s | wc -l", dir);
    p = popen(cmd.data, "r");
    CHECK(p && fgets(text, sizeof(text), p));
    pclose(p);
    return (int)strtol(text, NULL, 10);
}

static inline int open_with(struct host_options o)
{
    o.source = machine;
    o.resolver = "10.201.0.1";
    host_close(&t);
    err = (struct err){ 0 };
    return host_open(dir, &o, &t, &err);
}

#define MUST_OPEN(...)                                                                             \
    do {                                                                                           \
        if (open_with((struct host_options){ __VA_ARGS__ }))                                       \
            test_fail(__FILE__, __LINE__, "host_open: %s", err.msg);                               \
    } while (0)

#endif
