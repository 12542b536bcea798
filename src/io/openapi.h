/* openapi.h - an OpenAPI document from route tables. */
#ifndef IO_OPENAPI_H
#define IO_OPENAPI_H

#include "io/httpd.h"

void openapi_write(struct buf *b, const char *title, const char *version,
                   const struct route *const *tables);

#endif
