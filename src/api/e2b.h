/* e2b.h - what the files of the E2B facade share. Names of members are those of the wire, which is
 * why some are in camelCase. */
#ifndef API_E2B_H
#define API_E2B_H

#include "api/api.h"

#define E2B_CLIENT "6532622b" /* legacy: SDKs demand the key, nobody reads it */

enum {
    E2B_TIMEOUT_S = 300,
    E2B_TIMEOUT_MAX_S = 31536000, /* a year: the bound of the limit "timeout" */
    E2B_TEMPLATE_MAX = 127,
    E2B_PAGE = 100,
};

struct e2b_sandbox { /* what create and connect answer */
    const char *templateID, *sandboxID, *clientID, *alias, *envdVersion, *envdAccessToken,
        *trafficAccessToken, *domain;
};
extern const struct field e2b_sandbox[];
int e2b_reply_sandbox(struct call *c, int status, const struct sandbox *s);

/* What api_sandbox() gives, unless it is about to end: E2B has no state for that, the list and the
 * router do not show it any more, and neither may what is asked about it. */
struct sandbox *e2b_live_sandbox(struct call *c, struct err *err);

/* ---- network options (e2b_network.c) ---- */

struct e2b_network { /* of create; update has no allowPublicTraffic */
    struct strs allowOut, denyOut, dnsServers;
    bool allowPublicTraffic;
    char *maskRequestHost, *httpsPorts, *egressProxy, *rules;
};
extern const struct field e2b_network[];

/* What Cove has of it: all or nothing. The rest is refused by name. n may be NULL. */
int e2b_network_of(const struct e2b_network *n, bool allow_internet, int64_t *network,
                   struct err *err);

#endif
