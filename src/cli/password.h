/* password.h - a secret from standard input. */
#ifndef CLI_PASSWORD_H
#define CLI_PASSWORD_H

#include <stdbool.h>

#include "base/err.h"

/* One line; on a terminal it is asked for, not shown, and with twice asked for again. The caller
 * wipes and frees it. who: how the prompt begins. */
char *password_read(const char *who, bool twice, struct err *err);

#endif
