/* v2.h - what release 46eceed wrote: its records on the wire (version 2) and its files, both as C
 * structs. Frozen: these are copies of that release's structs, and nothing here ever changes. It
 * goes when no keeper and no file of that release is left to meet (docs/reliability.md). */
#ifndef KEEP_V2_H
#define KEEP_V2_H

#include "keep/boxfile.h"
#include "keep/record.h"

enum { V2_REQUEST_BYTES = 4472, V2_REPLY_BYTES = 2904 };

/* Of the wire. in: exactly one record, which is checked as that release did. */
int v2_read_request(struct str in, struct keep_request *out, struct err *err);
int v2_read_reply(struct str in, struct keep_reply *out, struct err *err);
/* ERR_UNSUPPORTED: that release cannot be asked for this. */
int v2_write_request(const struct keep_request *r, struct buf *out, struct err *err);
void v2_write_reply(const struct keep_reply *r, struct buf *out);

/* Of a file: 1 it is one of that release, 0 it is not; -1 with err: it is, and is damaged. A record
 * that was cut short (its keeper was killed while it wrote) is ERR_NOT_FOUND: nothing had been made
 * yet. */
int v2_read_boxfile(struct str in, enum boxfile_kind kind, struct boxfile *out, struct err *err);

#endif
