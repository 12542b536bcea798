/* weaken.h - taking one defence out, for the negative controls of tests/escape.
 *
 * An ordinary build knows nothing of this: weakened() is the constant false there. A build with
 * -Dweaken=true reads the list in the environment variable COVE_WEAKEN ("seccomp,caps"). */
#ifndef JAIL_WEAKEN_H
#define JAIL_WEAKEN_H

#include <stdbool.h>

#ifdef COVE_WEAKEN
bool weakened(const char *defence);
#else
#define weakened(defence) false
#endif

#endif
