/* answer.h - what the router says itself, in the three shapes its clients expect: E2B's JSON, the
 * cluster router's {"detail"}, and a page for people. */
#ifndef ROUTER_ANSWER_H
#define ROUTER_ANSWER_H

#include "io/httpd.h"
#include "router/target.h"

enum answer_why {
    WHY_BAD,       /* target.bad says it: 400 */
    WHY_NOT_FOUND, /* no such sandbox, or not running */
    WHY_CLOSED_PORT,
    WHY_TOKEN_MISSING, /* only who is known may enter: judge.h */
    WHY_TOKEN_WRONG,
    WHY_CHANGING, /* between two states */
    WHY_BUSY,     /* too many calls at once */
    WHY_BROKE,    /* closed before an answer */
    WHY_BROKEN,   /* an answer that is not HTTP */
    WHY_LATE,     /* no answer in time */
    WHY_UNAVAILABLE,
    WHY_NO_WAY,      /* and never will be: the provider cannot */
    WHY_CONTROL,     /* a route of the guest's that is not for clients */
    WHY_GUEST_TOKEN, /* only who is known may wake it */
    WHY_FILES_ONLY,  /* the same, as only files are left of it */
    WHY_TICKET,      /* a browser's, which is spent */
    WHY_PAGE,        /* a page came by headers */
    WHY_HOST,        /* not our name */
    ANSWER_WHYS
};

/* Answers; always 1, as a `first` hook says "answered". */
int answer_refuse(struct call *c, const struct target_fields *f, const struct target *t,
                  enum answer_why why);
int answer_healthz(struct call *c);
/* What a browser asks before a page's request: without credentials, which it is about. */
bool answer_is_preflight(const struct call *c);
int answer_preflight(struct call *c);
/* For people who came to the preview listener without naming a sandbox. */
int answer_preview_help(struct call *c, const struct target_fields *f);

#endif
