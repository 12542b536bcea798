/* net.c - see net.h: the parts that need no netmaker. */
#include "jail/net.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "jail/net_filter.h"
#include "jail/net_link.h"

int net_socket(int ns, int domain, int type, struct err *err)
{
    static int home = -1; /* the caller never changes its own, so it is opened once */
    int fd;

    if (home < 0)
        home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0)
        return err_sys(err, "open /proc/self/ns/net");
    if (setns(ns, CLONE_NEWNET))
        return err_sys(err, "enter a sandbox's network");
    fd = socket(domain, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        err_sys(err, "make a socket in a sandbox's network");
    if (setns(home, CLONE_NEWNET)) { /* a keeper in a sandbox's network must not go on */
        log_error("the keeper cannot return to its own network namespace");
        abort();
    }
    return fd;
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
