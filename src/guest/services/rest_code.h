/* rest_code.h - running code and listing packages for the REST service. All park. */
#ifndef GUEST_SERVICES_REST_CODE_H
#define GUEST_SERVICES_REST_CODE_H

#include "base/err.h"
#include "guest/services/rest_request.h"
#include "io/conn.h"

/* Writes {"stdout": ..., "stderr": ...}; what the code does wrong is in there. -1: it could not be
 * run at all, or `peer` has left. */
int rest_code_run(const struct code_request *rq, const struct conn *peer, struct buf *json,
                  struct err *err);
/* Writes [{"name": ..., "version": ...}]; an empty array when it cannot be told. */
void rest_code_packages(struct buf *json);

/* Pure: the answer when packages could not be installed. */
void rest_code_refusal(struct buf *json, const struct code_request *rq, struct str words);

#endif
