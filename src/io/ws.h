/* ws.h - WebSocket (RFC 6455) for servers and clients, without extensions.
 *
 * A handler upgrades its call and owns the connection until it returns:
 *
 *   AUTO(ws_finish) struct ws ws = { 0 };
 *   struct ws_message m;
 *   int r = ws_accept(c, &ws, NULL, err);
 *
 *   if (r <= 0)
 *       return r;
 *   while ((r = ws_read(&ws, &m, err)) > 0)
 *       if (ws_send(&ws, m.op, m.data.p, m.data.n))
 *           break;
 *
 * One coroutine reads; any number may send, frames never mix. Reading answers pings and the peer's
 * Close by itself. While nobody reads, nothing is taken from the peer: that is the back-pressure.
 */
#ifndef IO_WS_H
#define IO_WS_H

#include "io/httpd.h"

struct ws_limits {
    int64_t message_bytes, ping_ms, idle_ms;
};
extern struct ws_limits ws_limits;
extern const struct setting ws_settings[];

enum ws_op { WS_CONT = 0, WS_TEXT = 1, WS_BINARY = 2, WS_CLOSE = 8, WS_PING = 9, WS_PONG = 10 };

enum ws_code { /* why a connection ends */
               WS_NORMAL = 1000,
               WS_GOING_AWAY = 1001,
               WS_PROTOCOL = 1002,
               WS_NO_CODE = 1005, /* never sent: the Close was empty */
               WS_LOST = 1006,    /* never sent: there was no Close */
               WS_BAD_TEXT = 1007,
               WS_TOO_BIG = 1009,
               WS_INTERNAL = 1011
};

enum ws_role { WS_SERVER, WS_CLIENT }; /* which side we are */

enum { WS_HEADER_MAX = 14, WS_CONTROL_MAX = 125, WS_ACCEPT_LEN = 28 };

/* ---- the codec: pure, bytes in and values out (ws_frame.c) ---- */

struct ws_frame {
    bool fin, masked;
    unsigned char rsv; /* the three reserved bits */
    unsigned char op;  /* as it came: may be none of enum ws_op */
    unsigned char mask[4];
    uint64_t size;
};

/* The header's size; 0: more bytes needed; -1: a length that no encoder may write. */
int ws_decode_header(const unsigned char *p, size_t n, struct ws_frame *out);
size_t ws_encode_header(unsigned char out[static WS_HEADER_MAX], const struct ws_frame *f);
/* XORs in place; offset is p's position within the frame's payload. */
void ws_mask(void *p, size_t n, const unsigned char mask[static 4], uint64_t offset);
bool ws_code_valid(unsigned code); /* may it be on the wire? */
void ws_accept_key(struct str key, char out[static WS_ACCEPT_LEN + 1]);

struct ws_message { /* a message, a piece of one, or a control frame */
    enum ws_op op;
    struct str data;
    bool end; /* the message is complete */
};

struct ws_parser {                         /* start: { .role = ours, .max = bound } */
    enum ws_role role;                     /* ours; it decides who must mask */
    enum ws_op op;                         /* of the message being read; 0 between messages */
    unsigned short have, held;             /* bytes in head, bytes in control */
    unsigned char head[WS_HEADER_MAX];     /* a header that arrives in pieces */
    unsigned char control[WS_CONTROL_MAX]; /* a control frame's payload */
    bool in_payload;
    struct ws_frame frame;
    uint64_t left;       /* of the frame's payload */
    uint64_t total, max; /* bytes of the message, and their bound */
    uint32_t utf8;       /* state of the text's check */
    enum ws_code code;   /* after -1: what to tell the peer; after a Close: what it said */
};

/* Takes up to n bytes and returns how many; unmasks in place. out->op is then WS_CONT (nothing to
 * report yet), a data opcode (the next piece of a message, within p), or a control opcode. -1 with
 * err and in->code when the peer broke a rule: nothing may be fed after that, nor after a Close. */
ssize_t ws_feed(struct ws_parser *in, char *p, size_t n, struct ws_message *out, struct err *err);

/* ---- connections (ws.c) ---- */

struct ws {
    struct conn *conn;    /* borrowed; NULL before the handshake */
    const char *protocol; /* the subprotocol agreed on, one of the list given; NULL: none */
    enum ws_code code;    /* of the end: the peer's, or why we failed it; 0 while open */
    struct str reason;    /* the peer's, UTF-8 */
    struct ws_parser in;
    struct buf message;     /* what does not lie whole in the connection's buffer */
    struct co_cond changed; /* somebody stopped writing */
    bool writing, close_sent;
    bool closed;      /* the peer's Close came */
    bool ended;       /* there is nothing more to read */
    int64_t close_at; /* when to give up waiting for the answer to our Close */
};

/* Over a connection whose handshake is done. The struct must not move until ws_finish(). */
void ws_init(struct ws *ws, struct conn *c, enum ws_role role);
/* Answers the call with 101 and returns 1. 0: it was no proper upgrade and has been answered with
 * 426; -1 with err. protocols: those we speak, ends with NULL, may be NULL. Who may connect from
 * which origin is the caller's decision. */
int ws_accept(struct call *c, struct ws *ws, const char *const *protocols, struct err *err);

struct ws_request { /* all ours: no CR LF in any of it */
    const char *host, *target;
    const char *const *protocols; /* ends with NULL; NULL: none */
    const char *headers;          /* more "Name: value\r\n" lines; NULL: none */
};

int ws_connect(struct ws *ws, struct conn *c, const struct ws_request *r, struct err *err);

/* 1 a whole message, valid until the next read; 0 the peer closed (code and reason say why); -1
 * with err. A message beyond ws.message-bytes ends the connection. */
int ws_read(struct ws *ws, struct ws_message *m, struct err *err);
/* The same for the next piece of a message of any size: no copy, and m->end at the last. */
int ws_read_piece(struct ws *ws, struct ws_message *m, struct err *err);

/* Both return -1 when the peer is gone or a Close was sent. Text is UTF-8 by the caller's word. */
int ws_send(struct ws *ws, enum ws_op op, const void *p, size_t n);
/* One fragment: op for the first, WS_CONT for the others; end for the last. */
int ws_send_piece(struct ws *ws, enum ws_op op, const void *p, size_t n, bool end);

/* Sends the Close, with at most 123 bytes of reason. The reader gets 0 when the peer answers; one
 * that waits already gives up on a peer that does not within ws.ping-ms. */
void ws_close(struct ws *ws, enum ws_code code, const char *reason);
/* Ends the handshake both ways, with 1011 if nobody closed, and lets the peer read our last words.
 * The connection stays its owner's to close. Harmless on a zeroed struct. */
void ws_finish(struct ws *ws);

#endif
