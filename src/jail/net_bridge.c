/* net_bridge.c - see net_bridge.h.
 *
 * The order of locks makes the last one out remove things, whoever it is: all changes happen under
 * SETUP, and who cannot have USERS for himself gives up his share before he lets SETUP go. */
#include "jail/net_bridge.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "jail/net_element.h"
#include "jail/net_filter.h"
#include "jail/net_flows.h"
#include "jail/net_link.h"
#include "jail/net_sysctl.h"

enum { ENDING_MS = 1000, STEP_MS = 10 };

int net_bridge_open_lock(const struct net_plan *p, struct err *err)
{
    char path[256];
    int fd;

    if (mkdir(p->run_dir, 0755) && errno != EEXIST)
        return err_sys(err, "make the run directory %s", p->run_dir);
    snprintf(path, sizeof(path), "%s/net-%s.lock", p->run_dir, p->bridge);
    fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? err_sys(err, "open %s", path) : fd;
}

int net_bridge_lock(int fd, enum net_lock what, int type, bool wait)
{
    struct flock l = {
        .l_type = (short)type, .l_whence = SEEK_SET, .l_start = (off_t)what, .l_len = 1
    };
    int r;

    do /* "OFD" locks belong to the open file: a fork shares them, and the last close ends them */
        r = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &l);
    while (r && errno == EINTR);
    return r;
}

/* ---- making ---- */

static int read_overlap(struct net_link_routes *r, const struct net_cidr *wanted, unsigned own,
                        struct err *err)
{
    *r = (struct net_link_routes){ .wanted = *wanted, .own = own };
    return net_link_read_routes(r) ? err_sys(err, "read the host's routes") : 0;
}

/* Of the private 10.0.0.0/8, one that overlaps no route; else just the form of one. */
static void suggest(struct net_cidr free, char *out, size_t n)
{
    struct net_link_routes r;
    struct err ignored;

    free.ip.b[0] = 10;
    for (free.ip.b[1] = 202; free.ip.b[1]; free.ip.b[1]++)
        if (!read_overlap(&r, &free, 0, &ignored) && !r.overlaps) {
            net_cidr_print(&free, out, n);
            return;
        }
    snprintf(out, n, "A.B.0.0/16");
}

/* Before the bridge is made. ERR_UNAVAILABLE: it is no number that is in the way (ERR_CONFLICT). */
static int check_routes(const struct net_plan *p, unsigned own, struct err *err)
{
    struct net_link_routes r;
    char route[64], subnet[64], other[64];

    if (read_overlap(&r, &p->subnet, own, err))
        return -1;
    if (!r.overlaps)
        return 0;
    net_cidr_print(&r.route, route, sizeof(route));
    net_cidr_print(&p->subnet, subnet, sizeof(subnet));
    suggest(p->subnet, other, sizeof(other));
    return err_set(err, ERR_UNAVAILABLE,
                   "the sandbox network %s overlaps this host's route to %s: move it with --set "
                   "network.subnet=%s",
                   subnet, route, other);
}

static int find_or_add(struct net_bridge *b, const struct net_plan *p, bool *made, struct err *err)
{
    struct net_link_info info = { .index = 0 };
    unsigned char mac[NET_MAC];

    memcpy(info.name, p->bridge, sizeof(p->bridge));
    if (net_link_find(&info))
        return err_sys(err, "look for the interface %s", p->bridge);
    *made = !info.index;
    if (!*made && (!info.is_bridge || net_link_other_addresses(info.index, &p->gateway)))
        return err_set(
            err, ERR_UNAVAILABLE,
            "there is an interface %s already, not made with this network.subnet: delete it (ip "
            "link delete %s), or take another name with --set network.bridge=cove1",
            p->bridge, p->bridge);
    if (check_routes(p, info.index, err))
        return -1;
    net_plan_mac(&p->gateway, mac);
    if (*made && (net_link_add_bridge(&b->route, p->bridge, mac) || net_link_find(&info)))
        return err_sys(err, "make the bridge %s", p->bridge);
    b->index = info.index;
    return 0;
}

/* Becoming a router, a host stops listening to routers unless it is told that both are meant: it
 * would lose its own default route. */
static int keep_uplinks(const struct net_bridge *b, const struct net_link_routes *r,
                        struct err *err)
{
    char name[IFNAMSIZ], path[64], value[8];

    for (size_t i = 0; i < r->nuplinks; i++) {
        if (!if_indextoname(r->uplinks[i], name))
            continue;
        snprintf(path, sizeof(path), "net/ipv6/conf/%s/accept_ra", name);
        if (!net_sysctl_read(path, value, sizeof(value)) && !strcmp(value, "1") &&
            net_sysctl_change(b->lock, path, "2", err))
            return -1;
    }
    return 0;
}

static int set_up6(struct net_bridge *b, const struct net_plan *p, struct err *err)
{
    struct net_link_routes r = { .wanted = p->subnet6, .own = b->index };
    struct net_cidr c = { .ip = p->gateway6, .prefix = p->subnet6.prefix };
    char path[64];

    b->has6 = !net_link_read_routes(&r) && r.has_default && !r.overlaps;
    snprintf(path, sizeof(path), "net/ipv6/conf/%s/disable_ipv6", p->bridge);
    if (!b->has6 || net_sysctl_write(path, "0"))
        return b->has6 = false, 0;
    if (keep_uplinks(b, &r, err) ||
        net_sysctl_change(b->lock, "net/ipv6/conf/all/forwarding", "1", err))
        return -1;
    return net_link_add_address(&b->route, b->index, &c)
               ? err_sys(err, "give %s its IPv6 address", p->bridge)
               : 0;
}

/* The host's own face on the bridge: no address of its own making, no router's advice. Without IPv6
 * in the kernel these do not exist. */
static void quiet_bridge(const struct net_plan *p)
{
    static const char *const settings[][2] = { { "addr_gen_mode", "1" },
                                               { "accept_ra", "0" },
                                               { "disable_ipv6", "1" } };
    char path[64];

    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        snprintf(path, sizeof(path), "net/ipv6/conf/%s/%s", p->bridge, settings[i][0]);
        net_sysctl_write(path, settings[i][1]);
    }
}

static int prepare(struct net_bridge *b, const struct net_plan *p, bool alone, struct err *err)
{
    struct net_cidr gateway = { .ip = p->gateway, .prefix = p->subnet.prefix };
    bool made;
    int ports;

    if (find_or_add(b, p, &made, err))
        return -1;
    if (made)
        quiet_bridge(p);
    ports = net_link_ports(b->index, NULL, NULL);
    /* The filter comes before the address: there is no moment without it. */
    if (ports < 0 || net_filter_load(p, alone && !ports, err))
        return ports < 0 ? err_sys(err, "list the ports of %s", p->bridge)
                         : err_in(err, "load the packet filter");
    net_flows_settle(&b->filter, p);
    if (net_link_add_address(&b->route, b->index, &gateway) || net_link_up(&b->route, b->index))
        return err_sys(err, "give %s its address", p->bridge);
    if (net_sysctl_change(b->lock, "net/ipv4/ip_forward", "1", err))
        return -1;
    return set_up6(b, p, err);
}

static void close_all(struct net_bridge *b)
{
    netlink_close(&b->route);
    netlink_close(&b->filter);
    netlink_close(&b->watch);
    close(b->lock);
    *b = (struct net_bridge){ .in_use = false };
}

/* Somebody deleted the bridge. Sandboxes on it have lost their network; new ones need not. */
static int use_again(struct net_bridge *b, const struct net_plan *p, struct err *err)
{
    int r;

    if (net_bridge_lock(b->lock, NET_LOCK_SETUP, F_WRLCK, true))
        return err_sys(err, "lock the network's set-up");
    r = prepare(b, p, false, err);
    net_bridge_lock(b->lock, NET_LOCK_SETUP, F_UNLCK, false);
    return r;
}

/* ---- one sandbox ---- */

int net_bridge_admit(struct net_bridge *b, const struct net_plan *p, uint32_t index,
                     struct err *err)
{
    struct net_ip v4 = net_plan_address(p, index), v6 = net_plan_address6(p, index);
    unsigned char mac[NET_MAC];

    net_plan_mac(&v4, mac);
    if (net_element_add(&b->filter, p, index))
        return err_sys(err, "tell the packet filter of sandbox %u", index);
    if (net_link_set_neighbour(&b->route, b->index, &v4, mac) ||
        (b->has6 && net_link_set_neighbour(&b->route, b->index, &v6, mac)))
        return err_sys(err, "tell the host of sandbox %u", index);
    return 0;
}

void net_bridge_forget(struct net_bridge *b, const struct net_plan *p, uint32_t index)
{
    struct net_ip v4 = net_plan_address(p, index), v6 = net_plan_address6(p, index);

    /* What fails here stays as an entry for a port that does not exist: nobody can use it. */
    net_element_remove(&b->filter, p, index);
    net_link_drop_neighbour(&b->route, b->index, &v4);
    if (b->has6)
        net_link_drop_neighbour(&b->route, b->index, &v6);
}

/* ---- what nobody took away ---- */

struct orphans {
    const struct net_plan *p;
    uint32_t *index; /* owned */
    size_t n, cap;
};

static void see_orphan(const char *port, void *arg)
{
    struct orphans *o = arg;
    uint32_t index;

    if (net_plan_index(o->p, port, &index) || if_nametoindex(port))
        return;
    if (o->n == o->cap) {
        o->cap = o->cap ? o->cap * 2 : 64;
        o->index = xrealloc(o->index, o->cap * sizeof(*o->index));
    }
    o->index[o->n++] = index;
}

/* A port goes with its namespace, whoever is killed; its entries go with whoever made it, and stay
 * when that one is killed. */
static void forget_orphans(struct net_bridge *b, const struct net_plan *p)
{
    struct orphans o = { .p = p };

    if (net_bridge_lock(b->lock, NET_LOCK_ENTRIES, F_WRLCK, true))
        return;
    if (net_element_ports(p, see_orphan, &o))
        log_debug("ports that are gone stay known", KV("error", strerrordesc_np(errno)));
    for (size_t i = 0; i < o.n; i++)
        net_bridge_forget(b, p, o.index[i]);
    net_bridge_lock(b->lock, NET_LOCK_ENTRIES, F_UNLCK, false);
    free(o.index);
}

/* ---- using ---- */

int net_bridge_use(struct net_bridge *b, const struct net_plan *p, struct err *err)
{
    bool alone;

    if (b->in_use)
        return if_nametoindex(p->bridge) == b->index ? 0 : use_again(b, p, err);
    b->lock = net_bridge_open_lock(p, err);
    if (b->lock < 0)
        return -1;
    if (net_bridge_lock(b->lock, NET_LOCK_SETUP, F_WRLCK, true)) {
        err_sys(err, "lock the network's set-up");
        close_all(b);
        return -1;
    }
    alone = !net_bridge_lock(b->lock, NET_LOCK_USERS, F_WRLCK, false);
    b->in_use = true;
    if (net_bridge_lock(b->lock, NET_LOCK_USERS, F_RDLCK, true) ||
        netlink_open(&b->route, NETLINK_ROUTE, err) ||
        netlink_open(&b->filter, NETLINK_NETFILTER, err) || net_element_watch(&b->watch, err) ||
        prepare(b, p, alone, err)) {
        net_bridge_leave(b, p);
        return -1;
    }
    net_bridge_lock(b->lock, NET_LOCK_SETUP, F_UNLCK, false);
    forget_orphans(b, p);
    return 0;
}

/* ---- making again ---- */

struct port_work {
    struct net_bridge *b;
    const struct net_plan *p;
    int failed;
};

/* What was let through meanwhile is a flow by now: forgotten, it has to pass the rules again. */
static void admit(const char *port, void *arg)
{
    struct port_work *w = arg;
    struct net_ip v4, v6;
    uint32_t index;
    struct err err;

    if (net_plan_index(w->p, port, &index))
        return;
    v4 = net_plan_address(w->p, index);
    v6 = net_plan_address6(w->p, index);
    w->failed |= net_bridge_admit(w->b, w->p, index, &err);
    net_flows_forget(&w->b->filter, &v4);
    net_flows_forget(&w->b->filter, &v6);
}

int net_bridge_repair(struct net_bridge *b, const struct net_plan *p, struct err *err)
{
    struct port_work w = { .b = b, .p = p };
    int r = 0;

    if (net_bridge_lock(b->lock, NET_LOCK_SETUP, F_WRLCK, true))
        return err_sys(err, "lock the network's set-up");
    if (!net_element_tables_there(&b->filter, p)) { /* else another keeper was faster */
        r = prepare(b, p, false, err);
        if (!r && (net_link_ports(b->index, admit, &w) < 0 || w.failed))
            r = err_set(err, ERR_INTERNAL, "tell the packet filter of the ports of %s", p->bridge);
        if (r)
            net_link_down(&b->route, b->index);
        else
            r = 1;
    }
    net_bridge_lock(b->lock, NET_LOCK_SETUP, F_UNLCK, false);
    return r;
}

/* ---- removing ---- */

static void remove_all(struct net_bridge *b, const struct net_plan *p)
{
    struct err err;

    if (b->index && net_link_delete(&b->route, b->index))
        log_warn("the bridge was not removed", KV("bridge", p->bridge));
    if (net_filter_remove(p, &err))
        log_warn("the packet filter was not removed", KV("error", err.msg));
    /* Somebody who routes as well found forwarding switched on, and did not have to do it. */
    net_sysctl_restore(b->lock, net_filter_others_route(p));
}

/* True when there is nothing left to wait for: removed, or others use it. */
static bool try_to_remove(struct net_bridge *b, const struct net_plan *p)
{
    int ports;

    if (net_bridge_lock(b->lock, NET_LOCK_USERS, F_WRLCK, false)) {
        net_bridge_lock(b->lock, NET_LOCK_USERS, F_UNLCK, false);
        return true;
    }
    ports = b->index ? net_link_ports(b->index, NULL, NULL) : 0;
    if (ports)
        return net_bridge_lock(b->lock, NET_LOCK_USERS, F_RDLCK, false), false;
    remove_all(b, p);
    return true;
}

void net_bridge_leave(struct net_bridge *b, const struct net_plan *p)
{
    int64_t until = clock_ms() + ENDING_MS;

    if (!b->in_use)
        return;
    /* A namespace whose last descriptor has just been closed keeps its port for some milliseconds.
     * SETUP is free while we wait, so a keeper that starts now is not held up. */
    while (!net_bridge_lock(b->lock, NET_LOCK_SETUP, F_WRLCK, true)) {
        bool done = try_to_remove(b, p);

        net_bridge_lock(b->lock, NET_LOCK_SETUP, F_UNLCK, false);
        if (done || clock_ms() >= until)
            break;
        usleep(STEP_MS * 1000);
    }
    close_all(b);
}
