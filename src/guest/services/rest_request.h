/* rest_request.h - what clients send to the REST service, checked as FastAPI checks it: a failure
 * is a list of {type, loc, msg, input} that names the place. Pure. */
#ifndef GUEST_SERVICES_REST_REQUEST_H
#define GUEST_SERVICES_REST_REQUEST_H

#include "base/arena.h"
#include "base/buf.h"

enum { REST_PACKAGES = 256, REST_PACKAGE_BYTES = 512 };

struct code_request {
    struct str code;
    char **packages; /* from the arena; npackages of them */
    size_t npackages;
};

/* 0, or -1 with {"detail": [...]} in `wrong`. */
int rest_request_code(struct str body, struct arena *a, struct code_request *out,
                      struct buf *wrong);
/* The parameter `mode`; value.p NULL: absent. */
int rest_request_mode(struct str value, struct buf *wrong);

#endif
