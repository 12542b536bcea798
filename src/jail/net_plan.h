/* net_plan.h - names and numbers of the sandbox network, derived from the options and a sandbox's
 * number. Pure: no descriptor, no system call. */
#ifndef JAIL_NET_PLAN_H
#define JAIL_NET_PLAN_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>

#include "base/err.h"
#include "base/setting.h"
#include "base/str.h"

enum {
    NET_INDEXES = 49152,
    NET_BRIDGE_MAX = 9, /* a port is called BRIDGE-INDEX and has to fit into IFNAMSIZ */
    NET_ALLOW_MAX = 64,
    NET_MAC = 6,
};

struct net_options {         /* NULL: the default */
    const char *run_dir;     /* of the machine, not of one keeper: /run/cove */
    const char *bridge;      /* cove0; also the name of the filter tables */
    const char *subnet;      /* 10.201.0.0/16 */
    const char *allow;       /* private networks sandboxes may reach: "10.1.0.0/16,fd12::/16" */
    const char *resolv_conf; /* /etc/resolv.conf: where the name server relay asks */
};

extern const struct setting net_settings[];
extern const struct net_options net_configured; /* by them */

struct net_ip {
    int family; /* AF_INET, AF_INET6 */
    union {
        struct in_addr v4;
        struct in6_addr v6;
        unsigned char b[16];
    };
};

struct net_cidr {
    struct net_ip ip;
    unsigned prefix;
};

struct net_plan {
    char run_dir[200];
    char resolv_conf[200];
    char bridge[NET_BRIDGE_MAX + 1];
    struct net_cidr subnet, subnet6;
    struct net_ip gateway, gateway6;
    struct net_cidr allow[NET_ALLOW_MAX];
    size_t nallow;
};

int net_plan_init(struct net_plan *p, const struct net_options *o, struct err *err);
struct net_ip net_plan_address(const struct net_plan *p, uint32_t index);
struct net_ip net_plan_address6(const struct net_plan *p, uint32_t index);
void net_plan_port(const struct net_plan *p, uint32_t index, char out[static IFNAMSIZ]);
int net_plan_index(const struct net_plan *p, const char *port, uint32_t *index); /* -1: not ours */
/* The MAC of whoever has this IPv4 address. */
void net_plan_mac(const struct net_ip *ip, unsigned char out[static NET_MAC]);

size_t net_ip_size(int family);
int net_cidr_parse(struct str text, struct net_cidr *out, struct err *err); /* no prefix: one */
void net_cidr_print(const struct net_cidr *c, char *out, size_t n);
bool net_cidr_overlap(const struct net_cidr *a, const struct net_cidr *b);

#endif
