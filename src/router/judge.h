/* judge.h - who may come to a port, and who may wake its sandbox.
 *
 * A sandbox's id is a name: it is in URLs, names and logs. To be known takes one of
 *   its access token   X-Access-Token, or Authorization: Bearer
 *   its traffic token  e2b-traffic-access-token, or Authorization: Bearer
 *   its owner's key    X-API-Key, or Authorization: Bearer; a login's token too
 *   a signed URL       at the guest's port
 *   a browser's cookie, see enter.c, of the same origin */
#ifndef ROUTER_JUDGE_H
#define ROUTER_JUDGE_H

#include "control/control.h"
#include "router/answer.h"

struct way;

enum judge_port {
    JUDGE_PORT,   /* of the sandbox's user */
    JUDGE_DOOR,   /* of a service: who comes in runs code */
    JUDGE_GUEST,  /* which asks for the access token itself */
    JUDGE_HEALTH, /* of the guest: a look */
    JUDGE_PORTS
};

enum judge_who { ALL, KNOWN, NOBODY };

struct judge_rule {
    enum judge_who enters;
    enum judge_who wakes; /* ALL: but not one of which only files are left, for which it is KNOWN */
};

enum judge_port judge_port(const struct sandbox *s, uint16_t port, struct str path);
const struct judge_rule *judge_rule(enum judge_port kind, const struct sandbox *s);

/* Pure: the credential in an Authorization field; empty: none. */
struct str judge_bearer(struct str authorization);
bool judge_is_token(const struct sandbox *s, struct str text); /* one of its two */

/* By what needs no look-up. */
bool judge_knows(struct way *w, const struct sandbox *s);
/* By anything. 0 it is known; -1 with what to say. May park. */
int judge(struct way *w, const struct sandbox *s, enum answer_why *why, struct err *err);

#endif
