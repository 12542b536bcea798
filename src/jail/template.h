/* template.h - what a sandbox's files begin as, by name.
 *
 *   <data>/templates/<name>/template.json    what it is, where it came from, its default limits
 *   <data>/templates/<name>/rootfs/          of an archive: its files, with the owners it named
 *
 * The folder is 0700: below it lie programs of a stranger's, setuid root among them. It is on the
 * host's own file system, never on the volume: two layers of one overlay on one btrfs confuse inode
 * numbers. A name is complete from the moment it exists (unpacked elsewhere, then renamed), and
 * never changes.
 *
 * Use: template_open() takes a shared flock on the template's directory, kept by `lock` until
 * template_close(); removing takes an exclusive one. A lock belongs to the open file, so it ends
 * with the process: a keeper that adopts sandboxes opens their templates anew. */
#ifndef JAIL_TEMPLATE_H
#define JAIL_TEMPLATE_H

#include "base/arena.h"
#include "base/err.h"
#include "jail/named.h"
#include "jail/unpack.h"
#include "model/limits.h"

enum {
    TEMPLATE_NAME_MAX = 64,    /* [a-z0-9][a-z0-9._-]{0,63} */
    TEMPLATE_WORKDIR_MAX = 255 /* the keeper's records have room for so much */
};

enum template_kind {
    TEMPLATE_HOST, /* jail/host.h builds it: no root of its own. Others than `host` itself have
                      defaults of their own */
    TEMPLATE_DIRECTORY,
    TEMPLATE_ARCHIVE,
};

enum template_kernels {
    TEMPLATE_KERNELS_ON_DEMAND, /* Jupyter's start at their first use */
    TEMPLATE_KERNELS_WARM,      /* with the sandbox, and one waits */
};

struct template
{                           /* strings live in `strings` */
    char *name;             /* what it is really called: "host" for an alias of it */
    int64_t kind;           /* enum template_kind */
    char *source;           /* where it came from; NULL for host */
    char *created;          /* as RFC 3339 */
    int64_t entries, bytes; /* of an archive */
    char *sha256;           /* of an archive */
    char *user, *workdir;   /* defaults for commands; NULL: none */
    bool squashed;          /* unpacked without root: every file is root's inside */
    int64_t kernels;        /* enum template_kernels */
    struct limits *limits;  /* 0: the ordinary default; NULL: all of them */
    char *root_path;        /* of the root directory; NULL for host */
    int root;               /* O_PATH of it; -1: host, or from template_list() */
    int lock;               /* -1: nothing to hold: `host`, or a path */
    struct arena strings;
};

struct template_spec {
    const char *name;
    const char *source; /* a directory, or a tar archive; NULL: what `host` is made of */
    const char *user, *workdir;
    int64_t kernels; /* enum template_kernels */
    struct limits limits;
    void (*progress)(void *arg, const struct unpack_stats *so_far); /* or NULL */
    void *arg;
};

struct template_added {
    int64_t kind; /* enum template_kind */
    struct unpack_result unpacked;
    bool no_programs; /* neither a shell nor env in it: perhaps not a root file system */
};

/* A name, an alias of the default that nobody took, or the absolute path of a directory: whether
 * whoever asks may name a path is the caller's business. */
int template_open(const char *data_dir, const char *name, struct template *out, struct err *err);
/* The same, but the root of a TEMPLATE_DIRECTORY stays -1: opening it may wait for its file system,
 * which is anybody's. template_open_root() does; the descriptor is the caller's. */
int template_locate(const char *data_dir, const char *name, struct template *out, struct err *err);
int template_open_root(const struct template *t, struct err *err);
void template_close(struct template *t); /* harmless on a zeroed one */

/* The list begins with host and goes by name. */
int template_list(const char *data_dir, struct template **out, size_t *n, struct err *err);
/* The same in pages of at most `room`, those behind `after` ("": from the beginning): reads no more
 * files than it returns. Fewer than room: there are no more. Give them back by template_close(). */
int template_page(const char *data_dir, const char *after, struct template *out, size_t room,
                  size_t *n, struct err *err);
/* Would this name lead elsewhere now than when it led to `host`? (Somebody took an alias.) */
bool template_taken(const char *data_dir, const char *name);
void template_list_free(struct template *list, size_t n);

/* Both block, an archive for minutes: for a process of their own. ERR_CONFLICT: there is one of
 * that name; it is in use. */
int template_add(const char *data_dir, const struct template_spec *spec, struct template_added *out,
                 struct err *err);
int template_remove(const char *data_dir, const char *name, jail_named_fn *named, void *arg,
                    struct err *err);

const char *template_kind_name(int64_t kind);
void template_write(const struct template *t, struct buf *out); /* as JSON */

extern const char *template_alias; /* one more alias of the default: E2B_TEMPLATE_ID's value */

#endif
