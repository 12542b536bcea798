/* interpreter_event.h - what a kernel says, as lines of the code interpreter's stream. Pure. */
#ifndef GUEST_KERNELS_INTERPRETER_EVENT_H
#define GUEST_KERNELS_INTERPRETER_EVENT_H

#include "guest/kernels/message.h"

enum event_kind { EVENT_NONE, EVENT_LINE, EVENT_IDLE };

/* One message of iopub: EVENT_LINE added a line of JSON to out, EVENT_IDLE ends the execution. */
enum event_kind event_write(const struct message *m, struct buf *out);
void event_error(struct buf *out, const char *name, const char *value, const char *traceback);
void event_simple(struct buf *out, const char *type); /* keepalive, end_of_execution */

#endif
