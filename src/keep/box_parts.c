/* box_parts.c - see box_parts.h. */
#include "keep/box_parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

enum { BACKLOG = 128, YOUNG_S = 10 };

/* ---- the guest's socket ---- */

/* By way of our descriptor of the directory: its path may be longer than an address holds. */
static socklen_t address(const struct keeper *k, const char *name, struct sockaddr_un *sa)
{
    *sa = (struct sockaddr_un){ .sun_family = AF_UNIX };
    snprintf(sa->sun_path, sizeof(sa->sun_path), "/proc/self/fd/%d/%.*s", k->sockets, ORDER_ID_MAX,
             name);
    return sizeof(*sa);
}

int box_listen(struct box *b, struct err *err)
{
    AUTO(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un sa;
    socklen_t n = address(b->keeper, b->id, &sa);

    if (fd < 0)
        return err_sys(err, "socket");
    unlinkat(b->keeper->sockets, b->id, 0); /* of one that a crash left */
    if (bind(fd, (struct sockaddr *)&sa, n) || listen(fd, BACKLOG))
        return err_sys(err, "make the guest's socket");
    b->socket_made = true;
    if (fchownat(b->keeper->sockets, b->id, b->keeper->o.client_uid, (gid_t)-1, 0) &&
        !b->keeper->o.rootless)
        return err_sys(err, "give the guest's socket to its user");
    return TAKE(fd, -1);
}

int box_dial_guest(const struct box *b, struct err *err)
{
    AUTO(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un sa;
    socklen_t n = address(b->keeper, b->id, &sa);

    if (fd < 0 || connect(fd, (struct sockaddr *)&sa, n))
        return err_sys(err, "connect to the guest of %s", b->id);
    return TAKE(fd, -1);
}

/* A frozen one is not stopped, whatever its state says. A traced one is somebody's who looks. */
bool box_is_stopped(const struct box *b)
{
    char path[32], text[512];
    const char *name_end;
    AUTO(closep) int fd = -1;
    ssize_t n;

    if (b->frozen || b->jail.pid <= 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/stat", b->jail.pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return false;
    text[n] = 0;
    name_end = strrchr(text, ')'); /* the name may hold anything, its parenthesis too */
    return name_end && !strncmp(name_end, ") T", 3);
}

static bool is_dead(const struct keeper *k, const char *name)
{
    AUTO(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un sa;
    socklen_t n = address(k, name, &sa);

    return fd >= 0 && connect(fd, (struct sockaddr *)&sa, n) && errno == ECONNREFUSED;
}

void box_sweep_sockets(const struct keeper *k)
{
    int fd = openat(k->sockets, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *e;
    struct stat st;

    /* a young one may be bound and not listening yet */
    while (d && (e = readdir(d)))
        if (*e->d_name != '.' && strlen(e->d_name) <= ORDER_ID_MAX &&
            !fstatat(k->sockets, e->d_name, &st, AT_SYMLINK_NOFOLLOW) &&
            st.st_ctime + YOUNG_S < time(NULL) && is_dead(k, e->d_name))
            unlinkat(k->sockets, e->d_name, 0);
    if (d)
        closedir(d);
}
