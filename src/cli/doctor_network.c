/* doctor_network.c - a sandbox's network: veth and bridge, the filter, forwarding. Each is really
 * made, in a network namespace that goes away with the probe. */
#include <errno.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/probe.h"

/* Root makes them where it will need them: with the powers of the machine's user namespace. */
static uint64_t net_namespace(const struct doctor *d)
{
    return CLONE_NEWNET | (d->root ? 0 : CLONE_NEWUSER);
}

struct request {
    struct nlmsghdr head;
    struct ifinfomsg link;
    char room[512];
};

/* Our own attributes only: the room is enough for all of them together. */
static struct rtattr *add(struct request *r, unsigned short type, const void *data, size_t n)
{
    struct rtattr *a = (void *)((char *)r + NLMSG_ALIGN(r->head.nlmsg_len));

    a->rta_type = type;
    a->rta_len = (unsigned short)RTA_LENGTH(n);
    if (n)
        memcpy(RTA_DATA(a), data, n);
    r->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(r->head.nlmsg_len) + RTA_ALIGN(a->rta_len));
    return a;
}

static void close_nest(struct request *r, struct rtattr *a)
{
    a->rta_len = (unsigned short)((char *)r + r->head.nlmsg_len - (char *)a);
}

static struct request new_link(const char *name, uint16_t flags)
{
    struct request r = { .head = { .nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
                                   .nlmsg_type = RTM_NEWLINK,
                                   .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags) } };

    add(&r, IFLA_IFNAME, name, strlen(name) + 1);
    return r;
}

/* By hand, not with libmnl: four requests, and doctor should run where a library is missing.
 * 0, or -1 with the kernel's answer in errno. */
static int talk(int sock, const struct request *r)
{
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[1024];
    } answer;
    ssize_t n;

    if (send(sock, r, r->head.nlmsg_len, 0) < 0)
        return -1;
    n = recv(sock, &answer, sizeof(answer), 0);
    if (n < (ssize_t)NLMSG_LENGTH(sizeof(answer.error)) || answer.head.nlmsg_type != NLMSG_ERROR) {
        errno = EPROTO;
        return -1;
    }
    errno = -answer.error.error;
    return errno ? -1 : 0;
}

static int make_bridge(int sock)
{
    struct request r = new_link("bridge0", NLM_F_CREATE | NLM_F_EXCL);
    struct rtattr *info = add(&r, IFLA_LINKINFO | NLA_F_NESTED, NULL, 0);

    add(&r, IFLA_INFO_KIND, "bridge", sizeof("bridge"));
    close_nest(&r, info);
    return talk(sock, &r);
}

/* Both ends are named at once: a default name could be taken. */
static int make_veth(int sock)
{
    struct request r = new_link("veth0", NLM_F_CREATE | NLM_F_EXCL);
    struct rtattr *info = add(&r, IFLA_LINKINFO | NLA_F_NESTED, NULL, 0), *data, *peer;

    add(&r, IFLA_INFO_KIND, "veth", sizeof("veth"));
    data = add(&r, IFLA_INFO_DATA | NLA_F_NESTED, NULL, 0);
    peer =
        add(&r, VETH_INFO_PEER | NLA_F_NESTED, &(struct ifinfomsg){ 0 }, sizeof(struct ifinfomsg));
    add(&r, IFLA_IFNAME, "veth1", sizeof("veth1"));
    close_nest(&r, peer);
    close_nest(&r, data);
    close_nest(&r, info);
    return talk(sock, &r);
}

/* On the bridge, and isolated there: two sandboxes must not see each other. */
static int join_bridge(int sock)
{
    struct request r = new_link("veth0", 0);
    uint32_t master = if_nametoindex("bridge0");

    add(&r, IFLA_MASTER, &master, sizeof(master));
    return talk(sock, &r);
}

static int isolate(int sock)
{
    struct request r = { .head = { .nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
                                   .nlmsg_type = RTM_SETLINK,
                                   .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK },
                         .link = { .ifi_family = AF_BRIDGE,
                                   .ifi_index = (int)if_nametoindex("veth0") } };
    struct rtattr *port = add(&r, IFLA_PROTINFO | NLA_F_NESTED, NULL, 0);

    add(&r, IFLA_BRPORT_ISOLATED, &(uint8_t){ 1 }, 1);
    close_nest(&r, port);
    return talk(sock, &r);
}

static void inside_links(const struct doctor *d, struct finding *f)
{
    AUTO(closep) int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (sock < 0)
        probe_fail(f, "a netlink socket");
    else if (make_bridge(sock))
        probe_fail(f, "make a bridge");
    else if (make_veth(sock))
        probe_fail(f, "make a pair of veth");
    else if (join_bridge(sock))
        probe_fail(f, "put a veth on a bridge");
    else if (isolate(sock))
        probe_fail(f, "isolate a port of a bridge");
    else if (d->root)
        probe_say(f, DOCTOR_OK, "a veth on a bridge, its port isolated");
    else
        probe_say(f, DOCTOR_WARN, "works, but only root may connect it with the machine's network");
    if (!d->root)
        probe_fix(f, "sudo cove doctor (and run cove as root)");
}

static void probe_links(const struct doctor *d, struct finding *f)
{
    probe_inside(d, net_namespace(d), inside_links, f);
    if (d->root && f->status == DOCTOR_FAIL && strstr(f->seen, "not supported"))
        probe_fix(f, "modprobe -a bridge veth");
}

/* What the filter of sandboxes is made of: a set, nat, and a chain of the bridge's own. */
static void inside_nft(const struct doctor *d, struct finding *f)
{
    static const char *const argv[] = {
        "nft",
        "add table inet cove; add set inet cove open { type ipv4_addr; }; "
        "add chain inet cove forward { type filter hook forward priority 0; }; "
        "add rule inet cove forward ip saddr @open accept; "
        "add chain inet cove nat { type nat hook postrouting priority 100; }; "
        "add rule inet cove nat masquerade; "
        "add table bridge cove; "
        "add chain bridge cove filter { type filter hook prerouting priority 0; }; "
        "add rule bridge cove filter ether type arp accept; "
        "delete table inet cove; delete table bridge cove",
        NULL
    };
    char message[256];

    if (probe_program(argv, message, sizeof(message))) {
        probe_say(f, DOCTOR_FAIL, "%s", message);
        if (strstr(message, "missing"))
            probe_fix_package(d, f, "nft");
        else
            probe_fix_root(d, f, "modprobe -a nf_tables nft_masq nft_chain_nat nf_tables_bridge");
    } else {
        probe_say(f, DOCTOR_OK, "sets, nat and bridge filter were loaded and removed");
    }
}

static void probe_nft(const struct doctor *d, struct finding *f)
{
    probe_inside(d, net_namespace(d), inside_nft, f);
}

static void probe_forward(const struct doctor *d, struct finding *f)
{
    int64_t v;

    if (!d->root) {
        probe_say(f, DOCTOR_OK, "rootless mode does not use it");
        return;
    }
    if (probe_read_number("/proc/sys/net/ipv4/ip_forward", &v)) {
        probe_fail(f, "/proc/sys/net/ipv4/ip_forward");
        return;
    }
    probe_say(f, v ? DOCTOR_OK : DOCTOR_WARN, "net.ipv4.ip_forward is %lld", (long long)v);
    probe_fix_root(d, f, "sysctl -w net.ipv4.ip_forward=1");
}

const struct doctor_check doctor_network[] = {
    { "network.links", "veth and bridge", .probe = probe_links,
      .without = "a way out of a sandbox's network" },
    { "network.nft", "nftables", .probe = probe_nft,
      .without = "a way out of a sandbox's network" },
    { "network.forward", "IPv4 forwarding", .probe = probe_forward,
      .without = "a way out of a sandbox's network" },
    {}
};
