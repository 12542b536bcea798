/* remove.h - removing a whole tree without following a link and without deep recursion. */
#ifndef GUEST_REMOVE_H
#define GUEST_REMOVE_H

#include "base/err.h"

/* Removes name in dir, with everything below it; missing is success. Blocks: for workers. */
int remove_tree(int dir, const char *name, struct err *err);

#endif
