/* e2b_network.c - E2B's network options against what a sandbox of ours can have: open, or none. An
 * option that would have to be ignored is refused, for a filter that does nothing is worse than an
 * error. */
#include "api/e2b.h"

#define SUPPORTED "supported are denyOut [\"0.0.0.0/0\"] and allow_internet_access"

const struct field e2b_network[] = {
    FIELD(struct e2b_network, allowOut, F_STRS, .max = 256,
          .help = "only [\"0.0.0.0/0\"], which is everything"),
    FIELD(struct e2b_network, denyOut, F_STRS, .max = 256,
          .help = "only [\"0.0.0.0/0\"], which is everything"),
    FIELD(struct e2b_network, allowPublicTraffic, F_BOOL, .def = true,
          .help = "false: ports answer only to requests with trafficAccessToken"),
    FIELD(struct e2b_network, dnsServers, F_STRS, .max = 10, .help = "not supported"),
    FIELD(struct e2b_network, maskRequestHost, F_JSON, .help = "not supported"),
    FIELD(struct e2b_network, httpsPorts, F_JSON, .help = "not supported"),
    FIELD(struct e2b_network, egressProxy, F_JSON, .help = "not supported"),
    FIELD(struct e2b_network, rules, F_JSON, .help = "not supported"),
    {}
};

static bool is_all(const char *cidr) { return !strcmp(cidr, "0.0.0.0/0") || !strcmp(cidr, "::/0"); }

/* 1 everything, 0 nothing, -1 something in between */
static int extent(const struct strs *list)
{
    for (size_t i = 0; i < list->n; i++)
        if (!is_all(list->items[i]))
            return -1;
    return list->n > 0;
}

static int refuse_partial(const struct strs *list, const char *name, struct err *err)
{
    if (extent(list) >= 0)
        return 0;
    return err_set(err, ERR_INVALID,
                   "field 'network.%s': lists of addresses or names are not supported; " SUPPORTED,
                   name);
}

static bool is_given(const char *json)
{
    return json && strcmp(json, "{}") && strcmp(json, "[]") && strcmp(json, "\"\"");
}

int e2b_network_of(const struct e2b_network *n, bool allow_internet, int64_t *network,
                   struct err *err)
{
    *network = allow_internet ? NETWORK_OPEN : NETWORK_NONE;
    if (!n)
        return 0;
    const struct {
        const char *name;
        bool given;
    } others[] = {
        { "dnsServers", n->dnsServers.n },
        { "maskRequestHost", is_given(n->maskRequestHost) },
        { "httpsPorts", is_given(n->httpsPorts) },
        { "egressProxy", is_given(n->egressProxy) },
        { "rules", is_given(n->rules) },
    };

    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (others[i].given)
            return err_set(err, ERR_INVALID, "field 'network.%s' is not supported; " SUPPORTED,
                           others[i].name);
    if (refuse_partial(&n->allowOut, "allowOut", err) ||
        refuse_partial(&n->denyOut, "denyOut", err))
        return -1;
    if (extent(&n->allowOut) > 0) /* in E2B's order of things an allow wins over any deny */
        *network = NETWORK_OPEN;
    else if (extent(&n->denyOut) > 0)
        *network = NETWORK_NONE;
    return 0;
}
