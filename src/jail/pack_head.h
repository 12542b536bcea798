/* pack_head.h - the heads of a tar archive: a block of ustar, before it a pax header for what that
 * cannot hold. Pure: a struct in, bytes out. */
#ifndef JAIL_PACK_HEAD_H
#define JAIL_PACK_HEAD_H

#include <sys/stat.h>

#include "base/buf.h"

enum {
    PACK_BLOCK = 512,
    PACK_PAX_MAX = 768 << 10 /* readers take at most a MiB of a pax header */
};

struct pack_head {
    char type; /* '0' file, '1' hard link, '2' symlink, '3' character device, '5' directory, '6' */
    struct str name, link;
    mode_t mode; /* 07777 */
    uint64_t uid, gid;
    uint64_t size; /* of the bytes that follow */
    struct timespec mtime;
    struct buf extra; /* pax records of the caller's; owned by him */
};

/* One pax record; the value may hold anything. A name in a record that is not plain ASCII wants
 * hdrcharset=BINARY in front: readers would take it for UTF-8, and write the same letters with
 * other bytes. */
bool pack_is_plain(struct str name);
void pack_record(struct buf *pax, const char *key, struct str value);
/* An extended attribute. -1: there is no room for it any more. */
int pack_xattr(struct buf *pax, const char *name, struct str value);
void pack_head_put(struct buf *out, const struct pack_head *h);
/* The one block alone, of a short name: -1 when that is not enough. */
int pack_block(const struct pack_head *h, char out[static PACK_BLOCK]);

#endif
