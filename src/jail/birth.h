/* birth.h - what a keeper asks its zygote for, and what the new process does with it. One message
 * each way: a head (magic, version; 4 bytes each, little-endian) and tagged fields (base/tag.h).
 * Both ends are the same build today; a zygote that is told what it does not understand says so. */
#ifndef JAIL_BIRTH_H
#define JAIL_BIRTH_H

#include "jail/jail.h"

enum {
    BIRTH_VERSION = 1,
    BIRTH_PATH = 512,
    BIRTH_STAGE = 64,
    BIRTH_MAX = 16 << 10,   /* bytes of the longest message */
    BIRTH_REPLY_MAX = 1024, /* ... and of the longest answer */
};

enum { /* flags */
       BIRTH_ROOTLESS = 1,
       BIRTH_MORTAL = 2,
       BIRTH_NETNS = 4,    /* a descriptor of it comes along; else a new one is made */
       BIRTH_CGROUP = 8,   /* the same */
       BIRTH_HOME = 16,    /* in the zygote's own network namespace, which is no other sandbox's */
       BIRTH_KERNELS = 32, /* with its kernels started in advance */
       BIRTH_DATA = 64,    /* the last layer of /usr is jail_stack.data */
};

/* With it come the child's end of the report socket, the guest's listener, then network namespace
 * and cgroup as the flags say. */
struct birth {
    char id[ORDER_ID], stage[BIRTH_STAGE];
    struct order order;
    uint32_t first_id, flags;
    uint32_t files; /* bit i: mount i of the order is a file */
    uint32_t nroot, nusr;
    /* without privilege layers are opened by the sandbox itself, by path */
    uint32_t nroot_paths;
    char layer[BIRTH_PATH], root[JAIL_LOWERS][BIRTH_PATH], usr[BIRTH_PATH];
};

struct birth_reply { /* of the zygote, with the pidfd; and of the new process, if it fails */
    int32_t pid, error;
    struct err said;
};

int birth_write(const struct birth *b, struct buf *out, struct err *err);
int birth_read(struct str in, struct birth *out, struct err *err);
int birth_write_reply(const struct birth_reply *r, struct buf *out, struct err *err);
int birth_read_reply(struct str in, struct birth_reply *out, struct err *err);

/* In the new process: builds the sandbox around itself. Returns when it may become the guest: 3 is
 * the listener, 4 its oom_score_adj, nothing else is open. Any failure ends it with a sentence for
 * the keeper. */
void inside_build(const struct birth *b, int sock, int listener);

#endif
