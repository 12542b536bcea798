/* cp.h - what the files of `cove cp` share. */
#ifndef CLI_CP_H
#define CLI_CP_H

#include "cli/remote.h"
#include "provider/envd_files.h"

enum { CP_BYTES = 64 << 10, CP_PATH = 4096 };

struct cp_place { /* one of the two words */
    char *id;     /* the sandbox, owned; NULL: this machine */
    const char *path;
};

struct cp_step {        /* a directory still to visit, or one whose mode is still to be set */
    char *here, *there; /* owned */
    int64_t mode;
};
struct cp_list { /* the last one in is the first one out */
    struct cp_step *items;
    size_t n, cap;
};

struct cp {
    struct remote *remote;
    struct remote_guest guest;
    const char *user;
    char *bytes; /* CP_BYTES of room for whoever moves some */
    int64_t files, directories, links, skipped, moved, size; /* size: 0 where it is not known */
    int64_t started_ms, shown_ms;
    bool terminal; /* standard error: progress can be shown */
};

/* "ID:PATH" is in a sandbox; anything with a / before its first colon, or without one, is here. */
int cp_parse(const char *text, struct cp_place *out, struct err *err);
/* The last component, for DIRECTORY/NAME; NULL where a path has none ("/", "x/..", "."): then what
 * is in it is meant. In the path given. */
struct str cp_name(const char *path);
/* Names from inside a sandbox: one component, and none that leads elsewhere. */
bool cp_name_safe(const char *name);
char *cp_join(const char *dir, const char *name); /* caller frees */
void cp_push(struct cp_list *l, struct cp_step s);
void cp_drop(struct cp_step *s);
void cp_moved(struct cp *c, size_t n); /* and shows progress, if it is time for that */

int cp_in(struct cp *c, const char *from, const char *to, struct err *err);
int cp_out(struct cp *c, const char *from, const char *to, struct err *err);

#endif
