/* run.h - `cove-guest services ...`: all services by hand, or one of them in its own process. */
#ifndef GUEST_SERVICES_RUN_H
#define GUEST_SERVICES_RUN_H

int run_main(int argc, char **argv); /* argv[1] is "services"; the exit status */

#endif
