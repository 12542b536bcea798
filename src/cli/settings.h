/* settings.h - every bound with a name that `cove serve` has, for --set and `cove config`. */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include "base/setting.h"

extern const struct setting *const settings_of_serve[]; /* ends with NULL */
extern const struct setting *const settings_of_keep[];  /* a keeper's alone */

#endif
