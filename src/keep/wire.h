/* wire.h - records as bytes, on a seqpacket socket: one message each.
 *
 *   head    magic, version, verb (a reply: kind), 0 (a reply: verb), each 4 bytes; serial, 8 bytes
 *   body    tagged fields (base/tag.h)
 *
 * All numbers are little-endian. The first request of a connection to a keeper that somebody else
 * started is KEEP_HELLO; the answer says which versions that keeper speaks, and one of a release
 * without it answers in version 2, as an error. From then on both speak the newest version that
 * both know. A version is a form of the bytes: a verb or a field more is no new one. */
#ifndef KEEP_WIRE_H
#define KEEP_WIRE_H

#include "keep/record.h"

enum { WIRE_HEAD = 24, WIRE_MAX = 12 << 10 }; /* bytes of the longest record of any version */

/* Appends. version: KEEP_VERSION_OLDEST to KEEP_VERSION. */
int wire_write_request(const struct keep_request *r, uint32_t version, struct buf *out,
                       struct err *err);
int wire_write_reply(const struct keep_reply *r, uint32_t version, struct buf *out,
                     struct err *err);

/* Reads one record and checks it. *version: what it is in, and what an answer must be in; also when
 * it is refused, and then out->serial is whom to answer. A version that we do not know yet is read
 * as ours: it may have more fields. unknown: what out->unknown points to. */
int wire_read_request(struct str in, struct keep_request *out, uint32_t *version,
                      struct buf *unknown, struct err *err);
int wire_read_reply(struct str in, struct keep_reply *out, uint32_t *version, struct err *err);

#endif
