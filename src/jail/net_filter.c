/* net_filter.c - see net_filter.h.
 *
 * Whatever is refused is answered at once (TCP reset, ICMP "administratively prohibited"), so that
 * a program inside fails instead of hanging. An accept here does not overrule another table's drop:
 * the host's own firewall has its say, and net_filter_obstacles() finds it. */
#include "jail/net_filter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "io/netrange.h"
#include "jail/weaken.h"

static void put_address(const struct net_ip *ip, char out[static INET6_ADDRSTRLEN])
{
    inet_ntop(ip->family, ip->b, out, INET6_ADDRSTRLEN);
}

/* A set that holds networks; the elements are replaced. */
static void put_networks(const struct net_plan *p, struct buf *b, const char *set, const char *type,
                         const char *elements)
{
    buf_printf(b, "add set inet %s %s { type %s; flags interval; auto-merge; }\n", p->bridge, set,
               type);
    buf_printf(b, "flush set inet %s %s\n", p->bridge, set);
    if (*elements)
        buf_printf(b, "add element inet %s %s { %s }\n", p->bridge, set, elements);
}

static void put_allow(const struct net_plan *p, struct buf *b, int family, const char *set,
                      const char *type)
{
    AUTO(buf_free) struct buf list = { 0 };
    char text[64];

    for (size_t i = 0; i < p->nallow; i++) {
        if (p->allow[i].ip.family != family)
            continue;
        net_cidr_print(&p->allow[i], text, sizeof(text));
        buf_printf(&list, "%s%s", list.len ? ", " : "", text);
    }
    put_networks(p, b, set, type, buf_cstr(&list));
}

/* What is not the public internet, by the one list of it. */
static void put_deny(const struct net_plan *p, struct buf *b, int family, const char *set,
                     const char *type)
{
    AUTO(buf_free) struct buf list = { 0 };

    if (!weakened("net-deny"))
        netrange_print(family, &list);
    put_networks(p, b, set, type, buf_cstr(&list));
}

static void put_sets(const struct net_plan *p, struct buf *b)
{
    const char *t = p->bridge;

    buf_printf(b, "add table inet %s\nadd table bridge %s\n", t, t);
    buf_printf(b, "add set inet %s open4 { type ipv4_addr; }\n", t);
    buf_printf(b, "add set inet %s open6 { type ipv6_addr; }\n", t);
    /* Filled by the rules themselves: who asks how often, who has how many flows. */
    buf_printf(b, "add set inet %s asks { type ipv4_addr; flags dynamic; timeout 10s; }\n", t);
    buf_printf(b, "add set inet %s flows4 { type ipv4_addr; flags dynamic; }\n", t);
    buf_printf(b, "add set inet %s flows6 { type ipv6_addr; flags dynamic; }\n", t);
    /* Who has ever opened a flow: net_flows.h. The gateway is in it, too. */
    buf_printf(b, "add set inet %s seen4 { type ipv4_addr; flags dynamic; size %d; }\n", t,
               NET_INDEXES + 1);
    buf_printf(b, "add set inet %s seen6 { type ipv6_addr; flags dynamic; size %d; }\n", t,
               NET_INDEXES + 1);
    put_allow(p, b, AF_INET, "allow4", "ipv4_addr");
    put_allow(p, b, AF_INET6, "allow6", "ipv6_addr");
    put_deny(p, b, AF_INET, "deny4", "ipv4_addr");
    put_deny(p, b, AF_INET6, "deny6", "ipv6_addr");
    buf_printf(b, "add set bridge %s ports4 { type ifname . ether_addr . ipv4_addr; }\n", t);
    buf_printf(b, "add set bridge %s ports6 { type ifname . ether_addr . ipv6_addr; }\n", t);
}

/* Chains are emptied and filled in the same transaction: no packet sees half of them. */
static void put_chain(const struct net_plan *p, struct buf *b, const char *family, const char *name,
                      const char *hook)
{
    buf_printf(b, "add chain %s %s %s %s\nflush chain %s %s %s\n", family, p->bridge, name, hook,
               family, p->bridge, name);
}

/* Rules are written with three marks: $br the bridge, $gw4 $gw6 its addresses, $net4 $net6 ours. */
struct rules {
    const char *family, *chain, *hook, *text;
};

static const struct rules rules[] = {
    { "inet", "refuse", "",
      "counter\n"
      "meta l4proto tcp reject with tcp reset\n"
      "reject with icmpx admin-prohibited\n" },
    /* A chain of its own, which a Cove that does not know it leaves alone when it loads its own.
     * "related": a flow that a helper of the kernel expected begins so. */
    { "inet", "notice", "{ type filter hook prerouting priority mangle; policy accept; }",
      "iifname != \"$br\" accept\n"
      "ct state new,related add @seen4 { ip saddr }\n"
      "ct state new,related add @seen6 { ip6 saddr }\n" },
    /* Decides on the destination the sandbox wrote, before the host's own rules for redirected
     * ports can change it, and before routing tells one sandbox how to reach the other. */
    { "inet", "prerouting", "{ type filter hook prerouting priority mangle; policy accept; }",
      "iifname != \"$br\" accept\n"
      "ip daddr $gw4 accept\n"
      "ip6 daddr $gw6 accept\n"
      "fib daddr type local jump refuse\n"
      "ip daddr $net4 jump refuse\n"
      "ip6 daddr $net6 jump refuse\n" },
    { "inet", "input", "{ type filter hook input priority -10; policy accept; }",
      "iifname != \"$br\" accept\n"
      /* A flood must not fill the relay's socket; what is just too often, it refuses itself. */
      "udp dport 53 update @asks { ip saddr limit rate over 2000/second burst 4000 packets } drop\n"
      "ct state established,related accept\n"
      "ip daddr $gw4 meta l4proto { tcp, udp } th dport 53 accept\n"
      "jump refuse\n" },
    { "inet", "forward", "{ type filter hook forward priority -10; policy accept; }",
      "iifname != \"$br\" oifname != \"$br\" accept\n"
      "tcp flags syn tcp option maxseg size set rt mtu\n"
      "ct state established,related accept\n"
      "oifname \"$br\" jump refuse\n" /* nobody opens a connection to a sandbox */
      "ct state invalid drop\n"       /* would leave with the sandbox's own address */
      "meta nfproto ipv4 ip saddr != @open4 jump refuse\n"
      "meta nfproto ipv6 ip6 saddr != @open6 jump refuse\n"
      /* The table of flows is the whole host's: one sandbox may have a part of it. */
      "ct state new add @flows4 { ip saddr ct count over 4096 } jump refuse\n"
      "ct state new add @flows6 { ip6 saddr ct count over 4096 } jump refuse\n"
      "ip daddr @allow4 accept\n"
      "ip6 daddr @allow6 accept\n"
      "ip daddr @deny4 jump refuse\n"
      "ip6 daddr @deny6 jump refuse\n"
      "ip6 daddr " NETRANGE_ISATAP " jump refuse\n" },
    { "inet", "postrouting", "{ type nat hook postrouting priority srcnat; policy accept; }",
      "ip saddr $net4 oifname != \"$br\" masquerade\n"
      "ip6 saddr $net6 oifname != \"$br\" masquerade\n" },
    /* Neighbours are fixed on both sides, so not even ARP has to pass. */
    { "bridge", "prerouting", "{ type filter hook prerouting priority -300; policy accept; }",
      "iifname != \"$br-*\" accept\n"
      "iifname . ether saddr . ip saddr @ports4 accept\n"
      "iifname . ether saddr . ip6 saddr @ports6 accept\n"
      "counter drop\n" },
};

static void put_marked(const struct net_plan *p, struct buf *b, struct str line)
{
    char gw4[INET6_ADDRSTRLEN], gw6[INET6_ADDRSTRLEN], net4[64], net6[64];
    const struct {
        const char *mark, *text;
    } marks[] = {
        { "$br", p->bridge }, { "$gw4", gw4 }, { "$gw6", gw6 }, { "$net4", net4 }, { "$net6", net6 }
    };

    put_address(&p->gateway, gw4);
    put_address(&p->gateway6, gw6);
    net_cidr_print(&p->subnet, net4, sizeof(net4));
    net_cidr_print(&p->subnet6, net6, sizeof(net6));
    while (line.n) {
        size_t skip = 1, i;

        for (i = 0; i < ARRAY_LEN(marks) && !str_starts(line, marks[i].mark); i++)
            ;
        if (i < ARRAY_LEN(marks)) {
            buf_puts(b, marks[i].text);
            skip = strlen(marks[i].mark);
        } else {
            buf_putc(b, *line.p);
        }
        line = (struct str){ line.p + skip, line.n - skip };
    }
}

void net_filter_text(const struct net_plan *p, bool fresh, struct buf *out)
{
    static const char *const families[] = { "inet", "bridge" };

    for (size_t i = 0; fresh && i < ARRAY_LEN(families); i++) /* "add" first: it may not exist */
        buf_printf(out, "add table %s %s\ndelete table %s %s\n", families[i], p->bridge,
                   families[i], p->bridge);
    put_sets(p, out);
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        struct str rest = str_of(rules[i].text), line;

        if (!strcmp(rules[i].family, "bridge") && weakened("net-antispoof"))
            continue;
        put_chain(p, out, rules[i].family, rules[i].chain, rules[i].hook);
        if (!strcmp(rules[i].chain, "refuse") && weakened("net-refuse"))
            continue; /* empty: what jumps there comes back */
        while (str_next(&rest, '\n', &line)) {
            if (!line.n)
                continue;
            buf_printf(out, "add rule %s %s %s ", rules[i].family, p->bridge, rules[i].chain);
            put_marked(p, out, line);
            buf_putc(out, '\n');
        }
    }
}

/* ---- the program ---- */

static int memory_file(const char *name, const struct buf *content, struct err *err)
{
    AUTO(closep) int fd = memfd_create(name, MFD_CLOEXEC);

    if (fd < 0 || write(fd, buf_cstr(content), content->len) != (ssize_t)content->len ||
        lseek(fd, 0, SEEK_SET))
        return err_sys(err, "memory for %s", name);
    return TAKE(fd, -1);
}

_Noreturn static void exec_nft(const char *const *arguments, const int fd[2])
{
    static const char *const paths[] = { "/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft",
                                         "/usr/local/sbin/nft" };
    char *const env[] = { NULL };

    if (dup2(fd[0], 0) < 0 || dup2(fd[1], 1) < 0 || dup2(fd[1], 2) < 0)
        _exit(126);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        execve(paths[i], (char *const *)(size_t)arguments, env);
    _exit(127);
}

static void read_all(int fd, struct buf *out)
{
    ssize_t r;

    lseek(fd, 0, SEEK_SET);
    do {
        buf_reserve(out, 16 << 10);
        r = read(fd, out->data + out->len, 16 << 10);
        out->len += r > 0 ? (size_t)r : 0;
        out->data[out->len] = 0;
    } while (r > 0 || (r < 0 && errno == EINTR));
}

/* Standard input and output are files in memory: no pipe that could fill up. */
static int run_nft(const char *const *arguments, const struct buf *input, struct buf *output,
                   struct err *err)
{
    const struct buf empty = { 0 };
    AUTO(closep) int in = memory_file("nft input", input ? input : &empty, err);
    AUTO(closep) int out = in < 0 ? -1 : memory_file("nft output", &empty, err);
    pid_t pid;
    int status;

    if (in < 0 || out < 0)
        return -1;
    pid = fork();
    if (pid < 0)
        return err_sys(err, "start nft");
    if (!pid)
        exec_nft(arguments, (const int[]){ in, out });
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, "wait for nft");
    read_all(out, output);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return err_set(err, ERR_UNSUPPORTED,
                       "the program nft is not installed: install the package nftables");
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return err_set(err, ERR_INTERNAL, "nft: %.180s", buf_cstr(output));
    return 0;
}

int net_filter_load(const struct net_plan *p, bool fresh, struct err *err)
{
    static const char *const arguments[] = { "nft", "-f", "-", NULL };
    AUTO(buf_free) struct buf text = { 0 }, output = { 0 };

    net_filter_text(p, fresh, &text);
    return run_nft(arguments, &text, &output, err);
}

int net_filter_remove(const struct net_plan *p, struct err *err)
{
    static const char *const arguments[] = { "nft", "-f", "-", NULL };
    AUTO(buf_free) struct buf text = { 0 }, output = { 0 };

    buf_printf(
        &text,
        "add table inet %s\ndelete table inet %s\nadd table bridge %s\ndelete table bridge %s\n",
        p->bridge, p->bridge, p->bridge, p->bridge);
    return run_nft(arguments, &text, &output, err);
}

struct chain {
    const char *family, *table, *name, *type, *hook, *policy;
};

/* The base chains of all tables; the caller drops the result, which they point into. */
static json_t *list_chains(struct err *err)
{
    static const char *const arguments[] = { "nft", "-j", "list", "chains", NULL };
    AUTO(buf_free) struct buf text = { 0 };
    json_t *root;

    if (run_nft(arguments, NULL, &text, err))
        return NULL;
    root = json_read(buf_str(&text), err);
    if (!root)
        err_in(err, "nft -j list chains");
    return root;
}

static bool read_chain(json_t *item, struct chain *c)
{
    return !json_unpack(item, "{s:{s:s, s:s, s:s, s:s, s:s, s:s}}", "chain", "family", &c->family,
                        "table", &c->table, "name", &c->name, "type", &c->type, "hook", &c->hook,
                        "policy", &c->policy);
}

bool net_filter_others_route(const struct net_plan *p)
{
    struct err err;
    AUTO(json_dropp) json_t *root = list_chains(&err);
    json_t *item;
    size_t i;
    struct chain c;

    json_array_foreach(json_object_get(root, "nftables"), i,
                       item) if (read_chain(item, &c) && !strcmp(c.type, "nat") &&
                                 !strcmp(c.hook, "postrouting") &&
                                 strcmp(c.table, p->bridge)) return true;
    return false;
}

int net_filter_obstacles(struct buf *out, struct err *err)
{
    AUTO(json_dropp) json_t *root = list_chains(err);
    json_t *item;
    size_t i;
    struct chain c;

    if (!root)
        return -1;
    json_array_foreach(json_object_get(root, "nftables"), i,
                       item) if (read_chain(item, &c) && !strcmp(c.policy, "drop") &&
                                 (!strcmp(c.hook, "forward") || !strcmp(c.hook, "input")))
        buf_printf(out,
                   "the firewall chain %s %s %s drops by default in its %s hook: let it accept "
                   "packets of the sandbox bridge\n",
                   c.family, c.table, c.name, c.hook);
    return 0;
}
