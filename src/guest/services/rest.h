/* rest.h - the REST service of the documents, port 8765. */
#ifndef GUEST_SERVICES_REST_H
#define GUEST_SERVICES_REST_H

#include "guest/services/service.h"

extern const struct service rest_service;

/* The document at /openapi.json and the page at /docs (rest_document.c). */
extern const char rest_openapi[], rest_docs[];

#endif
