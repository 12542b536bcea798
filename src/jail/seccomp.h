/* seccomp.h - the system call filter of a sandbox. seccomp_table.h says what it lets through. */
#ifndef JAIL_SECCOMP_H
#define JAIL_SECCOMP_H

#include "base/err.h"

/* Puts the filter on the calling process, for good, and on all it will start. Needs CAP_SYS_ADMIN
 * in its user namespace, or no_new_privs: so after the last mount and before the capabilities go.
 * What the filter refuses must be done by then: mounts, namespaces, host name, securebits.
 * What is left for after it: prctl(PR_CAPBSET_DROP), capset, setresuid, execveat.
 * Allocates nothing: safe in a child between clone and exec. */
int seccomp_load(struct err *err);

#endif
