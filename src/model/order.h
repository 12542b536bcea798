/* order.h - what a sandbox was asked to be. One definition for all who pass it on: the control part
 * orders, the provider and the keeper hand it over and remember it, the jail builds it. The table
 * of its fields is how it is written to files and records; docs/reliability.md says how it may
 * change. No I/O. */
#ifndef MODEL_ORDER_H
#define MODEL_ORDER_H

#include "base/tag.h"
#include "model/limits.h"

enum {
    ORDER_ID = 40,     /* room for an id and its NUL ... */
    ORDER_ID_MAX = 36, /* ... of which so many characters are used */
    ORDER_NAME = 128,  /* room for a template's name as it is asked for */
    ORDER_PATH = 256,  /* room for a path */
    ORDER_MOUNTS = 8,
    ORDER_USER = 72,  /* room for a user's name */
    ORDER_TOKEN = 48, /* room for an access token */
};

enum order_network { ORDER_NET_NONE, ORDER_NET_OPEN, ORDER_NETWORKS };

enum {                    /* flags */
       ORDER_STRICT = 1,  /* no_new_privs, no capability */
       ORDER_DURABLE = 2, /* fsync reaches the disk */
       ORDER_TIED = 4,    /* ended when the client that made it leaves */
       ORDER_EAGER = 8, /* answered with a connection to the guest as soon as only building is left
                           to do; if that fails, an event says why */
       ORDER_STAY = 16, /* when its first process dies by itself its files stay, and it is asleep */
       ORDER_PING = 32, /* ping sockets can be opened inside */
       ORDER_FLAGS = 63
};

enum {
    ORDER_MOUNT_READ_ONLY = 1,
    ORDER_MOUNT_ROOT = 2,  /* what root inside makes there is the machine's root's; private keepers
                              only */
    ORDER_MOUNT_GROUP = 4, /* its group is the sandbox's user's though below 1000; private keepers,
                              and others where --allow-mount says so */
    ORDER_MOUNT_FLAGS = 7
};

struct order_mount {
    char host[ORDER_PATH], guest[ORDER_PATH]; /* absolute, without ".." */
    uint32_t flags;
};

/* Whose a machine is, for who finds it without the store that knew. The control part writes it; the
 * keeper keeps it, gives it back, and makes nothing of it. */
enum order_claim {
    ORDER_CLAIM_UNKNOWN, /* made by a release that wrote none */
    ORDER_UNCLAIMED,     /* nobody was told of it: it waits, or its create was not answered */
    ORDER_CLAIMED,
    ORDER_CLAIMS
};

enum {                     /* flags of a mark: what its record says */
       ORDER_PUBLIC = 1,   /* its ports answer without a token */
       ORDER_RESTARTS = 2, /* it is started again when its first process dies */
       ORDER_PLAIN = 4,    /* its guest demands no token */
       ORDER_MARK_FLAGS = 7
};

struct order_mark {
    uint32_t claim;          /* enum order_claim */
    char store[ORDER_ID];    /* which store has its record */
    char owner[ORDER_USER];  /* a user's name; "": nobody's */
    char uuid[ORDER_ID];     /* its other name */
    char token[ORDER_TOKEN]; /* what its guest demands; "": nothing yet */
    uint32_t flags;          /* ORDER_PUBLIC ... */
};

struct order {
    char template[ORDER_NAME];
    char snapshot[ORDER_ID]; /* "": it begins with an empty layer */
    struct limits limits;    /* zeroes: the template's or the table's */
    uint32_t network, flags; /* enum order_network, ORDER_* */
    uint32_t nmounts;
    struct order_mount mounts[ORDER_MOUNTS];
    struct order_mark mark;
};

extern const struct tag_field limits_fields[];
extern const struct tag_field order_mark_fields[];
extern const struct tag_field order_fields[];

/* For who fills one: what does not fit is refused, and nothing is cut. */
int order_set_template(struct order *o, const char *name, struct err *err); /* ERR_NOT_FOUND */
int order_add_mount(struct order *o, const char *host, const char *guest, uint32_t flags,
                    struct err *err);

/* "DIR" or "DIR:group" as --allow-mount has it: the directory, and whether groups below 1000 that
 * own what is mounted from there may be a sandbox's. */
struct str order_mount_prefix(const char *allowed, bool *group);
/* Of such a list (NULL-terminated, or NULL), the one that decides about a path: the deepest above
 * it. NULL: none is. */
const char *order_mount_allowed(const char *const *list, const char *path);

/* Is every field within its bounds? Says which is not. */
int order_check(const struct order *o, struct err *err);
int order_check_mark(const struct order_mark *m, struct err *err);
/* What may become a part of a path, a cgroup's name and a host name. */
bool order_id_valid(const char id[ORDER_ID]);
int order_check_id(const char *field, const char id[ORDER_ID], struct err *err);

#endif
