/* layers.h - read-only layers that every sandbox sees, by name: today the Python one.
 *
 *   <data>/layers/<name>                    a link to the one in force
 *   <data>/layers/<name>-<hash>/layer.json  what it is
 *   <data>/layers/<name>-<hash>/rootfs/     opt/cove/<name>, and nothing beside it
 *
 * The hash is of the archive it was made of: the same contents are the same layer. One is complete
 * from the moment it has its name, never changes, and lies below everything else of a sandbox's
 * root, so that it can add but not replace. Sandboxes write to their own layer, never to this.
 *
 * Whoever uses one holds a shared lock on its directory; what nobody holds and nothing names, no
 * link and no sandbox's file, goes with the next add or remove. */
#ifndef JAIL_LAYERS_H
#define JAIL_LAYERS_H

#include "base/buf.h"
#include "base/err.h"
#include "jail/named.h"
#include "jail/unpack.h"

enum { LAYERS_ID = 128 };

struct layers_held {
    char id[LAYERS_ID]; /* "python-<hash>"; "": none */
    char *path;         /* of its rootfs; owned */
    int root, lock;
};

#define LAYERS_NONE ((struct layers_held){ .root = -1, .lock = -1 })

/* The id of the layer in force; "": there is none. Quick: the keeper asks for every sandbox. */
void layers_current(const char *data_dir, const char *name, char id[static LAYERS_ID]);
int layers_hold(const char *data_dir, const char *id, struct layers_held *out, struct err *err);
void layers_release(struct layers_held *h);
/* Shared locks on all there are, for sandboxes that use one of them, nobody knows which. A list of
 * descriptors that ends with -1, NULL: none. Stays until the process ends. */
int *layers_hold_all(const char *data_dir);

struct layers_added {
    char id[LAYERS_ID];
    struct unpack_result unpacked;
    bool same; /* it was there already */
};

/* For a process of their own: both take long. about: JSON members, kept in layer.json. */
int layers_add(const char *data_dir, const char *name, int archive, const char *about,
               jail_named_fn *named, void *arg, struct layers_added *out, struct err *err);
int layers_remove(const char *data_dir, const char *name, jail_named_fn *named, void *arg,
                  struct err *err);
/* layer.json of the one in force; ERR_NOT_FOUND: none. */
int layers_describe(const char *data_dir, const char *name, struct buf *json, struct err *err);

/* The folder of all, made when missing. */
int layers_folder(const char *data_dir, struct err *err);

#endif
