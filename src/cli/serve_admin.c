/* serve_admin.c - the administrator of a data directory: made on the first start; later starts see
 * to it that the key in admin.key works, and that a password which is new is his.
 *
 * What other administrators decided stays: one who is locked, or no administrator any more, is said
 * and left so. */
#include <string.h>

#include "base/log.h"
#include "cli/serve.h"
#include "control/control.h"

enum { FORMER = 16 };

static const char admin[] = "admin", key_name[] = "admin.key";

static int find_admin(struct serve *s, struct control *c, struct user *u, struct err *err)
{
    struct err why = { 0 };

    if (!control_user_get(c, admin, u, &why))
        return s->new_password ? control_user_password(c, admin, s->password, err) : 0;
    if (why.code == ERR_NOT_FOUND)
        return control_user_add(c, admin, ROLE_ADMIN, s->password, u, err);
    *err = why;
    return -1;
}

struct former {
    size_t n;
    char ids[FORMER][KEY_ID + 1];
};

static int collect(void *arg, const struct api_key *k)
{
    struct former *f = arg;

    if (!strcmp(k->name, key_name) && f->n < FORMER)
        memcpy(f->ids[f->n++], k->id, sizeof(k->id));
    return 0;
}

/* Somebody removed the file, or gave another key: the one from before may be in wrong hands. */
static int replace_key(const struct serve *s, struct control *c, const struct user *u,
                       struct err *err)
{
    struct former f = { 0 };
    struct api_key made;
    char text[64];

    if (control_key_list(c, u->id, collect, &f, err))
        return -1;
    if (control_key_add(c, u->id, key_name, s->key, &made, text, err))
        return -1;
    explicit_bzero(text, sizeof(text));
    for (size_t i = 0; i < f.n; i++) {
        if (control_key_remove(c, u->id, f.ids[i], err))
            return -1;
        log_info("the former key of admin.key works no more", KV("key", f.ids[i]));
    }
    return 0;
}

int serve_admin(struct serve *s, struct control *c, struct err *err)
{
    struct user u = { 0 };
    struct actor who;
    struct err why = { 0 };

    if (find_admin(s, c, &u, err))
        return -1;
    if (!control_actor_by_key(c, str_of(s->key), &who, &why)) {
        if (!who.admin)
            log_warn("the key in admin.key is no administrator's", KV("user", who.name));
        return 0;
    }
    if (why.code == ERR_DENIED) {
        log_warn("the key in admin.key does not work", KV("error", why.msg));
        return 0;
    }
    if (why.code == ERR_UNAUTHENTICATED)
        return replace_key(s, c, &u, err);
    *err = why;
    return -1;
}
