/* session.c - logins: a password becomes a token that is signed, expires, and works only while its
 * row is in the store, so that logging out, locking and a newer login end it at once.
 *
 * A password is hashed slowly on purpose, so logging in is the one call that strangers could make
 * us work hard with: attempts are counted by address, failures by user, and few are hashed at once.
 * One that is being hashed counts as a failure until it is known to be none, so that asking for
 * many at once tries no more passwords than asking for one after the other. */
#include <crypt.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "control/attempts.h"
#include "control/impl.h"
#include "io/jwt.h"

enum { WAITING_MAX = 64, MINUTE_MS = 60000, SECRET_MIN = 16 };

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

struct sessions {
    char *secret;
    struct attempts addresses, users;
    int64_t hashing, waiting;
    struct co_cond hashed;
};

/* ---- opening ---- */

int sessions_init(struct control *c, const char *secret, struct err *err)
{
    c->sessions = xcalloc(1, sizeof(*c->sessions));
    c->sessions->addresses.lasts_ms = MINUTE_MS;
    co_cond_init(&c->sessions->hashed);
    if (!secret || !*secret)
        return control_secret(c, "token-secret", &c->sessions->secret, err);
    if (strlen(secret) < SECRET_MIN)
        return err_set(err, ERR_INVALID,
                       "TOKEN_SECRET_KEY must have %d bytes or more; without it one is made and "
                       "kept in the store",
                       SECRET_MIN);
    c->sessions->secret = xstrdup(secret);
    return 0;
}

const char *sessions_secret(const struct control *c)
{
    return c->sessions ? c->sessions->secret : NULL;
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

static int count_attempt(struct sessions *x, const struct login_request *rq, struct err *err)
{
    int64_t rate = rq->by_query ? limits.swagger_rate : limits.login_rate;
    unsigned char key[17] = { rq->by_query ? '?' : '{' };
    struct attempt *a;

    attempt_address(rq->peer ? rq->peer : "", key + 1);
    a = attempt_of(&x->addresses, key, sizeof(key), co_now());
    if (!a->count)
        a->since = co_now();
    if (rate && a->count >= rate)
        return err_set(err, ERR_LIMIT,
                       "%lld attempts to log in within a minute are as many as auth.%s-rate allows",
                       (long long)a->count, rq->by_query ? "swagger" : "login");
    a->count++;
    return 0;
}

static struct attempt *failures_of(struct sessions *x, int64_t user)
{
    x->users.lasts_ms = limits.lockout_s * 1000;
    return attempt_of(&x->users, &user, sizeof(user), co_now());
}

static void count_failure(struct attempt *a, const struct login_request *rq)
{
    a->since = co_now();
    if (++a->count == limits.lockout_failures)
        log_warn("a user cannot log in for a while: too many wrong passwords", KV("user", rq->name),
                 KV("from", rq->peer), KVI("seconds", limits.lockout_s));
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

/* Is there room to hash one more password of that user (NULL: there is no such user)? 1, or 0: not
 * yet; -1: the user is locked out. What is being hashed may all turn out to be wrong. */
static int may_try(const struct sessions *x, const struct attempt *user)
{
    if (user && limits.lockout_failures) {
        if (user->count >= limits.lockout_failures)
            return -1;
        if (user->count + user->trying >= limits.lockout_failures)
            return 0;
    }
    return x->hashing < limits.hashing;
}

static int wait_for_turn(struct sessions *x, int64_t user, struct err *err)
{
    int may, r = 0;

    if (x->waiting >= WAITING_MAX)
        return err_set(err, ERR_LIMIT, "too many are logging in at once: try again in a moment");
    x->waiting++;
    while (!(may = may_try(x, user ? failures_of(x, user) : NULL)) && !r)
        r = co_cond_wait(&x->hashed, NEVER);
    x->waiting--;
    if (r)
        return control_cancelled(err);
    return may > 0 ? 0 : err_set(err, ERR_DENIED, LOGIN_LOCKED);
}

/* user 0: there is none, which takes as long. */
static int try_in_turn(struct sessions *x, const struct login_request *rq, int64_t user,
                       struct trying *t, struct err *err)
{
    struct attempt *a;

    if (lazy_load(&lazy_crypt, err) || wait_for_turn(x, user, err))
        return -1;
    if (user)
        failures_of(x, user)->trying++;
    x->hashing++;
    co_call(try_password, t);
    x->hashing--;
    if (user) {
        a = failures_of(x, user);
        a->trying--;
        if (t->right)
            a->count = 0;
        else
            count_failure(a, rq);
    }
    co_cond_wake(&x->hashed);
    return 0;
}

/* ---- tokens ---- */

struct adding {
    struct session session;
    const struct user *user; /* as it was when the password or token was right */
    const char *old;         /* the login that this one replaces; NULL: none */
};

static int add_session(struct store *s, void *arg, struct err *err)
{
    const struct adding *a = arg;
    struct user now = { 0 };
    bool alone;

    if (s->ops->user_by_id(s, a->user->id, &now, err))
        return -1;
    alone = !now.multi_login;
    if (now.locked)
        return err_set(err, ERR_DENIED, LOGIN_LOCKED);
    if (a->old)
        return s->ops->session_renew(s, a->old, &a->session, alone, err);
    if (!s->ops->session_add(s, &a->session, a->user->password, alone, err))
        return 0;
    return err->code == ERR_DENIED ? err_set(err, ERR_DENIED, LOGIN_WRONG) : -1;
}

static int begin_session(struct control *c, const struct user *u, const char *old,
                         struct login *out, struct err *err)
{
    int64_t now = control_wall_ms();
    struct adding a = { .session = { .user = u->id, .created_ms = now }, .user = u, .old = old };
    struct jwt t = { .user = u->id, .expires_s = now / 1000 + limits.token_s };

    id_uuid(a.session.id);
    a.session.expires_ms = t.expires_s * 1000;
    memcpy(t.session, a.session.id, sizeof(a.session.id));
    out->token.len = 0;
    if (jwt_sign(str_of(c->sessions->secret), &t, &out->token, err) ||
        control_store(c, add_session, &a, err))
        return -1;
    if (!u->multi_login || old)
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
    if (try_in_turn(c->sessions, rq, known ? u->id : 0, &t, err))
        return -1;
    if (t.right)
        return u->locked ? err_set(err, ERR_DENIED, LOGIN_LOCKED) : 0;
    return err_set(err, known ? ERR_DENIED : ERR_NOT_FOUND, LOGIN_WRONG);
}

int control_login(struct control *c, const struct login_request *rq, struct login *out,
                  struct err *err)
{
    struct user u = { 0 };

    if (count_attempt(c->sessions, rq, err))
        return -1;
    if (!user_name_valid(str_of(rq->name)))
        return err_set(err, ERR_NOT_FOUND, LOGIN_WRONG);
    if (check_password(c, rq, &u, err))
        return -1;
    return begin_session(c, &u, NULL, out, err);
}

int control_refresh(struct control *c, struct str token, struct login *out, struct err *err)
{
    struct finding f;
    struct jwt t;

    if (find_login(c, token, &f, &t, err))
        return -1;
    if (!begin_session(c, &f.user, f.session.id, out, err))
        return 0;
    /* it has ended since: another refresh of the same token was faster, say */
    return err->code == ERR_NOT_FOUND ? err_set(err, ERR_UNAUTHENTICATED, TOKEN_SUPERSEDED) : -1;
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
