/* user.h - users and groups of the sandbox, read from its own /etc. getpwnam() and friends would
 * load the sandbox's libraries into a static program, so the two files are read by hand. */
#ifndef GUEST_USER_H
#define GUEST_USER_H

#include <sys/types.h>

#include "base/arena.h"
#include "base/err.h"

struct guest;

enum { USER_GROUPS = 64 };

struct user { /* all strings from the arena that user_find was given */
    const char *name, *home, *shell;
    uid_t uid;
    gid_t gid;
    gid_t groups[USER_GROUPS]; /* supplementary, gid among them */
    size_t ngroups;
    bool switchable; /* we are privileged: files are chowned, commands change ids */
};

/* name NULL or empty: the default user. Reads two small files; quick enough for the loop. */
int user_find(struct guest *g, struct arena *a, const char *name, struct user *out,
              struct err *err);
/* The default user when none is configured: "user" where it exists and we may become it, else us.
 */
char *user_default(struct guest *g); /* owned by the caller */

/* Names of ids, for listings: one look into the files, then no more. */
struct id_names {
    struct str passwd, group;
};
void id_names_load(struct id_names *n, struct arena *a, int root);
char *id_name_user(const struct id_names *n, struct arena *a, uid_t uid);
char *id_name_group(const struct id_names *n, struct arena *a, gid_t gid);

/* Pure: the next line of passwd or group as up to 7 fields; false at the end. */
bool user_next_line(struct str *rest, struct str field[7], int *count);

#endif
