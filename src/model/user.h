/* user.h - who may do what: users, their API keys and their logins. No I/O. */
#ifndef MODEL_USER_H
#define MODEL_USER_H

#include "base/arena.h"

enum { USER_NAME = 64, KEY_HASH = 64, KEY_ID = 12, KEY_PREFIX_SHOWN = 12 };

enum user_role { ROLE_USER, ROLE_ADMIN, USER_ROLES };
extern const char *const user_role_names[USER_ROLES];

struct user {
    int64_t id;
    char name[USER_NAME + 1]; /* [a-z0-9][a-z0-9._-]* */
    int64_t role;             /* enum user_role */
    char password[160];       /* yescrypt's text; "": none, cannot log in by password */
    bool locked;
    bool multi_login; /* a login leaves the earlier ones as they are */
    int64_t created_ms;
};

/* What is -1 or NULL stays as it is: two who change different things do not undo each other. */
struct user_change {
    int64_t role, locked, multi_login;
    const char *password; /* yescrypt's text; for control_user_change() the password itself */
};
#define USER_UNCHANGED                                                                             \
    {                                                                                              \
        .role = -1, .locked = -1, .multi_login = -1                                                \
    }

struct api_key { /* the key itself is shown once and kept by nobody: only its SHA-256 is stored */
    char id[KEY_ID + 1];
    int64_t user;
    char hash[KEY_HASH + 1];          /* hex */
    char shown[KEY_PREFIX_SHOWN + 1]; /* its beginning, for people */
    char name[USER_NAME + 1];
    int64_t created_ms, used_ms;
};

enum { SESSION_ID = 36 }; /* a UUID */

struct session { /* a login: a token of it works while it is there */
    char id[SESSION_ID + 1];
    int64_t user;
    int64_t created_ms, expires_ms;
};

bool user_name_valid(struct str name);
void api_key_new(char out[static 64]);                            /* "e2b_" and 40 hex digits */
void api_key_hash(struct str key, char out[static KEY_HASH + 1]); /* SHA-256, hex */

#endif
