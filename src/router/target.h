/* target.h - which sandbox and port a request is for, from its head alone: pure, no look-up. */
#ifndef ROUTER_TARGET_H
#define ROUTER_TARGET_H

#include "io/http.h"
#include "model/sandbox.h"

enum target_by {
    BY_NONE,    /* not for a sandbox: the API's */
    BY_HOST,    /* {port}-{id}.{domain} */
    BY_E2B,     /* E2b-Sandbox-Id, E2b-Sandbox-Port */
    BY_CLUSTER, /* X-Sandbox-ID and its kin, as the router of agent-sandbox has them */
    BY_PATH,    /* /{id}/{port}/..., on the preview listener only */
    TARGET_BYS
};
extern const char *const target_by_names[TARGET_BYS];

/* The fields of a head that the router reads; .p NULL: absent. Slices of the head. */
struct target_fields {
    struct str host;
    struct str e2b_id, e2b_port, traffic_token, access_token;
    struct str id, namespace, port, pod_ip, uid, timeout; /* X-Sandbox-... */
    struct str api_key, authorization;
    struct str user_agent, accept, referer, cookie, fetch_site;
};

enum { TARGET_ID = 63 }; /* a DNS label */

struct target {
    enum target_by by;
    const char *bad; /* what is wrong with it, for a 400; NULL: nothing */
    char id[TARGET_ID + 1];
    uint16_t port;
    int64_t timeout_ms; /* that the client gave; 0: none */
    struct str prefix;  /* BY_PATH: "/{id}/{port}" */
    struct str rest;    /* BY_PATH: the target behind it; empty: a slash is missing */
};

void target_read(const struct http_head *h, struct target_fields *out);
/* domain: of sandboxes' hosts, without a port. */
void target_find(const struct target_fields *f, struct str domain, struct target *out);
/* The path form; false: it is not of that form. */
bool target_find_path(struct str target, struct target *out);

/* Fields that by their name are for the router and the API alone, and that no sandbox may see. What
 * else is a secret is so by its value: strip.h. */
bool target_is_ours(const struct http_field *f);

/* Is it one of the guest's routes that only the control plane may call? However it is written. */
bool target_is_control(struct str path);

#endif
