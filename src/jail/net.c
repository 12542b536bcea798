/* net.c - see net.h: the parts that need no netmaker. */
#include "jail/net.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "io/fdpass.h"
#include "jail/net_bare.h"
#include "jail/net_filter.h"
#include "jail/net_link.h"

static int home = -1; /* the caller never changes its own, so it is opened once */

static int enter(int ns, struct err *err)
{
    if (home < 0)
        home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0)
        return err_sys(err, "open /proc/self/ns/net");
    return setns(ns, CLONE_NEWNET) ? err_sys(err, "enter a sandbox's network") : 0;
}

static void leave(void)
{
    if (setns(home, CLONE_NEWNET)) { /* a keeper in a sandbox's network must not go on */
        log_error("the keeper cannot return to its own network namespace");
        abort();
    }
}

int net_socket(int ns, int domain, int type, struct err *err)
{
    int fd;

    if (enter(ns, err))
        return -1;
    fd = socket(domain, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        err_sys(err, "make a socket in a sandbox's network");
    leave();
    return fd;
}

int net_allow_ping(int ns, struct err *err)
{
    int r;

    if (enter(ns, err))
        return -1;
    r = net_bare_ping(err);
    leave();
    return r;
}

/* Returns an errno, which is what the child has to say if it has no socket. */
static int make_and_send(int sock, int ns, int domain, int type)
{
    int user = ioctl(ns, NS_GET_USERNS), fd = -1, error = 0;

    if (user < 0 || setns(user, CLONE_NEWUSER) || setns(ns, CLONE_NEWNET))
        error = errno;
    else if ((fd = socket(domain, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) < 0)
        error = errno;
    return fdpass_send(sock, &error, sizeof(error), &fd, fd >= 0, MSG_NOSIGNAL) < 0;
}

/* By a child: entering the network takes the rights that one has inside the user namespace only,
 * and nobody comes back out of that. It is not in the sandbox's pid namespace, so nothing there
 * sees it. */
int net_socket_owned(int ns, int domain, int type, struct err *err)
{
    int pair[2], error = 0, fd = -1, r;
    size_t n = 1;
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return err_sys(err, "make a socket pair");
    pid = fork();
    if (!pid)
        _exit(make_and_send(pair[1], ns, domain, type));
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return err_sys(err, "start a process for a socket in a sandbox's network");
    }
    r = fdpass_recv(pair[0], &error, sizeof(error), &fd, &n, 0) == sizeof(error) ? 0 : -1;
    close(pair[0]);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    if (!r && n == 1)
        return fd;
    errno = r ? EIO : error ? error : EMFILE; /* made, and lost on its way to us */
    return err_sys(err, "make a socket in a sandbox's network");
}

/* By the port on the host: what it receives the sandbox has sent. */
void net_slot_traffic(const struct net_slot *s, uint64_t *in, uint64_t *out)
{
    static struct netlink nl; /* the host's: the caller is at home between its visits */
    struct err ignored;

    *in = *out = 0;
    if (s->mode != NET_OPEN || !s->link || (!nl.sock && netlink_open(&nl, NETLINK_ROUTE, &ignored)))
        return;
    if (net_link_traffic(&nl, s->link, out, in))
        *in = *out = 0;
}

int net_doctor(const struct net_options *o, struct buf *out, struct err *err)
{
    struct net_plan p;
    struct net_link_routes r = { .overlaps = false };
    char route[64], subnet[64];

    if (net_plan_init(&p, o, err))
        return -1;
    r.wanted = p.subnet;
    r.own = if_nametoindex(p.bridge);
    if (net_link_read_routes(&r))
        return err_sys(err, "read the host's routes");
    net_cidr_print(&p.subnet, subnet, sizeof(subnet));
    net_cidr_print(r.overlaps ? &r.route : &p.subnet, route, sizeof(route));
    if (r.overlaps)
        buf_printf(out, "the sandbox network %s overlaps the route to %s: set network.subnet\n",
                   subnet, route);
    if (!r.has_default)
        buf_puts(out, "this host has no default route: sandboxes reach its neighbours only\n");
    return net_filter_obstacles(out, err);
}
