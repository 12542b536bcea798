/* shared.h - the shared directory of the services: logs, screenshots, recordings. */
#ifndef GUEST_SERVICES_SHARED_H
#define GUEST_SERVICES_SHARED_H

#include <stdbool.h>

#include "base/err.h"

/* SHARED_DIR; without it /shared inside a sandbox where it can be written, else sandbox-server in
 * the temporary directory. Made when missing. A descriptor, and its path in *path, which is owned
 * by the caller. */
int shared_open(bool sandbox, char **path, struct err *err);

#endif
