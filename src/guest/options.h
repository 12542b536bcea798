/* options.h - the command line of cove-guest, from one table. */
#ifndef GUEST_OPTIONS_H
#define GUEST_OPTIONS_H

#include "guest/guest.h"

enum { LISTENERS = 8 };

struct options {
    int listeners[LISTENERS];
    size_t nlisteners;
    int ready_fd;     /* -1: none */
    bool services;    /* hold their ports */
    const char *warm; /* the service to start at once; NULL: none */
};

/* 0 go on, 1 answered (--help, --version ...), -1 with err. Fills the guest too. */
int options_parse(struct options *o, int argc, char **argv, struct guest *g,
                  const struct route *const *tables, struct err *err);
void options_announce(const struct options *o); /* one line, and a byte on the ready descriptor */

#endif
