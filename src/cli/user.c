/* user.c - `cove user`: who may use the server. For admins. */
#include <stdlib.h>

#include "base/field.h"
#include "base/mem.h"
#include "cli/columns.h"
#include "cli/commands.h"
#include "cli/password.h"
#include "cli/remote.h"

struct user_options {
    struct remote_options remote;
    bool admin, password, test, multi_login;
};

struct user {
    char *name, *role, *created;
    bool locked, has_password;
};
static const struct field user_fields[] = {
    FIELD(struct user, name, F_STR),          FIELD(struct user, role, F_STR),
    FIELD(struct user, created, F_STR),       FIELD(struct user, locked, F_BOOL),
    FIELD(struct user, has_password, F_BOOL), {},
};

struct users {
    struct objs users;
};
static const struct field users_fields[] = {
    FIELD(struct users, users, F_OBJS, .sub = user_fields, .sub_size = sizeof(struct user),
          .max = 1 << 20),
    {},
};

/* ---- list ---- */

static int list(struct remote *r, struct err *err)
{
    static const char *const heads[] = { "NAME", "ROLE", "LOCKED", "PASSWORD", "CREATED", NULL };
    AUTO(buf_free) struct buf reply = { 0 };
    AUTO(columns_finish) struct columns t;
    struct arena a = { 0 };
    struct users all = { 0 };
    const struct user *u;
    int failed;

    columns_init(&t, heads);
    if (remote_call(r, "GET", "/v1/users", NULL, &reply, err))
        return -1;
    failed = field_decode_text(users_fields, FIELDS_PROTO, buf_str(&reply), &a, &all, err);
    u = all.users.items;
    for (size_t i = 0; i < all.users.n; i++) {
        const char *cells[] = { u[i].name, u[i].role, u[i].locked ? "yes" : "no",
                                u[i].has_password ? "yes" : "no", u[i].created };

        columns_row(&t, cells);
    }
    if (!failed && r->o->json)
        remote_print(&reply);
    else if (!failed)
        columns_print(&t);
    arena_free(&a);
    return failed ? err_in(err, "the server's answer") : 0;
}

/* ---- changes ---- */

static int change(struct remote *r, const char *method, const char *name, struct buf *body,
                  const char *who, const char *done, struct err *err)
{
    AUTO(buf_free) struct buf target = { 0 };
    AUTO(buf_free) struct buf reply = { 0 };
    int failed;

    buf_puts(&target, "/v1/users");
    if (name) {
        buf_putc(&target, '/');
        remote_put_encoded(&target, name);
    }
    failed = remote_call(r, method, target.data, body, &reply, err);
    explicit_bzero(body->data, body->len); /* it may hold a password */
    if (failed)
        return -1;
    if (r->o->json)
        remote_print(&reply);
    else
        printf("user %s: %s\n", who, done);
    return 0;
}

static int put_password(struct remote *r, struct buf *b, struct err *err)
{
    char *password = password_read(r->args->path, true, err);

    if (!password)
        return -1;
    json_kv_str(b, "password", password);
    explicit_bzero(password, strlen(password));
    free(password);
    return 0;
}

/* Everybody knows this one: it is printed in a document. */
static const char test_user[] = "sandbox_test", test_password[] = "TestPass123!";

static int name_of_new(struct remote *r, const struct user_options *o, const char **out,
                       struct err *err)
{
    *out = o->test ? test_user : r->args->n ? r->args->words[0] : NULL;
    if (!*out)
        return err_set(err, ERR_INVALID, "NAME is missing");
    if (o->test && (r->args->n || o->password))
        return err_set(err, ERR_INVALID, "--test has a name and a password of its own");
    return 0;
}

static int add(struct remote *r, struct err *err)
{
    const struct user_options *o = r->args->values;
    AUTO(buf_free) struct buf b = { 0 };
    const char *name;

    if (name_of_new(r, o, &name, err))
        return -1;
    json_open(&b, '{');
    json_kv_str(&b, "name", name);
    json_kv_str(&b, "role", o->admin ? "admin" : "user");
    if (o->multi_login)
        json_kv_bool(&b, "multi_login", true);
    if (o->test)
        json_kv_str(&b, "password", test_password);
    if (o->password && put_password(r, &b, err))
        return -1;
    json_close(&b, '}');
    if (o->test)
        fprintf(stderr, "%s: anybody who can reach the server knows this user's password\n",
                r->args->path);
    return change(r, "POST", NULL, &b, name,
                  o->test ? "added, password TestPass123!"
                          : "added (cove key add --user makes an API key)",
                  err);
}

static int passwd(struct remote *r, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };

    json_open(&b, '{');
    if (put_password(r, &b, err))
        return -1;
    json_close(&b, '}');
    return change(r, "PATCH", r->args->words[0], &b, r->args->words[0], "password changed", err);
}

static int set_locked(struct remote *r, bool locked, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };

    json_open(&b, '{');
    json_kv_bool(&b, "locked", locked);
    json_close(&b, '}');
    return change(r, "PATCH", r->args->words[0], &b, r->args->words[0],
                  locked ? "locked" : "unlocked", err);
}

static int lock(struct remote *r, struct err *err) { return set_locked(r, true, err); }
static int unlock(struct remote *r, struct err *err) { return set_locked(r, false, err); }

/* ---- the tables ---- */

#define COMMON REMOTE_OPTIONS(struct user_options, "print the server's answer")

static const struct args_option options[] = { COMMON, {} };
static const struct args_option add_options[] = {
    OPTION(struct user_options, admin, "admin", ARGS_SWITCH, .help = "may do everything"),
    OPTION(struct user_options, password, "password", ARGS_SWITCH,
           .help = "read a password from standard input"),
    OPTION(struct user_options, multi_login, "multi-login", ARGS_SWITCH,
           .help = "a login leaves the user's earlier ones as they are"),
    OPTION(struct user_options, test, "test", ARGS_SWITCH,
           .help = "the test user of the control-plane contract: sandbox_test, TestPass123!"),
    COMMON,
    {}
};

static const struct args_word add_words[] = {
    { .name = "NAME", .help = "a-z 0-9 . _ -", .flags = ARGS_OPTIONAL }, {}
};
static const struct args_word words[] = { { .name = "NAME", .help = "a-z 0-9 . _ -" }, {} };

#define RUN(what)                                                                                  \
    static int run_##what(struct args *a)                                                          \
    {                                                                                              \
        const struct user_options *o = a->values;                                                  \
                                                                                                   \
        return remote_command(a, &o->remote, what);                                                \
    }
RUN(add)
RUN(list)
RUN(passwd)
RUN(lock)
RUN(unlock)

#define SUB(what, opts, wanted, text)                                                              \
    static const struct command command_##what = { .name = #what,                                  \
                                                   .help = (text),                                 \
                                                   .options = (opts),                              \
                                                   .size = sizeof(struct user_options),            \
                                                   .words = (wanted),                              \
                                                   .run = run_##what }
SUB(add, add_options, add_words, "add a user");
SUB(list, options, NULL, "show all users");
SUB(passwd, options, words, "set a user's password, read from standard input");
SUB(lock, options, words, "refuse a user's keys and password from now on");
SUB(unlock, options, words, "accept them again");

static const struct command *const subs[] = { &command_add,  &command_list,   &command_passwd,
                                              &command_lock, &command_unlock, NULL };

const struct command command_user = {
    .name = "user",
    .help = "add, list and lock users of the server",
    .about = "For admins. A password is never an argument: it is read from standard input, on a "
             "terminal without being shown.",
    .subs = subs,
};
