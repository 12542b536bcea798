/* interpreter.h - the code interpreter on port 49999, as E2B's SDKs speak to it. */
#ifndef GUEST_KERNELS_INTERPRETER_H
#define GUEST_KERNELS_INTERPRETER_H

#include "guest/services/service.h"
#include "io/httpd.h"

extern struct httpd interpreter_server;
extern const struct service kernels_service;

#endif
