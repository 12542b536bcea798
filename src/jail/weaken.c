/* weaken.c - see weaken.h. */
#include "jail/weaken.h"

#ifdef COVE_WEAKEN
#include <stdlib.h>

#include "base/str.h"

bool weakened(const char *defence) { return str_has_item(str_of(getenv("COVE_WEAKEN")), defence); }
#endif
