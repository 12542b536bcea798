/* openapi.h - an OpenAPI document from route tables. */
#ifndef IO_OPENAPI_H
#define IO_OPENAPI_H

#include "io/httpd.h"

struct openapi {
    const char *title, *version, *description;
    bool envelope;          /* answers are {"code", "msg", "data"}, and `reply` is the data */
    const char *key_header; /* where credentials go; NULL: nothing is said about them */
};

void openapi_write(struct buf *b, const struct openapi *doc, const struct route *const *tables);

#endif
