/* network_allow.h - the option --network-allow of who starts a keeper: `cove serve`, `cove keep`,
 * `cove run`. */
#ifndef CLI_NETWORK_ALLOW_H
#define CLI_NETWORK_ALLOW_H

#include "base/err.h"
#include "cli/args.h"

#define NETWORK_ALLOW_OPTION(type)                                                                 \
    OPTION(type, network_allow, "network-allow", ARGS_TEXT, .env = "COVE_NETWORK_ALLOW",           \
           .value = "PREFIX", .flags = ARGS_REPEAT,                                                \
           .help =                                                                                 \
               "networks that sandboxes with --network open may reach though they are not the "    \
               "public internet: 10.1.0.0/16")

int network_allow(const struct args_list *prefixes, struct err *err);

#endif
