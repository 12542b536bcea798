/* lend.h - does a command look as if it wants a port for itself? Pure.
 *
 * Two programs cannot listen on one port, and the kernel tells nobody that one is about to try. But
 * a command that starts a server mostly names its port: `python3 -m http.server 8888`,
 * `--port=8888`,
 * `--bind 0.0.0.0:8888`, PORT=8888. One that is a client names it behind a host: localhost:8888,
 * http://127.0.0.1:8888/. Taking a client for a server costs little (the port is held again a
 * moment later), and what is not seen here has COVE_SERVICES. */
#ifndef GUEST_SERVICES_LEND_H
#define GUEST_SERVICES_LEND_H

#include "guest/process.h"

bool lend_wanted(const struct process_config *c, int port);

#endif
