/* native.h - what the files of the native facade (/v1) share. */
#ifndef API_NATIVE_H
#define API_NATIVE_H

#include "api/api.h"

struct native_sandbox {
    const char *id, *uuid, *template, *state, *owner, *network, *label, *created, *started, *ends,
        *ended, *reason, *unreachable, *on_expiry, *restart, *token, *traffic_token, *domain,
        *facade;
    bool secure, strict, public, auto_resume;
    int64_t timeout, idle;
    struct map metadata;
    const struct limits *limits;
    struct objs mounts, forwards;
};
extern const struct field native_sandbox[];
extern const struct field native_limits[];   /* of struct limits */
extern const struct field native_mounts[];   /* of struct sandbox_mount */
extern const struct field native_forwards[]; /* of struct sandbox_forward */

struct native_names { /* of users, by id: what an admin needs to be shown another's sandbox */
    struct call *call;
    size_t n, room;
    struct native_name {
        int64_t id;
        const char *name;
    } * items;
};
/* Reads them if the caller may see sandboxes of others; parks. */
int native_names_load(struct call *c, struct native_names *out, struct err *err);

void native_show(struct call *c, const struct sandbox *s, const struct native_names *names,
                 struct native_sandbox *out);
/* Shows it by the route's reply table; parks when its owner's name has to be looked up. */
int native_reply_sandbox(struct call *c, struct sandbox *s, struct err *err);
/* What is not 0 must be within the table's bounds. */
int native_check_limits(const struct limits *l, struct err *err);

#endif
