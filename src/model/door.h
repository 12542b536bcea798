/* door.h - the ports of a sandbox on which Cove's own services wait: who connects runs code inside.
 *
 * The guest listens there, the router and forwards ask who may come in: both go by this table. */
#ifndef MODEL_DOOR_H
#define MODEL_DOOR_H

#include "model/sandbox.h"

enum {
    DOOR_REST = 8765,        /* the documents' REST service */
    DOOR_JUPYTER = 8888,     /* Jupyter's kernels, and agent-sandbox's runtime */
    DOOR_INTERPRETER = 49999 /* E2B's code interpreter */
};

/* The variables of a sandbox that move a door, or give it away. */
#define DOOR_REST_VARIABLE        "COVE_REST_PORT"
#define DOOR_JUPYTER_VARIABLE     "JUPYTER_KERNEL_GATEWAY_APP_PORT"
#define DOOR_INTERPRETER_VARIABLE "COVE_INTERPRETER_PORT"
#define DOOR_SERVICES_VARIABLE    "COVE_SERVICES" /* names of those to keep; "none" */

/* In the query of a URL that lets a browser in. */
#define DOOR_TICKET_NAME "cove_token"

/* Does one of its services wait at this port, as its environment has it? A port is a door also
 * while a program inside has borrowed it, and where its variable names no port. */
bool door_of_sandbox(const struct sandbox *s, uint16_t port);

/* "", "all", or the names to keep: is this service among them? */
bool door_is_kept(const char *names, const char *service);

#endif
