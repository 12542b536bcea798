/* table.c - which services there are, and the bounds they share. */
#include <stdlib.h>
#include <string.h>

#include "guest/kernels/interpreter.h"
#include "guest/services/rest.h"
#include "guest/services/service.h"

const struct service *const services[] = { &rest_service, &kernels_service, NULL };

struct service_limits service_limits = {
    .idle_ms = 300000,
    .start_ms = 30000,
    .stop_ms = 3000,
    .backoff_ms = 200,
    .log_bytes = 500000,
    .execute_ms = 600000,
    .install_ms = 600000,
    .output_bytes = 8 << 20,
    .executes = 64,
};

const struct setting service_settings[] = {
    { "services.idle-ms", &service_limits.idle_ms, 100, INT32_MAX,
      "time without a client after which a service ends" },
    { "services.start-ms", &service_limits.start_ms, 100, 600000,
      "time a service may take to start before who waits for it gets an error" },
    { "services.stop-ms", &service_limits.stop_ms, 0, 600000,
      "time a service gets between SIGTERM and SIGKILL" },
    { "services.backoff-ms", &service_limits.backoff_ms, 1, 60000,
      "pause before a service that failed is started again; doubles up to a minute" },
    { "services.log-bytes", &service_limits.log_bytes, 4096, 1 << 30,
      "size at which a service's log is put aside; one older is kept" },
    { "rest.execute-ms", &service_limits.execute_ms, 100, INT32_MAX,
      "time the code of one /execute may run" },
    { "rest.install-ms", &service_limits.install_ms, 1000, INT32_MAX,
      "time the packages of one /execute may take to install" },
    { "rest.output-bytes", &service_limits.output_bytes, 1024, 1 << 30,
      "output kept of each stream of one /execute" },
    { "rest.executes", &service_limits.executes, 1, 4096,
      "codes of /execute that run at the same time; others wait" },
    { 0 },
};

const struct service *service_find(const char *name)
{
    for (const struct service *const *s = services; *s; s++)
        if (!strcmp((*s)->name, name))
            return *s;
    return NULL;
}

const char *service_env(const char *name, const char *fallback)
{
    const char *value = name ? getenv(name) : NULL;

    return value && *value ? value : fallback;
}
