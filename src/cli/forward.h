/* forward.h - the ports of `cove forward`, for its test. */
#ifndef CLI_FORWARD_H
#define CLI_FORWARD_H

#include <stdint.h>

#include "base/err.h"

struct forward_ports {
    uint16_t outer, inner; /* outer 0: any free one */
};

int forward_parse(const char *text, struct forward_ports *out, struct err *err); /* "8080:80" */

#endif
