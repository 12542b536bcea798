/* entry.h - EntryInfo of the protocol: one file, described. Blocks: for workers. */
#ifndef GUEST_ENTRY_H
#define GUEST_ENTRY_H

#include "base/buf.h"
#include "base/err.h"
#include "guest/user.h"

struct entry_context {
    int root;
    struct arena *arena;
    struct id_names names;
};

void entry_context_init(struct entry_context *x, int root, struct arena *a);
/* Writes the entry that `name` in directory `dir` is; path is how the client calls it. -1: errno.
 */
int entry_put(struct entry_context *x, int dir, const char *name, const char *path,
              struct buf *json);
/* The same for a whole path, resolved in the root; the last component may be a link itself. */
int entry_put_path(struct entry_context *x, const char *path, struct buf *json);
/* "metadata": {...} from the file's user.e2b.* attributes, when it has any. */
void entry_put_metadata(int fd, struct buf *json);

#endif
