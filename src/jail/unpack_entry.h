/* unpack_entry.h - what one entry of an archive may become. Every byte of it is hostile.
 *
 * Pure: takes bytes, returns a verdict and a cleaned path; no descriptor, no clock, no log. The
 * writer (unpack_tree.c) does not rely on it alone: the kernel resolves each path once more beneath
 * the root and without symlinks. */
#ifndef JAIL_UNPACK_ENTRY_H
#define JAIL_UNPACK_ENTRY_H

#include "base/str.h"

enum {
    ENTRY_PATH = 4096,     /* PATH_MAX: what the kernel takes, its NUL included */
    ENTRY_COMPONENT = 255, /* NAME_MAX */
    ENTRY_DEPTH = 256,     /* of a template: no honest one is deeper */
    ENTRY_LABEL = 112      /* room for a name as people read it */
};

enum entry_type {
    ENTRY_FILE,
    ENTRY_DIRECTORY,
    ENTRY_SYMLINK,
    ENTRY_HARDLINK,
    ENTRY_FIFO,
    ENTRY_DEVICE,
    ENTRY_SOCKET,
    ENTRY_UNKNOWN,
};

enum entry_verdict {
    ENTRY_KEEP,
    ENTRY_KEEP_WHITEOUT, /* of a layer: device 0:0, which overlayfs reads as "deleted" */
    ENTRY_SKIP_DEVICE,   /* a sandbox's /dev is made by the keeper; overlayfs reads 0:0 as "deleted"
                          */
    ENTRY_SKIP_SOCKET,   /* means nothing without the process behind it */
    ENTRY_SKIP_WHITEOUT, /* ".wh.": a layer's note about another layer, not a file */
    ENTRY_REJECT,        /* the whole archive is refused */
};

struct entry_raw { /* as the archive says it */
    enum entry_type type;
    struct str name;
    struct str link; /* of symbolic and hard links */
    bool zero;       /* of a device: it is the character device 0:0 */
};

struct entry_clean {
    char path[ENTRY_PATH]; /* "usr/bin/env": relative, no empty part, no dots; "" is the root */
    char link[ENTRY_PATH]; /* of a hard link: cleaned like path; of a symlink: as it was */
    bool stripped;         /* the name began with a slash, which was dropped */
    const char *why;       /* for ENTRY_REJECT: ends the sentence "entry 'x' …" */
};

enum entry_verdict unpack_entry_check(const struct entry_raw *raw, struct entry_clean *out);

/* The same of an entry of a sandbox's layer, as pack.h writes it: all is below r/ or u/, names may
 * look like whiteouts, and what pack.h never writes refuses the whole archive. */
enum entry_verdict unpack_entry_check_layer(const struct entry_raw *raw, struct entry_clean *out);

/* Which of a layer's attributes are packed, and may come back: a sandbox's own, and of overlayfs's
 * the one that says that a directory hides what lies below it. Those that name inodes mean nothing
 * on another disk. */
bool unpack_entry_layer_xattr(struct str name, const void *value, size_t n);

/* Whether an extended attribute may come along: user.* except overlayfs's own, and a capability in
 * its plain form (version 2, no root id, for a file). ACLs and labels belong to the machine they
 * were made on. */
bool unpack_entry_keep_xattr(enum entry_type type, struct str name, const void *value, size_t n);

/* A name for people: control bytes and what is not UTF-8 as \xNN, the end cut off by "...". */
void unpack_entry_label(struct str name, char out[static ENTRY_LABEL]);

#endif
