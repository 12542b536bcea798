/* run.h - `cove-guest services ...`: all services by hand, or one of them in its own process. */
#ifndef GUEST_SERVICES_RUN_H
#define GUEST_SERVICES_RUN_H

enum {
    RUN_EXIT_YIELD = 75, /* of a service's process: the port is wanted by somebody else */
    RUN_LISTENERS = 3,   /* its first listening socket */
};

int run_main(int argc, char **argv); /* argv[1] is "services"; the exit status */

#endif
