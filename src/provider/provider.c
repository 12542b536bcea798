/* provider.c - see provider.h: what every kind of provider has in common. */
#include "provider/provider.h"

#include "base/log.h"

enum { WITNESSES = 2 };

bool provider_gone(struct provider *p, const char *ref, const struct err *said)
{
    struct machine_state ignored;
    struct err err = *said;

    if (said->code != ERR_NOT_FOUND)
        return false;
    for (int n = said->reason == ERR_NO_SANDBOX; n < WITNESSES; n++) {
        struct err again = { 0 };

        if (!p->ops->stat(p, ref, &ignored, &again) || again.reason != ERR_NO_SANDBOX) {
            log_warn("something was not found, but the machine is not gone", KV("sandbox", ref),
                     KV("error", said->msg));
            return false;
        }
        err = again;
    }
    log_info("a machine is gone", KV("sandbox", ref), KV("witness", "its provider, asked twice"),
             KV("answer", err.msg));
    return true;
}

void provider_closep(struct provider **p)
{
    if (*p)
        (*p)->ops->close(*p);
    *p = NULL;
}
