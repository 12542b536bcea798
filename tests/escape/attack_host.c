/* attack_host.c - finding something of the host. The test puts canaries there and names them in the
 * environment: a file, a process, sockets, shared memory. */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "attack.h"
#include "base/util.h"

enum { ANSWER_MS = 1500 };

/* ---- the old root ---- */

/* A root that was left mounted on top of the new one is where ".." of the new one leads. */
static long above_root(const struct attempt *a)
{
    struct stat root, above;

    if (stat("/", &root) || stat(a->path, &above))
        return -1;
    if (root.st_dev != above.st_dev || root.st_ino != above.st_ino)
        escaped("%s is another directory than /", a->path);
    held("the same directory");
}

/* What may be mounted, by place and type; a second mount on one place would be a leftover. */
static const struct place {
    const char *at, *type;
    bool read_only;
} places[] = {
    { "/", "overlay", false }, { "/usr", "overlay", false },    { "/proc", "proc", false },
    { "/dev", "tmpfs", true }, { "/dev/pts", "devpts", false }, { "/dev/shm", "tmpfs", false },
    { "/attack", NULL, true }, /* the test's own, of whatever type its directory is */
};

static bool is_declared(const char *at, const char *options, const char *type, unsigned *seen)
{
    bool read_only = !strncmp(options, "ro", 2) && (options[2] == ',' || !options[2]);

    /* masks: parts of the same proc, or the null device */
    if (!strncmp(at, "/proc/", 6))
        return read_only && (!strcmp(type, "proc") || !strcmp(type, "tmpfs"));
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (!strcmp(at, places[i].at)) {
            bool first = !(*seen & 1u << i);

            *seen |= 1u << i;
            return first && (!places[i].type || !strcmp(type, places[i].type)) &&
                   (!places[i].read_only || read_only);
        }
    return false;
}

static long mount_list(const struct attempt *a)
{
    char text[32768], *save = NULL;
    unsigned seen = 0;
    int n = 0;

    if (read_text(a->path, text, sizeof(text)) < 0)
        return -1;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char at[256], options[256], type[64];
        const char *tail = strstr(line, " - ");

        if (!tail || sscanf(line, "%*s %*s %*s %*s %255s %255s", at, options) != 2 ||
            sscanf(tail, " - %63s", type) != 1)
            unclear("cannot read '%s'", line);
        if (!is_declared(at, options, type, &seen))
            escaped("mounted: %s, %s, %s", at, type, options);
        n++;
    }
    if (seen != (1u << ARRAY_LEN(places)) - 1)
        unclear("not all that is declared is mounted: %x", seen);
    held("%d mounts, all declared", n);
}

/* ---- files and processes ---- */

static const char *const ways[] = {
    "", "/..", "/proc/self/root/..", "/proc/1/root", "/proc/self/cwd/../../../../..", "/attack/.."
};

static long host_file(const struct attempt *a)
{
    const char *name = setting("CANARY_FILE");
    char path[512], text[64];

    (void)a;
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        snprintf(path, sizeof(path), "%s%s", ways[i], name);
        if (read_text(path, text, sizeof(text)) >= 0)
            escaped("%s", path);
        if (errno != ENOENT && errno != EACCES && errno != ENOTDIR)
            unclear("%s: %s", path, strerrorname_np(errno));
    }
    held("no way to it");
}

static bool finds_process(const char *proc, const char *name)
{
    DIR *dir = opendir(proc);
    const struct dirent *e;
    char path[320], text[4096];
    bool found = false;
    long n;

    while (dir && !found && (e = readdir(dir)) != NULL) {
        snprintf(path, sizeof(path), "%s/%s/cmdline", proc, e->d_name);
        n = e->d_name[0] >= '1' && e->d_name[0] <= '9' ? read_text(path, text, sizeof(text)) : 0;
        found = n > 0 && memmem(text, (size_t)n, name, strlen(name)); /* words end with a zero */
    }
    if (dir)
        closedir(dir);
    return found;
}

static long host_process(const struct attempt *a)
{
    const char *name = setting("CANARY_PROCESS");

    if (finds_process("/proc", name) || finds_process(a->path, name))
        escaped("its command line is in /proc");
    held("not in /proc");
}

static long host_signal(const struct attempt *a)
{
    return kill((int)strtol(setting("CANARY_PID"), NULL, 10), (int)a->nr);
}

static long shared_memory(const struct attempt *a)
{
    return shmget((key_t)strtol(setting("CANARY_SHM"), NULL, 0), (size_t)a->nr, 0);
}

/* ---- sockets ---- */

static long connect_abstract(const struct attempt *a)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    const char *name = setting("CANARY_SOCKET");
    size_t n = strlen(name);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    (void)a;
    memcpy(sa.sun_path + 1, name, MIN(n, sizeof(sa.sun_path) - 1));
    return connect(fd, (struct sockaddr *)&sa,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n));
}

/* 0: it answered; else why not. */
static int connect_to(const char *address, int port)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
    bool six = strchr(address, ':') != NULL;
    int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct pollfd p = { fd, POLLOUT, 0 };
    int error = 0, r;
    socklen_t n = sizeof(error);

    if (inet_pton(six ? AF_INET6 : AF_INET, address, six ? (void *)&v6.sin6_addr : &v4.sin_addr) !=
        1)
        unclear("'%s' is no address", address);
    r = six ? connect(fd, (struct sockaddr *)&v6, sizeof(v6))
            : connect(fd, (struct sockaddr *)&v4, sizeof(v4));
    if (r && errno == EINPROGRESS) {
        if (poll(&p, 1, ANSWER_MS) <= 0)
            error = ETIMEDOUT;
        else
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n);
    } else if (r)
        error = errno;
    close(fd);
    return error;
}

/* Every ADDRESS PORT pair of a variable. Refused at once, not left to time out: that would be luck.
 */
static long connect_all(const struct attempt *a)
{
    char list[2048], *save = NULL, *address, *port;
    int n = 0;

    snprintf(list, sizeof(list), "%s", setting(a->path));
    for (address = strtok_r(list, " ", &save); address; address = strtok_r(NULL, " ", &save)) {
        int error;

        if (!(port = strtok_r(NULL, " ", &save)))
            unclear("%s has no port", address);
        error = connect_to(address, (int)strtol(port, NULL, 10));
        if (!error)
            escaped("connected to %s port %s", address, port);
        if (error != ECONNREFUSED && error != ENETUNREACH && error != EHOSTUNREACH &&
            error != EACCES && error != EADDRNOTAVAIL)
            unclear("%s port %s: %s", address, port, strerrorname_np(error));
        n++;
    }
    held("%d refused", n);
}

/* ---- what a command inherits ---- */

static long descriptors(const struct attempt *a)
{
    DIR *dir = opendir(a->path);
    const struct dirent *e;
    char path[64], to[256];
    int n = 0;

    if (!dir)
        return -1;
    while ((e = readdir(dir)) != NULL) {
        int fd = (int)strtol(e->d_name, NULL, 10);
        ssize_t len;

        if (e->d_name[0] == '.' || fd == dirfd(dir))
            continue;
        snprintf(path, sizeof(path), "%s/%d", a->path, fd);
        len = readlink(path, to, sizeof(to) - 1);
        to[MAX(len, (ssize_t)0)] = 0;
        if (fd > 2)
            escaped("%d is %s", fd, to);
        n++;
    }
    if (n != 3)
        unclear("%d descriptors", n);
    held("0, 1 and 2");
}

/* ---- the overlay's own marks ---- */

/* Marks by which overlayfs redirects a name or the contents of a file, set from inside. They have
 * to stay plain attributes: the test looks at what arrived in the layer while this is held. */
static long forge_overlay_marks(const struct attempt *a)
{
    static const char *const marks[] = { "user.overlay.redirect", "user.overlay.metacopy",
                                         "user.overlay.opaque", "trusted.overlay.redirect",
                                         "user.overlay.whiteout" };
    int fd = open(a->path, O_CREAT | O_RDWR, 0644);
    char text[16] = "";
    long set = 0;

    if (fd < 0 || write(fd, "mine", 4) != 4)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        set += !fsetxattr(fd, marks[i], "/etc/shadow", 11, 0);
    if (read_text(a->path, text, sizeof(text)) != 4 || strcmp(text, "mine"))
        escaped("%s now reads '%s'", a->path, text);
    return set;
}

static long overlay_marks(const struct attempt *a)
{
    long set = forge_overlay_marks(a);

    if (set < 0)
        return -1;
    held("%ld set, none in force", set);
}

const struct attempt attack_host[] = {
    { "above-root", above_root, {}, "/.." },
    { "mount-list", mount_list, {}, "/proc/self/mountinfo" },
    { "host-file", host_file, {} },
    { "host-process", host_process, {}, "/../proc" },
    { "host-signal", host_signal, { ESRCH } },
    { "host-shared-memory", shared_memory, { ENOENT } },
    { "host-abstract-socket", connect_abstract, { ECONNREFUSED } },
    { "host-tcp", connect_all, {}, "CANARY_TCP" },
    { "network-denied", connect_all, {}, "NETWORK_DENIED" },
    { "descriptors", descriptors, {}, "/proc/self/fd" },
    { "overlay-marks", overlay_marks, {}, "/tmp/marked" },
    { "overlay-forge", forge_overlay_marks, {}, "/tmp/marked" },
    {}
};
