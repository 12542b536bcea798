/* net_make.c - see net_make.h. */
#include "jail/net_make.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "jail/net_bare.h"
#include "jail/net_flows.h"
#include "jail/net_link.h"
#include "jail/net_sysctl.h"

enum { TAKEN_TRIES = 300, TAKEN_WAIT_US = 2000 }; /* longer than a netmaker holds what ended */

static void go_back(int host)
{
    if (setns(host, CLONE_NEWNET)) { /* nothing this process does from here on would be right */
        log_error("the network maker cannot return to the host's namespace");
        _exit(1);
    }
}

static int enter_new(struct err *err)
{
    int ns;

    if (net_bare(err))
        return -1;
    ns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    return ns < 0 ? err_sys(err, "open /proc/thread-self/ns/net") : ns;
}

int net_make_none(int host, struct err *err)
{
    int ns = enter_new(err);

    go_back(host);
    return ns;
}

/* The last owner of this number may be ending right now; its port goes with its namespace. */
static int add_pair(struct net_bridge *b, const char *port, int ns, const unsigned char *mac,
                    struct err *err)
{
    for (int i = 0; i < TAKEN_TRIES; i++) {
        if (!net_link_add_pair(&b->route, port, "eth0", ns, mac))
            return 0;
        if (errno != EEXIST)
            return err_sys(err, "make the interface pair %s", port);
        usleep(TAKEN_WAIT_US);
    }
    return err_set(err, ERR_CONFLICT, "the interface %s is still there: its sandbox lives", port);
}

/* An address alone, and one way out: to the gateway. Other sandboxes are not "on the link", so
 * packets to them reach the filter, which answers, instead of a bridge port, which does not. */
static int add_way(struct netlink *inside, unsigned index, const struct net_ip *own,
                   const struct net_ip *gateway, const unsigned char *gateway_mac)
{
    unsigned bits = (unsigned)net_ip_size(own->family) * 8;
    struct net_cidr everything = { .ip = { .family = own->family }, .prefix = 0 };

    return net_link_add_address(inside, index, &(struct net_cidr){ *own, bits }) ||
                   net_link_set_neighbour(inside, index, gateway, gateway_mac) ||
                   net_link_add_route(inside, index, &(struct net_cidr){ *gateway, bits }, NULL) ||
                   net_link_add_route(inside, index, &everything, gateway)
               ? -1
               : 0;
}

/* Before eth0 exists: no address of its own making, no advice from routers. */
static void quiet_inside(bool has6)
{
    const char *const settings[][2] = {
        { "net/ipv4/conf/all/accept_redirects", "0" },
        { "net/ipv4/conf/default/accept_redirects", "0" },
        { "net/ipv6/conf/default/accept_ra", "0" },
        { "net/ipv6/conf/default/addr_gen_mode", "1" },
        { "net/ipv6/conf/default/disable_ipv6", has6 ? "0" : "1" },
    };

    for (size_t i = 0; i < ARRAY_LEN(settings); i++)
        net_sysctl_write(settings[i][0], settings[i][1]); /* fails where there is no IPv6: fine */
}

static int wire_inside(struct netlink *inside, const struct net_bridge *b, const struct net_plan *p,
                       uint32_t index, unsigned *link, struct err *err)
{
    struct net_ip v4 = net_plan_address(p, index), v6 = net_plan_address6(p, index);
    unsigned eth0 = *link = if_nametoindex("eth0");
    unsigned char mac[NET_MAC];

    net_plan_mac(&p->gateway, mac);
    if (!eth0 || net_link_up(inside, eth0) || add_way(inside, eth0, &v4, &p->gateway, mac) ||
        (b->has6 && add_way(inside, eth0, &v6, &p->gateway6, mac)))
        return err_sys(err, "give eth0 its address and routes");
    return 0;
}

void net_make_wind_up(int host, int ns)
{
    if (setns(ns, CLONE_NEWNET))
        return;
    net_sysctl_write("net/ipv4/tcp_orphan_retries", "1");
    go_back(host);
}

static int wire_host(struct net_bridge *b, const struct net_plan *p, uint32_t index,
                     const char *port, const unsigned char *mac, struct err *err)
{
    unsigned link = if_nametoindex(port);
    struct net_ip v4 = net_plan_address(p, index), v6 = net_plan_address6(p, index);

    if (!link)
        return err_sys(err, "find the interface %s", port);
    if (net_link_join(&b->route, link, b->index))
        return errno == EXFULL ? err_set(err, ERR_LIMIT,
                                         "the bridge %s has all the ports the kernel gives it "
                                         "(1,023): end sandboxes, or start some with no network",
                                         p->bridge)
                               : err_sys(err, "connect %s to %s", port, p->bridge);
    /* Here, not when the last owner ended: it holds for owners that were killed, too. */
    if (net_flows_clear(&b->filter, p, &v4) || (b->has6 && net_flows_clear(&b->filter, p, &v6)))
        log_debug("old flows were not forgotten", KV("port", port));
    if (net_bridge_admit(b, p, index, err))
        return -1;
    if (net_link_set_forwarding(&b->route, link, mac) || net_link_up(&b->route, link) ||
        net_link_wait(&b->route, link))
        return err_sys(err, "open the port %s", port);
    return 0;
}

int net_make_open(int host, struct net_bridge *b, const struct net_plan *p, uint32_t index,
                  struct err *err)
{
    AUTO(netlink_close) struct netlink inside = { 0 };
    AUTO(closep) int ns = enter_new(err);
    struct net_ip v4 = net_plan_address(p, index);
    unsigned char mac[NET_MAC];
    char port[IFNAMSIZ];
    unsigned eth0 = 0;
    int failed = ns < 0 || netlink_open(&inside, NETLINK_ROUTE, err);

    net_plan_mac(&v4, mac);
    net_plan_port(p, index, port);
    if (!failed) {
        quiet_inside(b->has6);
        failed = add_pair(b, port, ns, mac, err) || wire_inside(&inside, b, p, index, &eth0, err);
    }
    go_back(host);
    if (failed || wire_host(b, p, index, port, mac, err))
        return -1; /* the pair goes with the namespace */
    if (net_link_wait(&inside, eth0) || net_link_wait(&b->route, b->index))
        return err_sys(err, "wait for the port %s", port);
    return TAKE(ns, -1);
}
