/* privilege.h - what sandbox root may do: the capability set, and how the guest keeps just enough
 * of it in profile strict. */
#ifndef JAIL_PRIVILEGE_H
#define JAIL_PRIVILEGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* For the child, after its last mount and after the filter: limits what it and its children can
 * ever hold. */
int privilege_drop(bool strict, struct err *err);

#endif
