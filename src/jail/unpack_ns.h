/* unpack_ns.h - the namespaces an archive is unpacked in: a child that sees one directory.
 *
 *   parent                              child
 *   unpack_ns_clone  ------------------> unpack_ns_clone returns 0
 *   unpack_ns_admit: id maps, the
 *     idmapped directory, go message --> unpack_ns_enter: pivot_root, drop capabilities
 *
 * Anything that fails here is fatal to the child: it never parses a byte half jailed. */
#ifndef JAIL_UNPACK_NS_H
#define JAIL_UNPACK_NS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct unpack_ns {
    const char *target; /* the child's whole world */
    bool privileged;    /* a range of ids; else only the caller's own */
    int sock;           /* this side's end */
    int other;          /* the other's, until the clone */
    pid_t pid;          /* of the child, in the parent */
};

/* 0 in the child, its pid in the parent, -1 with err. */
int unpack_ns_clone(struct unpack_ns *ns, struct err *err);
int unpack_ns_admit(struct unpack_ns *ns, struct err *err); /* parent */
/* Child: returns with the target as "/", and only the descriptors in keep[] open. */
int unpack_ns_enter(struct unpack_ns *ns, const int *keep, size_t n, struct err *err);

#endif
