/* events.h - a sandbox's event log as it grows. */
#ifndef CLI_EVENTS_H
#define CLI_EVENTS_H

#include "cli/remote.h"

struct events_options {
    struct remote_options remote;
    bool follow;
    int64_t tail; /* only the last so many; 0: all */
};

struct events_event {
    int64_t seq;
    char *at, *kind, *actor, *text;
};

/* Prints one: as JSON lines, or by the command's own taste. */
typedef void events_print(const struct events_event *e);
/* All there are, and with follow those that come until the sandbox has ended. */
int events_read(struct remote *r, const char *id, const struct events_options *o,
                events_print *print, struct err *err);

#endif
