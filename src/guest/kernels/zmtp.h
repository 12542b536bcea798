/* zmtp.h - ZMTP 3.0, as much of it as a Jupyter client needs: DEALER, SUB and REQ over Unix and TCP
 * sockets, security NULL. Written out because libzmq would bring two threads and a C++ runtime into
 * a static program, and because our own loop can read a message straight to where it stays.
 *
 * We announce 3.0 to peers of any 3.x: they then speak it, subscriptions are plain messages, and
 * nobody sends heartbeats over a socket pair that cannot be lost silently. */
#ifndef GUEST_KERNELS_ZMTP_H
#define GUEST_KERNELS_ZMTP_H

#include "io/conn.h"

enum { ZMTP_GREETING = 64, ZMTP_HEADER_MAX = 9, ZMTP_PARTS = 1024, ZMTP_COMMAND_MAX = 4096 };
enum { ZMTP_ROOM = 128 }; /* free bytes before the first part: a frame's head can be put there */

/* ---- the codec: pure (zmtp_frame.c) ---- */

struct zmtp_parts { /* one message: the parts back to back behind ZMTP_ROOM bytes */
    struct buf bytes;
    size_t *ends; /* ends[i] is where part i ends in bytes; owned */
    size_t n, cap;
};

struct str zmtp_part(const struct zmtp_parts *p, size_t i); /* empty beyond the last */
void zmtp_parts_end(struct zmtp_parts *p); /* what was added to bytes since is a part */
void zmtp_parts_begin(struct zmtp_parts *p);
void zmtp_parts_free(struct zmtp_parts *p);

enum zmtp_event { ZMTP_MORE, ZMTP_MESSAGE, ZMTP_COMMAND };

struct zmtp_parser { /* start: { .max = bound of one message } */
    uint64_t max;
    unsigned char head[ZMTP_HEADER_MAX], have;
    bool in_payload, more, command;
    bool skip;               /* this message is larger than the bound: its bytes go nowhere */
    uint64_t skipped;        /* such messages */
    uint64_t left;           /* of the frame's payload */
    struct zmtp_parts parts; /* of the message; the caller may take them after ZMTP_MESSAGE */
    struct buf text;         /* of a command */
};

/* Takes up to n bytes and says how many; *event tells what is complete now. A message beyond the
 * bound is passed over: who sent it has said too much, and nothing else. -1 with err: the peer
 * broke a rule, nothing more may be fed. */
ssize_t zmtp_feed(struct zmtp_parser *in, const void *p, size_t n, enum zmtp_event *event,
                  struct err *err);
void zmtp_parser_free(struct zmtp_parser *in);

size_t zmtp_encode_header(unsigned char out[static ZMTP_HEADER_MAX], bool more, bool command,
                          uint64_t size);
void zmtp_encode_greeting(unsigned char out[static ZMTP_GREETING]);
int zmtp_check_greeting(const unsigned char in[static ZMTP_GREETING], struct err *err);
void zmtp_encode_ready(struct buf *out, const char *socket_type, struct str identity);
/* A READY command whose Socket-Type is one of the comma list. */
int zmtp_check_ready(struct str command, const char *socket_types, struct err *err);

/* ---- connections (zmtp.c) ---- */

enum zmtp_role { ZMTP_DEALER, ZMTP_SUB };

struct zmtp {
    struct conn conn; /* fd -1: not connected */
    struct zmtp_parser in;
    struct co_cond changed; /* somebody stopped writing */
    bool open, writing, broken;
    unsigned senders; /* in zmtp_send(), waiting or not */
};

/* Connects and shakes hands; address is "ipc://path" or "tcp://ip:port". Tries again while nobody
 * listens there, until the deadline or until *stop. SUB subscribes to everything. The struct must
 * not move until zmtp_finish(). */
int zmtp_dial(struct zmtp *z, const char *address, enum zmtp_role role, struct str identity,
              uint64_t max, const bool *stop, int64_t until, struct err *err);
/* The same once more, by who reads it, after its end: senders wait meanwhile. */
int zmtp_redial(struct zmtp *z, const char *address, enum zmtp_role role, struct str identity,
                const bool *stop, int64_t until, struct err *err);
/* 1 a message (take z->in.parts, or leave them to the next read), 0 the end, -1 with err. */
int zmtp_read(struct zmtp *z, int64_t until, struct err *err);
/* All parts as one message; callers may overlap. -1 when the peer is gone or stuck: who reads sees
 * the end then. */
int zmtp_send(struct zmtp *z, const struct str *parts, size_t n, int64_t until, struct err *err);
void zmtp_break(struct zmtp *z);  /* whoever reads or writes it stops */
void zmtp_finish(struct zmtp *z); /* closes; harmless on a zeroed struct */

#endif
