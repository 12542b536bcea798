/* service.h - a service of the sandbox: a process of its own, of the same static file, run as the
 * sandbox's user, that exists only while somebody uses it.
 *
 * keeper of the doors (doors.c), in pid 1 or in `cove-guest services`: holds the listening sockets,
 * waits for the first connection on one of them, starts `services NAME` and lets go of waiting
 * until that has ended. The connection is accepted by the service itself, so nothing is lost
 * between the two, and a service that ends just as a client comes is started again.
 *
 * the service's own process (run.c): descriptors 3, 4 ... are its listening sockets in the order of
 * `ports`, 1 is a pipe for one word or sentence: "ready", or why it cannot be. start() fills in the
 * servers; from then on run.c accepts, logs into the shared directory, and ends the process when
 * nothing has been asked of it for services.idle-ms.
 *
 * To add one: fill in a struct service in a file of its own, and name it in table.c. */
#ifndef GUEST_SERVICES_SERVICE_H
#define GUEST_SERVICES_SERVICE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/setting.h"
#include "io/httpd.h"

enum {
    SERVICE_PORTS = 3,
    SERVICE_LISTENERS = 3, /* descriptor of the first listening socket */
    SERVICE_YIELD = 75,    /* exit status: somebody else wants the ports */
};

struct service_port {
    const char *name;            /* "jupyter"; NULL ends the list */
    int port;                    /* the default */
    const char *port_variable;   /* where the documents' variables set it; NULL: nowhere */
    const char *host_variable;   /* used outside sandboxes; inside it is always 127.0.0.1 */
    const char *inside_variable; /* in place of port_variable in sandboxes; NULL: the same */
};

/* What one running service has; made by run.c, lives as long as the process. */
struct service_context {
    const struct service *service;
    struct httpd *server[SERVICE_PORTS]; /* for start() to fill in, one for each port; static */
    int port[SERVICE_PORTS];             /* the numbers in force */
    const char *shared_dir;              /* exists, and is ours to write */
    bool sandbox;                        /* started by pid 1; false: by hand, on any machine */
    bool keep;                           /* warm: it does not end for idleness */
};

struct service {
    const char *name; /* "rest": as in `cove-guest services rest` and in the status */
    struct service_port ports[SERVICE_PORTS];
    const char *log_file;     /* in the shared directory */
    const char *log_variable; /* another name for it; NULL: none */
    const char *help;         /* one sentence for --help and the status */

    /* Runs on the loop of the service's own process before the first connection is accepted; may
     * park, up to services.start-ms. -1: the sentence is what every waiting client is told, with
     * status 503, so it says what to do (which command is missing). */
    int (*start)(struct service_context *x, struct err *err);
    /* True keeps the process although no connection is open: a kernel runs. May be NULL. */
    bool (*busy)(void);
    /* The sandbox's environment has changed: getenv() says the new one. May be NULL, must not
     * park. Called only from environment_refresh(), which every request begins with. */
    void (*environment)(void);
    /* Before the process ends, for idleness or by SIGTERM: end what was started. May park for
     * services.stop-ms. May be NULL. */
    void (*stop)(void);
};

/* All services, by name; ends with NULL (table.c). */
extern const struct service *const services[];
const struct service *service_find(const char *name);

extern struct service_limits {
    int64_t idle_ms, start_ms, stop_ms, backoff_ms, log_bytes;
    int64_t execute_ms, install_ms, output_bytes, executes;
} service_limits;
extern const struct setting service_settings[];

/* A variable of the service's environment; absent or empty: `fallback`. */
const char *service_env(const char *name, const char *fallback);

#endif
