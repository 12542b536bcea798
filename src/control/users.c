/* users.c - who asks: users, their keys and passwords. Passwords are hashed by yescrypt on a
 * worker; of a key only its SHA-256 is known. What a key or a token stands for is remembered for a
 * while, so that a request costs no query; every change of a user, key or login forgets all of it.
 */
#include <crypt.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "control/impl.h"
#include "io/jwt.h"

enum {
    CACHED = 512, /* keys; a newer one takes the place of an older */
    CACHED_MS = 30000,
    USED_MS = 60000, /* how exactly the time of a key's last use is known */
    PASSWORD_MIN = 8,
    PASSWORD_MAX = 256,
    PASSWORD_LONG = 16, /* from here on its length is enough */
    KEY_MIN = 16,
    KEY_TEXT = 64, /* of a caller's buffer */
};

struct key_entry {
    char hash[KEY_HASH + 1];
    char id[KEY_ID + 1];
    struct actor actor;
    int64_t until, used; /* monotonic ms */
};

struct key_cache {
    struct key_entry items[CACHED];
    uint64_t generation; /* an answer that was asked for before a change is not remembered */
};

void keys_finish(struct control *c)
{
    if (c->keys)
        explicit_bzero(c->keys, sizeof(*c->keys));
    free(TAKE(c->keys, NULL));
}

void users_changed(struct control *c)
{
    uint64_t generation = c->keys ? c->keys->generation : 0;

    if (!c->keys)
        return;
    memset(c->keys, 0, sizeof(*c->keys));
    c->keys->generation = generation + 1;
}

/* ---- by key ---- */

static struct key_entry *entry_of(struct control *c, const char *hash)
{
    uint64_t place = 0;

    if (!c->keys)
        c->keys = xcalloc(1, sizeof(*c->keys));
    str_hex((struct str){ hash, 8 }, &place);
    return &c->keys->items[place % CACHED];
}

struct looking {
    const char *hash;
    struct api_key key;
    struct user user;
};

static int look_up(struct store *s, void *arg, struct err *err)
{
    struct looking *w = arg;

    if (s->ops->key_by_hash(s, w->hash, &w->key, err))
        return -1;
    return s->ops->user_by_id(s, w->key.user, &w->user, err);
}

struct using
{
    struct control *control;
    char id[KEY_ID + 1];
    int64_t at_ms;
};

static int note_used(struct store *s, void *arg, struct err *err)
{
    const struct using *u = arg;

    return s->ops->key_used(s, u->id, u->at_ms, err);
}

static void use(void *arg)
{
    struct using *u = arg;
    struct err err = { 0 };

    if (control_store(u->control, note_used, u, &err) && err.code != ERR_NOT_FOUND)
        log_debug("the use of a key is not noted", KV("key", u->id), KV("error", err.msg));
    free(u);
}

/* Later, and not for every request: nobody waits for this. */
static void used(struct control *c, struct key_entry *e)
{
    struct using *u;

    if (!e->id[0] || c->closing || (e->used && co_now() - e->used < USED_MS))
        return;
    e->used = co_now();
    u = xcalloc(1, sizeof(*u));
    *u = (struct using){ .control = c, .at_ms = control_wall_ms() };
    memcpy(u->id, e->id, sizeof(u->id));
    if (control_go(c, use, u))
        free(u);
}

static int ask_key(struct control *c, const char *hash, struct looking *w, struct err *err)
{
    w->hash = hash;
    if (!control_store(c, look_up, w, err))
        return 0;
    return err->code == ERR_NOT_FOUND
               ? err_set(err, ERR_UNAUTHENTICATED, "this API key is not known")
               : -1;
}

/* A token of a login is longer than any key. */
static bool is_token(struct str credential) { return credential.n >= KEY_TEXT; }

static int ask(struct control *c, struct str credential, const char *hash, struct actor *out,
               struct err *err)
{
    struct looking w = { .hash = hash };
    struct key_entry *e = entry_of(c, hash);
    uint64_t generation = c->keys->generation;
    int64_t good_ms = CACHED_MS;

    if (is_token(credential) ? session_user(c, credential, &w.user, &good_ms, err)
                             : ask_key(c, hash, &w, err))
        return -1;
    if (w.user.locked)
        return err_set(err, ERR_DENIED, "user %s is locked", w.user.name);
    *out = (struct actor){ .user = w.user.id, .admin = w.user.role == ROLE_ADMIN };
    memcpy(out->name, w.user.name, sizeof(out->name));
    if (generation != c->keys->generation)
        return 0;
    *e = (struct key_entry){ .actor = *out,
                             .until = co_now() + MIN(good_ms, (int64_t)CACHED_MS),
                             .used = strcmp(e->id, w.key.id) ? 0 : e->used };
    memcpy(e->hash, hash, sizeof(e->hash));
    memcpy(e->id, w.key.id, sizeof(e->id));
    used(c, e);
    return 0;
}

int control_actor_by_key(struct control *c, struct str key, struct actor *out, struct err *err)
{
    char hash[KEY_HASH + 1];
    struct key_entry *e;

    if (!key.n)
        return err_set(err, ERR_UNAUTHENTICATED, "this API key is not known");
    if (key.n > JWT_MAX) /* not worth a hash */
        return err_set(err, ERR_UNAUTHENTICATED, JWT_INVALID);
    api_key_hash(key, hash);
    e = entry_of(c, hash);
    if (e->until <= co_now() || !mem_equal_const(e->hash, hash, KEY_HASH))
        return ask(c, key, hash, out, err);
    *out = e->actor;
    used(c, e);
    return 0;
}

/* ---- passwords ---- */

struct hashing {
    const char *password;
    char *out;
    size_t n;
};

static void hash_password(void *arg)
{
    struct hashing *h = arg;
    struct crypt_data *data = xcalloc(1, sizeof(*data)); /* 32 KiB: too much for a stack */
    char salt[CRYPT_GENSALT_OUTPUT_SIZE];
    const char *text = NULL;

    if (crypt_gensalt_rn("$y$", 0, NULL, 0, salt, sizeof(salt)))
        text = crypt_r(h->password, salt, data);
    if (text && text[0] != '*' && strlen(text) < h->n)
        memcpy(h->out, text, strlen(text) + 1);
    else
        h->out[0] = 0;
    explicit_bzero(data, sizeof(*data));
    free(data);
}

int control_password_check(const char *password, struct err *err)
{
    size_t n = strlen(password), letters = 0;

    if (n < PASSWORD_MIN || n > PASSWORD_MAX)
        return err_set(err, ERR_INVALID, "a password has %d to %d bytes", PASSWORD_MIN,
                       PASSWORD_MAX);
    if (n >= PASSWORD_LONG)
        return 0;
    for (const char *p = password; *p; p++)
        letters += (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z');
    if (!letters || letters == n)
        return err_set(err, ERR_INVALID,
                       "a password of less than %d bytes has letters, and something that is no "
                       "letter",
                       PASSWORD_LONG);
    return 0;
}

static int set_password(struct user *u, const char *password, struct err *err)
{
    struct hashing h = { password, u->password, sizeof(u->password) };

    if (control_password_check(password, err) || lazy_load(&lazy_crypt, err))
        return -1;
    if (!strncasecmp(password, u->name, strlen(u->name)) && strlen(u->name) > 3)
        return err_set(err, ERR_INVALID, "a password does not begin with the user's name");
    co_call(hash_password, &h);
    if (!u->password[0])
        return err_set(err, ERR_INTERNAL, "the password cannot be hashed by yescrypt");
    return 0;
}

/* ---- users ---- */

static int add_user(struct store *s, void *arg, struct err *err)
{
    return s->ops->user_add(s, arg, err);
}

int control_user_add(struct control *c, const char *name, enum user_role role, const char *password,
                     struct user *out, struct err *err)
{
    struct user u = { .role = role, .created_ms = control_wall_ms() };

    if (!user_name_valid(str_of(name)))
        return err_set(err, ERR_INVALID,
                       "'%.64s' cannot be a user's name: 1 to %d of a-z 0-9 . _ -, the first one a "
                       "letter or digit",
                       name ? name : "", USER_NAME);
    snprintf(u.name, sizeof(u.name), "%s", name);
    if ((password && set_password(&u, password, err)) || control_store(c, add_user, &u, err))
        return -1;
    *out = u;
    return 0;
}

struct getting {
    const char *name;
    struct user *out;
};

static int get_user(struct store *s, void *arg, struct err *err)
{
    const struct getting *g = arg;

    return s->ops->user_get(s, g->name, g->out, err);
}

int control_user_get(struct control *c, const char *name, struct user *out, struct err *err)
{
    struct getting g = { name, out };

    return control_store(c, get_user, &g, err);
}

struct changing {
    int64_t id;
    struct user_change change;
};

static int change_user(struct store *s, void *arg, struct err *err)
{
    const struct changing *w = arg;

    return s->ops->user_change(s, w->id, &w->change, err);
}

int control_user_change(struct control *c, const struct user *u, const struct user_change *change,
                        struct err *err)
{
    struct changing w = { u->id, *change };
    struct user hashed = *u;
    int r;

    if (change->password && set_password(&hashed, change->password, err))
        return -1;
    if (change->password)
        w.change.password = hashed.password;
    r = control_store(c, change_user, &w, err);
    users_changed(c);
    return r;
}

int control_user_password(struct control *c, const char *name, const char *password,
                          struct err *err)
{
    struct user_change change = USER_UNCHANGED;
    struct user u = { 0 };

    change.password = password;
    return control_user_get(c, name, &u, err) || control_user_change(c, &u, &change, err) ? -1 : 0;
}

struct listing {
    int64_t user;
    store_user_fn *user_fn;
    store_key_fn *key_fn;
    void *arg;
};

static int list_users(struct store *s, void *arg, struct err *err)
{
    const struct listing *w = arg;

    return s->ops->user_list(s, w->user_fn, w->arg, err);
}

int control_user_list(struct control *c, store_user_fn *fn, void *arg, struct err *err)
{
    struct listing w = { .user_fn = fn, .arg = arg };

    return control_store(c, list_users, &w, err);
}

/* ---- keys ---- */

static int add_key(struct store *s, void *arg, struct err *err)
{
    return s->ops->key_add(s, arg, err);
}

int control_key_check(const char *key, struct err *err)
{
    size_t n = strlen(key);

    for (const char *p = key; *p; p++)
        if (*p <= ' ' || *p > '~')
            return err_set(err, ERR_INVALID, "an API key is printable ASCII without spaces");
    if (n < KEY_MIN || n >= KEY_TEXT)
        return err_set(err, ERR_INVALID, "an API key has %d to %d characters", KEY_MIN,
                       KEY_TEXT - 1);
    return 0;
}

int control_key_add(struct control *c, int64_t user, const char *name, const char *key,
                    struct api_key *out, char text[static 64], struct err *err)
{
    struct api_key k = { .user = user, .created_ms = control_wall_ms() };
    char made[KEY_TEXT];

    if (key && control_key_check(key, err))
        return -1;
    if (name && strlen(name) > USER_NAME)
        return err_set(err, ERR_INVALID, "a key's name has at most %d bytes", USER_NAME);
    if (key)
        snprintf(made, sizeof(made), "%s", key);
    else
        api_key_new(made);
    id_random(k.id, KEY_ID);
    api_key_hash(str_of(made), k.hash);
    /* a third at most: one that somebody chose may be short */
    snprintf(k.shown, sizeof(k.shown), "%.*s", (int)MIN(strlen(made) / 3, (size_t)KEY_PREFIX_SHOWN),
             made);
    snprintf(k.name, sizeof(k.name), "%s", name ? name : "");
    if (control_store(c, add_key, &k, err)) {
        explicit_bzero(made, sizeof(made));
        return -1;
    }
    memcpy(text, made, sizeof(made));
    explicit_bzero(made, sizeof(made));
    *out = k;
    return 0;
}

static int list_keys(struct store *s, void *arg, struct err *err)
{
    const struct listing *w = arg;

    return s->ops->key_list(s, w->user, w->key_fn, w->arg, err);
}

int control_key_list(struct control *c, int64_t user, store_key_fn *fn, void *arg, struct err *err)
{
    struct listing w = { .user = user, .key_fn = fn, .arg = arg };

    return control_store(c, list_keys, &w, err);
}

struct removing {
    int64_t user;
    const char *id;
};

static int remove_key(struct store *s, void *arg, struct err *err)
{
    const struct removing *w = arg;

    return s->ops->key_remove(s, w->user, w->id, err);
}

int control_key_remove(struct control *c, int64_t user, const char *id, struct err *err)
{
    struct removing w = { user, id };
    int r = control_store(c, remove_key, &w, err);

    users_changed(c);
    return r;
}
