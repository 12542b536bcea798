/* seats.h - how many connections a server may hold, and which one goes when there is another.
 *
 * A server that is full does not turn the next one away: it ends a connection that says nothing.
 * First those whose request has not come yet, then kept ones between two requests, then those whose
 * client has stopped in the middle of a body, or as good as that, then those whose answer nobody
 * takes; of each kind one of the address that has most of them (more or less: see seats.c), and of
 * that address the longest idle. So a stranger with thousands of connections makes place for
 * everybody else's, and who has few keeps them. One whose request is under way is not ended else;
 * where there are only such, the new one is refused.
 *
 * One table per process, shared by all of its servers. No function here parks. */
#ifndef IO_SEATS_H
#define IO_SEATS_H

#include <sys/socket.h>

#include "io/http.h"

enum seat_state {
    SEAT_SILENT, /* a handshake, nothing, or half of the first head; or nobody wants its bytes */
    SEAT_KEPT,   /* between two requests */
    SEAT_OWING,  /* a request whose body has not come yet */
    SEAT_BUSY,   /* a request */
    SEAT_STATES,
};

enum seat_why { /* a connection was ended, for want of room unless said */
                SEAT_WHY_SILENT = SEAT_SILENT,
                SEAT_WHY_KEPT = SEAT_KEPT,
                SEAT_WHY_OWING = SEAT_OWING,
                SEAT_WHY_UNREAD = SEAT_BUSY,
                SEAT_WHY_REFUSED, /* it was new, and all others were busy */
                SEAT_WHY_LATE,    /* it said nothing within http.header-ms */
                SEAT_WHYS,
};

struct seats_counts {
    int64_t now[SEAT_STATES];
    uint64_t ended[SEAT_WHYS]; /* ever */
};

struct seat_peer;

struct seat { /* of one connection; its owner's memory */
    struct list in;
    struct seat_peer *peer; /* NULL: it has been told to end */
    enum seat_state state;
    struct co_ref co;        /* whom to cancel; set by the owner, right after seat_take() */
    const struct conn *conn; /* set by the owner, before its first request */
};

/* For a connection that was just accepted: -1 with err when it has to be refused. Another one may
 * have been cancelled to make room: its coroutine closes it at its next turn. */
int seat_take(struct seat *s, int fd, struct err *err);
void seat_leave(struct seat *s);
void seat_is(struct seat *s, enum seat_state state);
void seat_late(void); /* counts one */

const struct seats_counts *seats_counts(void);

/* By what a peer's connections are counted; of one of its addresses. */
uint64_t seats_key(const struct sockaddr *sa);

/* Is this new descriptor one of the last, which are for the store, guests and the keeper? By its
 * number alone: the kernel gives the lowest that is free. */
bool seats_scarce(int fd);

#endif
