/* host_accounts.h - the accounts inside: the machine's system ids under their names, because files
 * in /usr carry them, and nothing about people. Takes and makes text only. */
#ifndef JAIL_HOST_ACCOUNTS_H
#define JAIL_HOST_ACCOUNTS_H

#include "base/arena.h"
#include "base/buf.h"

enum {
    HOST_USER_ID = 1000,    /* `user` and its group, the same in every template */
    HOST_NOBODY_ID = 65534, /* nobody, nogroup */
};

struct host_account { /* a user, or a group (then gid, home and shell mean nothing) */
    char *name;
    unsigned id, gid;
    char *home, *shell;
};

struct host_accounts { /* zero-initialised is empty; all text lives in the arena */
    struct arena arena;
    struct host_account *users, *groups;
    size_t n_users, n_groups;
    unsigned first_human; /* ids from here on belong to people, but for 65534 */
};

struct host_shells {
    const char *login, *nologin; /* paths inside */
};

/* Keeps system entries of passwd(5) and group(5) texts: the bound is login.defs' UID_MIN, never
 * above 1000. Adds root and `user`. Lines that are no entry are passed over. */
void host_accounts_parse(struct host_accounts *a, struct str passwd, struct str group,
                         struct str login_defs, const struct host_shells *shells);
bool host_accounts_system(const struct host_accounts *a, unsigned id); /* may stand on a file */
unsigned host_accounts_uid(const struct host_accounts *a, const char *name); /* root if unknown */
unsigned host_accounts_gid(const struct host_accounts *a, const char *name);
bool host_accounts_has(const struct host_accounts *a, struct str user, struct str group);

/* The four files. */
void host_accounts_passwd(const struct host_accounts *a, struct buf *out);
void host_accounts_group(const struct host_accounts *a, struct buf *out);
void host_accounts_shadow(const struct host_accounts *a, struct buf *out);
void host_accounts_gshadow(const struct host_accounts *a, struct buf *out);
void host_accounts_free(struct host_accounts *a);

#endif
