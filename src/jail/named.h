/* named.h - a question that who deletes asks: does a sandbox's file name it? Locks say what
 * somebody uses now; a sandbox whose keeper is dead has nobody to hold one. Asked with the
 * exclusive lock on it: who names it from then on has to get a lock first. NULL: nothing is named.
 */
#ifndef JAIL_NAMED_H
#define JAIL_NAMED_H

#include <stdbool.h>

typedef bool jail_named_fn(void *arg, const char *what);

#endif
