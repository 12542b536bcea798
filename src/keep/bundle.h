/* bundle.h - a backup with files: a tar archive of these members, in this order, and nothing else.
 *
 *   cove-backup                  its format: "1\n"
 *   cove.db                      a copy of the database
 *   sandboxes/<id>/note          of each paused sandbox: what it was (boxfile.h) ...
 *   sandboxes/<id>/layer.tar     ... and its files (jail/pack.h)
 *   SHA256SUMS                   of all that stand before it, as sha256sum writes and checks them
 *
 * The sums come last: without them it is not whole. The heads are exactly those that we write: one
 * that says the same in another way is refused. */
#ifndef KEEP_BUNDLE_H
#define KEEP_BUNDLE_H

#include "base/buf.h"
#include "model/order.h"

enum { BUNDLE_BLOCK = 512, BUNDLE_SUM = 32, BUNDLE_NAME = 100 };

#define BUNDLE_FORMAT "1\n"

enum bundle_kind {
    BUNDLE_VERSION,
    BUNDLE_DATABASE,
    BUNDLE_NOTE,
    BUNDLE_LAYER,
    BUNDLE_SUMS,
    BUNDLE_KINDS
};

struct bundle_member {
    enum bundle_kind kind;
    char id[ORDER_ID]; /* of a note or a layer */
    uint64_t at, size; /* of its bytes */
    int64_t time_s;    /* when it was written */
    uint8_t sum[BUNDLE_SUM];
};

struct bundle {
    struct bundle_member *list; /* owned */
    size_t n, room;
};

void bundle_free(struct bundle *b);
struct bundle_member *bundle_add(struct bundle *b, enum bundle_kind kind, const char *id);
/* The member of that kind and id (NULL: of any); NULL: there is none. */
const struct bundle_member *bundle_find(const struct bundle *b, enum bundle_kind kind,
                                        const char *id);

void bundle_head(const struct bundle_member *m, char out[static BUNDLE_BLOCK]);
/* kind, id, size and time_s. */
int bundle_read_head(const char block[static BUNDLE_BLOCK], struct bundle_member *out,
                     struct err *err);
/* May it stand behind those that there are? */
int bundle_check_order(const struct bundle *b, const struct bundle_member *m, struct err *err);
void bundle_put_sums(const struct bundle *b, struct buf *out);

/* ---- with a descriptor of the file ---- */

bool bundle_is(int fd);
/* The whole file is read, every sum compared: 0 means that it is what was written. */
int bundle_check(int fd, struct bundle *out, struct err *err);
int bundle_read(int fd, const struct bundle_member *m, size_t most, struct buf *out,
                struct err *err);

/* A member goes to the end of the file: begin, then its bytes, then end, which sums them. */
int bundle_begin(int fd, struct bundle *b, enum bundle_kind kind, const char *id, struct err *err);
int bundle_end(int fd, struct bundle *b, struct err *err);
int bundle_put(int fd, struct bundle *b, enum bundle_kind kind, const char *id, struct str bytes,
               struct err *err);
int bundle_drop_last(int fd, struct bundle *b, struct err *err); /* as if it had not been begun */
int bundle_finish(int fd, struct bundle *b, struct err *err);    /* sums, end mark, fsync */

#endif
