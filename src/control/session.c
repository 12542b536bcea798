/* session.c - logins: a password becomes a token that is signed, expires, and works only while its
 * row is in the store, so that logging out, locking and a newer login end it at once.
 *
 * A password is hashed slowly on purpose, so logging in is the one call that strangers could make
 * us work hard with: attempts are counted by address, failures by name, and few are hashed at once.
 * Both counts are in memory, in tables that do not grow. */
#include <crypt.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "control/impl.h"
#include "io/jwt.h"

enum { SLOTS = 1024, WAITING_MAX = 64, MINUTE_MS = 60000, SECRET = 64, SECRET_MIN = 16 };

static struct {
    int64_t token_s, login_rate, swagger_rate, lockout_failures, lockout_s, hashing;
} limits = {
    .token_s = 86400,
    .login_rate = 5,
    .swagger_rate = 60,
    .lockout_failures = 5,
    .lockout_s = 300,
    .hashing = 2,
};

const struct setting control_auth_settings[] = {
    { "auth.token-s", &limits.token_s, 1, 30 * 86400, "seconds that a login's token is good for" },
    { "auth.login-rate", &limits.login_rate, 0, 1000000,
      "attempts to log in a minute from one address; 0: any number" },
    { "auth.swagger-rate", &limits.swagger_rate, 0, 1000000,
      "the same for the login by query parameters" },
    { "auth.lockout-failures", &limits.lockout_failures, 0, 1000000,
      "wrong passwords in a row after which a user cannot log in for a while; 0: never" },
    { "auth.lockout-s", &limits.lockout_s, 1, 86400, "seconds of that while" },
    { "auth.hashing", &limits.hashing, 1, 16, "passwords that are looked at at once" },
    { 0 },
};

struct slot { /* of an address, or of a user's name */
    uint64_t of;
    int64_t since; /* monotonic ms: its window began, or its last failure was */
    int64_t count;
};

struct sessions {
    char *secret;
    uint64_t seed; /* so that nobody can choose names that share a slot */
    struct slot addresses[SLOTS], names[SLOTS];
    int64_t hashing, waiting;
    struct co_cond hashed;
};

/* ---- opening ---- */

static int learn_secret(struct store *s, void *arg, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };
    char fresh[SECRET + 1];
    int r;

    id_random(fresh, SECRET);
    r = s->ops->value_once(s, "token-secret", str_of(fresh), &b, err);
    explicit_bzero(fresh, sizeof(fresh));
    if (r)
        return -1;
    *(char **)arg = xstrdup(buf_cstr(&b));
    explicit_bzero(b.data, b.len);
    return 0;
}

int sessions_init(struct control *c, const char *secret, struct err *err)
{
    c->sessions = xcalloc(1, sizeof(*c->sessions));
    id_bytes(&c->sessions->seed, sizeof(c->sessions->seed));
    co_cond_init(&c->sessions->hashed);
    if (!secret || !*secret)
        return control_store(c, learn_secret, &c->sessions->secret, err);
    if (strlen(secret) < SECRET_MIN)
        return err_set(err, ERR_INVALID,
                       "TOKEN_SECRET_KEY must have %d bytes or more; without it one is made and "
                       "kept in the store",
                       SECRET_MIN);
    c->sessions->secret = xstrdup(secret);
    return 0;
}

void sessions_finish(struct control *c)
{
    if (!c->sessions)
        return;
    if (c->sessions->secret)
        explicit_bzero(c->sessions->secret, strlen(c->sessions->secret));
    free(c->sessions->secret);
    free(TAKE(c->sessions, NULL));
}

/* ---- counting ---- */

static struct slot *slot_of(const struct sessions *x, struct slot *slots, const char *text)
{
    uint64_t h = x->seed ^ 0xcbf29ce484222325u;
    struct slot *s;

    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    h ^= h >> 29;
    s = &slots[h % SLOTS];
    if (s->of != h)
        *s = (struct slot){ .of = h }; /* the older one is forgotten: a table does not grow */
    return s;
}

static int count_attempt(struct sessions *x, const struct login_request *rq, struct err *err)
{
    int64_t rate = rq->by_query ? limits.swagger_rate : limits.login_rate;
    char key[64];
    struct slot *s;

    snprintf(key, sizeof(key), "%c%s", rq->by_query ? '?' : '{', rq->peer ? rq->peer : "");
    s = slot_of(x, x->addresses, key);

    if (!s->count || co_now() - s->since >= MINUTE_MS) {
        s->since = co_now();
        s->count = 0;
    }
    if (rate && s->count >= rate)
        return err_set(err, ERR_LIMIT,
                       "%lld attempts to log in within a minute are as many as auth.%s-rate allows",
                       (long long)s->count, rq->by_query ? "swagger" : "login");
    s->count++;
    return 0;
}

static bool locked_out(struct sessions *x, const char *name)
{
    struct slot *s = slot_of(x, x->names, name);

    if (co_now() - s->since >= limits.lockout_s * 1000)
        s->count = 0;
    return limits.lockout_failures && s->count >= limits.lockout_failures;
}

static void count_failure(struct sessions *x, const char *name)
{
    struct slot *s = slot_of(x, x->names, name);

    s->since = co_now();
    if (++s->count == limits.lockout_failures)
        log_warn("a user cannot log in for a while: too many wrong passwords", KV("user", name),
                 KVI("seconds", limits.lockout_s));
}

/* ---- passwords ---- */

struct trying {
    const char *password, *hash;
    bool right;
};

static void try_password(void *arg)
{
    struct trying *t = arg;
    struct crypt_data *data = xcalloc(1, sizeof(*data)); /* 32 KiB: too much for a stack */
    char salt[CRYPT_GENSALT_OUTPUT_SIZE];
    const char *setting = t->hash, *made;

    /* Nothing to compare with takes as long, so that the time says nothing of who there is. */
    if (!*t->hash)
        setting = crypt_gensalt_rn("$y$", 0, NULL, 0, salt, sizeof(salt));
    made = setting ? crypt_r(t->password, setting, data) : NULL;
    t->right = made && *t->hash && made[0] != '*' && strlen(made) == strlen(t->hash) &&
               mem_equal_const(made, t->hash, strlen(made));
    explicit_bzero(data, sizeof(*data));
    free(data);
}

static int try_in_turn(struct sessions *x, struct trying *t, struct err *err)
{
    if (lazy_load(&lazy_crypt, err))
        return -1;
    if (x->waiting >= WAITING_MAX)
        return err_set(err, ERR_LIMIT, "too many are logging in at once: try again in a moment");
    x->waiting++;
    while (x->hashing >= limits.hashing)
        if (co_cond_wait(&x->hashed, NEVER)) {
            x->waiting--;
            return control_cancelled(err);
        }
    x->waiting--;
    x->hashing++;
    co_call(try_password, t);
    x->hashing--;
    co_cond_wake(&x->hashed);
    return 0;
}

/* ---- tokens ---- */

struct adding {
    struct session session;
    bool alone;
    const char *old; /* the one it replaces; NULL: none */
};

static int add_session(struct store *s, void *arg, struct err *err)
{
    const struct adding *a = arg;
    struct err ignored;

    if (a->old)
        (void)s->ops->session_remove(s, a->old, &ignored);
    return s->ops->session_add(s, &a->session, a->alone, err);
}

static int begin_session(struct control *c, const struct user *u, const char *old,
                         struct login *out, struct err *err)
{
    int64_t now = control_wall_ms();
    struct adding a = { .session = { .user = u->id, .created_ms = now },
                        .alone = !u->multi_login,
                        .old = old };
    struct jwt t = { .user = u->id, .expires_s = now / 1000 + limits.token_s };

    id_uuid(a.session.id);
    a.session.expires_ms = t.expires_s * 1000;
    memcpy(t.session, a.session.id, sizeof(a.session.id));
    out->token.len = 0;
    if (jwt_sign(str_of(c->sessions->secret), &t, &out->token, err) ||
        control_store(c, add_session, &a, err))
        return -1;
    if (a.alone || old)
        users_changed(c); /* what an older login's token stands for is remembered */
    out->user = *u;
    out->session = a.session;
    return 0;
}

struct finding {
    const struct jwt *token;
    struct session session;
    struct user user;
};

static int find_session(struct store *s, void *arg, struct err *err)
{
    struct finding *f = arg;

    if (s->ops->session_get(s, f->token->session, &f->session, err))
        return -1;
    if (f->session.user != f->token->user)
        return err_set(err, ERR_NOT_FOUND, "another user's login");
    return s->ops->user_by_id(s, f->session.user, &f->user, err);
}

static int find_login(struct control *c, struct str token, struct finding *f, struct jwt *t,
                      struct err *err)
{
    if (jwt_verify(str_of(c->sessions->secret), token, control_wall_ms() / 1000, t, err))
        return -1;
    *f = (struct finding){ .token = t };
    if (!control_store(c, find_session, f, err))
        return 0;
    return err->code == ERR_NOT_FOUND ? err_set(err, ERR_UNAUTHENTICATED, TOKEN_SUPERSEDED) : -1;
}

int session_user(struct control *c, struct str token, struct user *out, int64_t *left_ms,
                 struct err *err)
{
    struct finding f;
    struct jwt t;

    if (find_login(c, token, &f, &t, err))
        return -1;
    *out = f.user;
    *left_ms = f.session.expires_ms - control_wall_ms();
    return 0;
}

/* ---- by request ---- */

static int check_password(struct control *c, const struct login_request *rq, struct user *u,
                          struct err *err)
{
    struct trying t = { .password = rq->password, .hash = "" };
    struct err unknown = { 0 };
    bool known = !control_user_get(c, rq->name, u, &unknown);

    if (!known && unknown.code != ERR_NOT_FOUND)
        return *err = unknown, -1;
    if (known)
        t.hash = u->password;
    if (try_in_turn(c->sessions, &t, err))
        return -1;
    if (!known)
        return err_set(err, ERR_NOT_FOUND, LOGIN_WRONG);
    if (t.right)
        return u->locked ? err_set(err, ERR_DENIED, LOGIN_LOCKED) : 0;
    count_failure(c->sessions, rq->name);
    return err_set(err, ERR_DENIED, LOGIN_WRONG);
}

int control_login(struct control *c, const struct login_request *rq, struct login *out,
                  struct err *err)
{
    struct user u = { 0 };

    if (count_attempt(c->sessions, rq, err))
        return -1;
    if (!user_name_valid(str_of(rq->name)))
        return err_set(err, ERR_NOT_FOUND, LOGIN_WRONG);
    if (locked_out(c->sessions, rq->name))
        return err_set(err, ERR_DENIED, LOGIN_LOCKED);
    if (check_password(c, rq, &u, err))
        return -1;
    slot_of(c->sessions, c->sessions->names, u.name)->count = 0;
    return begin_session(c, &u, NULL, out, err);
}

int control_refresh(struct control *c, struct str token, struct login *out, struct err *err)
{
    struct finding f;
    struct jwt t;

    if (find_login(c, token, &f, &t, err))
        return -1;
    if (f.user.locked)
        return err_set(err, ERR_DENIED, LOGIN_LOCKED);
    return begin_session(c, &f.user, f.session.id, out, err);
}

static int remove_session(struct store *s, void *arg, struct err *err)
{
    return s->ops->session_remove(s, arg, err);
}

int control_logout(struct control *c, struct str token, struct err *err)
{
    struct finding f;
    struct jwt t;
    int r;

    if (find_login(c, token, &f, &t, err))
        return -1;
    r = control_store(c, remove_session, f.session.id, err);
    users_changed(c);
    return r && err->code != ERR_NOT_FOUND ? -1 : 0; /* two may have asked at once */
}

void control_login_free(struct login *l)
{
    if (l->token.data)
        explicit_bzero(l->token.data, l->token.len);
    buf_free(&l->token);
    explicit_bzero(&l->user, sizeof(l->user));
}
