/* host_build.h - what the parts of the `host` template's build share; not for others.
 *
 * Reading the machine never follows a link, unless said. Writing into a layer never does, since a
 * link in there leads to the machine's own files: it is made for use as a root directory. */
#ifndef JAIL_HOST_BUILD_H
#define JAIL_HOST_BUILD_H

#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"
#include "jail/host.h"
#include "jail/host_accounts.h"

struct host_layer {
    int fd;    /* directory being filled */
    int model; /* the machine's directory that it will cover; new directories take mode and owner */
};

struct host_build {
    const struct host_options *o;
    int source; /* the machine's root directory */
    int dir;    /* the generation in the making */
    struct host_layer base, usrfix;
    struct host_accounts accounts;
    struct buf var_links; /* names below var/lib that links in /usr lead to, each with a NUL */
    bool dpkg;            /* the machine has dpkg's database */
    bool merged_usr, whiteouts, owners, image;
    uint64_t sum;           /* of what host_usr.c saw */
    bool no_link, no_clone; /* refused once, so not tried again */
};

/* ---- the parts, in the order in which they run; a later one wins ---- */
int host_root_build(struct host_build *b, struct err *err);    /* links or copies of /bin ... */
int host_usr_build(struct host_build *b, struct err *err);     /* usr.img, or the usrfix layer */
int host_usr_look(struct host_build *b, struct err *err);      /* sets b->sum, and nothing else */
int host_etc_build(struct host_build *b, struct err *err);     /* what may come from /etc */
int host_mirrors_build(struct host_build *b, struct err *err); /* package sources */
int host_files_build(struct host_build *b, struct err *err);   /* what is generated */
int host_var_build(struct host_build *b, struct err *err);     /* databases, caches */

/* ---- host_tree.c ---- */
struct host_node {
    const char *path; /* relative to the layer */
    mode_t mode;
    uid_t uid;
    gid_t gid;
    struct str bytes; /* of a file */
};

/* A new directory in `at` to be filled. -1 with errno. */
int host_tree_layer(int at, const char *name, int model, struct host_layer *l);
/* An O_PATH descriptor of a layer's directory, made with its parents when missing. -1 with errno:
 * ENOTDIR when a component is a link. */
int host_tree_dir(struct host_build *b, const struct host_layer *l, const char *path);
int host_tree_mkdir(struct host_build *b, const struct host_node *n, struct err *err);
/* A regular file in place of what has the name. Nothing happens below a link. */
int host_tree_put(struct host_build *b, const struct host_layer *l, const struct host_node *n,
                  struct err *err);
int host_tree_symlink(struct host_build *b, const char *path, const char *target, struct err *err);

enum {
    HOST_COPY_PUBLIC = 1, /* only what everybody may read */
    HOST_COPY_LINK = 2,   /* a hard link will do: its writers replace it by rename */
};
/* One regular file of the machine to the same name in base. 1: copied, 0: it is not for us. */
int host_tree_copy(struct host_build *b, const char *path, unsigned flags, struct err *err);

/* A directory below which everything that host_tree_copy takes is copied, and links into /usr. */
int host_tree_copy_all(struct host_build *b, const char *path, unsigned flags, struct err *err);

/* A regular file of the machine, whole. -1 with errno; EFBIG above max, EINVAL if no file. */
int host_tree_read(const struct host_build *b, const char *path, size_t max, struct buf *out,
                   struct stat *st);
bool host_tree_has(const struct host_build *b, const char *path);    /* anything of that name */
bool host_tree_public(const struct host_build *b, const char *path); /* anyone may read it */
int host_tree_open(int root, const char *path, int flags); /* beneath root, through no link */
bool host_tree_absent(int error); /* the errno says: not there, or not for us */

/* ---- host_image.c ---- */
#define HOST_IMAGE "usr.img"
/* Whether sandboxes of this kernel can have their files of `usr` by the image: 1, 0; -1: nobody can
 * tell now, for want of memory, say. */
int host_image_works(int dir, int usr, struct err *why);

/* ---- host_walk.c ---- */
enum { HOST_WALK_DEPTH = 128 };

struct host_entry {
    int dir;          /* descriptor of the directory it is in */
    const char *name; /* in that directory */
    const char *path; /* from the walk's root */
    unsigned depth;   /* 1: in the directory where the walk began */
    struct stat st;   /* of a link only st_mode */
};
/* 1: go into this directory, 0: do not, -1: err */
typedef int host_visit(void *arg, const struct host_entry *e, struct err *err);

/* Every entry below root/path, parents first. Does not enter other file systems; passes over
 * directories that vanish or that we may not read, and what is too deep to be named by a path. */
int host_walk(int root, const char *path, host_visit *visit, void *arg, struct err *err);
bool host_walk_readlink(const struct host_entry *e, struct buf *out); /* false: no link */
/* Where a link of that path leads by its text: "usr/bin/x". false: it climbs after a name. */
bool host_walk_resolve(const char *link, struct str target, struct buf *out);
bool host_below(const char *path, const char *dir); /* is it, or is in it */
bool host_in_usr(const char *path); /* usr, or bin, sbin, lib*, which lead there or are copied */

#endif
