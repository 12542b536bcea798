/* impl.h - one call on its way, as the files of this folder see it. */
#ifndef ROUTER_IMPL_H
#define ROUTER_IMPL_H

#include "router/answer.h"
#include "router/host.h"
#include "router/judge.h"
#include "router/router.h"
#include "router/traffic.h"

struct router {
    struct control *control;
    char *domain;      /* without a port */
    char machine[128]; /* this machine's name */
    struct host_names names;
    bool tls, https; /* we speak it; browsers do */
    struct traffic traffic;
    uint64_t requests[TARGET_BYS], refused[ANSWER_WHYS];
};

struct way { /* a call, and what the router knows of it */
    struct router *router;
    struct call *call;
    struct target_fields fields;
    struct target target;
    enum judge_port kind;
    struct str path; /* as the sandbox will see it */
    struct str left; /* the target without what is ours in it; .p NULL: all of it is theirs */
    bool known;      /* it has shown that it may: see judge.h */
    bool key_given;  /* by a key, in Authorization: which then is ours */
};

int way_refuse(struct way *w, enum answer_why why); /* counts and answers: 1 */

/* enter.c: a URL with a ticket. 1 answered, 0 go on. */
int enter_browser(struct way *w, struct sandbox *s);

/* strip.c: takes out of the request what its sandbox must not see. */
void strip_request(struct way *w, const struct sandbox *s);
/* For struct proxy: of the answer. */
bool strip_host(const struct http_field *f, bool answer);   /* an origin of its own */
bool strip_shared(const struct http_field *f, bool answer); /* one that it shares */

#endif
