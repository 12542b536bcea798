/* message.h - messages of Jupyter's kernel protocol: signed on ZeroMQ, framed in two dialects on a
 * WebSocket. The four JSON parts of a message are never taken apart here: a message goes from one
 * side to the other as the bytes it came in. Pure. */
#ifndef GUEST_KERNELS_MESSAGE_H
#define GUEST_KERNELS_MESSAGE_H

#include <nettle/hmac.h>

#include "guest/kernels/zmtp.h"

enum channel { CHANNEL_SHELL, CHANNEL_CONTROL, CHANNEL_STDIN, CHANNEL_IOPUB, CHANNELS };
extern const char *const channel_names[CHANNELS + 1];

enum part { PART_HEADER, PART_PARENT, PART_METADATA, PART_CONTENT, PART_BUFFERS };

/* ---- signatures ---- */

struct signer {
    bool on; /* off: the key is empty, and nothing is signed */
    struct hmac_sha256_ctx keyed;
};

enum { SIGNATURE_LEN = 64 };

void signer_init(struct signer *s, struct str key);
void signer_sign(const struct signer *s, const struct str json[static PART_BUFFERS],
                 char out[static SIGNATURE_LEN + 1]);

/* ---- from a kernel ---- */

struct message { /* shared by all that it is sent to: message_get, message_put */
    unsigned refs;
    enum channel channel;
    struct zmtp_parts parts;
    size_t first;    /* the header's index among parts */
    struct str v1;   /* its frame of the v1 dialect, made at first use */
    struct buf wide; /* v1, where there is no room for it in front of the parts */
    struct buf text; /* its frame of the default dialect, likewise */
    bool binary;     /* text is a binary frame: it has buffers */
    bool unfit;      /* it has no frame of the default dialect: not JSON, or not UTF-8 */
};

/* Takes the parts, checks signature and shape. NULL with err; the parts are then still there. */
struct message *message_take(struct zmtp_parts *parts, enum channel channel, const struct signer *s,
                             struct err *err);
/* One of our own, with a fresh header and no parent. */
struct message *message_make(enum channel channel, const char *type, struct str content);
struct message *message_get(struct message *m);
void message_put(struct message *m);
void message_putp(struct message **m);

struct str message_part(const struct message *m, size_t i); /* PART_..., then the buffers */
size_t message_buffers(const struct message *m);
size_t message_size(const struct message *m);     /* of all parts, bytes */
struct str message_type(const struct message *m); /* of the header; "" where odd */
struct str message_parent(const struct message *m, const char *field); /* plain text, or "" */

/* Frames for a WebSocket; they belong to the message. */
struct str message_v1(struct message *m);
struct str message_default(struct message *m, bool *binary); /* .p NULL: unfit */

/* ---- from a client ---- */

enum { REQUEST_BUFFERS = 256 };

struct request { /* slices of the frame it came in */
    enum channel channel;
    struct str json[PART_BUFFERS];
    struct str buffers[REQUEST_BUFFERS];
    size_t nbuffers;
};

int request_from_v1(struct request *r, struct str frame, struct err *err);
int request_from_text(struct request *r, struct str frame, struct err *err);
int request_from_binary(struct request *r, struct str frame, struct err *err); /* with buffers */
int request_send(const struct request *r, struct zmtp *z, const struct signer *s, int64_t until,
                 struct err *err);

/* Microseconds of the wall clock, always with six digits: clients parse no other form. */
void message_put_time(struct buf *b, int64_t wall_us);
/* A header as we write it; id is written to out_id when it is not NULL: 32 characters and a NUL. */
void message_put_header(struct buf *b, const char *type, const char *session, char *out_id);

#endif
