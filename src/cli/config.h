/* config.h - where the settings of `cove serve` come from: flags, then the environment, then a
 * file, then what is built in. `cove serve` and `cove config` both read them by this. */
#ifndef CLI_CONFIG_H
#define CLI_CONFIG_H

#include "base/envfile.h"

/* The file that counts: the one given, else COVE_CONFIG, else .env here; the last one need not be
 * there. */
const char *config_file(const char *given, bool *required);
/* Puts what it says into our environment, where it is not set already: 1, or 0 without a file. */
int config_load(const char *given, struct err *err);

#endif
