/* native_users.c - /v1: who there is, and their keys. */
#include "api/native.h"
#include "api/tables.h"

/* ---- users ---- */

static const struct field_name roles[] = { { "user", ROLE_USER }, { "admin", ROLE_ADMIN }, {} };

struct user_view {
    const char *name, *created;
    int64_t role;
    bool locked, has_password, multi_login;
};
static const struct field user_view[] = {
    FIELD(struct user_view, name, F_STR, .flags = F_REQUIRED),
    FIELD(struct user_view, role, F_ENUM, .flags = F_REQUIRED, .names = roles),
    FIELD(struct user_view, locked, F_BOOL, .flags = F_REQUIRED, .help = "its keys do not work"),
    FIELD(struct user_view, created, F_STR, .flags = F_REQUIRED),
    FIELD(struct user_view, has_password, F_BOOL, .flags = F_REQUIRED),
    FIELD(struct user_view, multi_login, F_BOOL, .flags = F_REQUIRED,
          .help = "a login leaves earlier ones as they are"),
    {},
};
struct users_view {
    struct objs users;
};
static const struct field users_view[] = {
    FIELD(struct users_view, users, F_OBJS, .flags = F_REQUIRED, .sub = user_view,
          .sub_size = sizeof(struct user_view)),
    {},
};

static struct user_view show_user(struct call *c, const struct user *u)
{
    return (struct user_view){
        .name = u->name,
        .created = api_time(c, u->created_ms),
        .role = u->role,
        .locked = u->locked,
        .has_password = u->password[0] != 0,
        .multi_login = u->multi_login,
    };
}

static int put_user(void *arg, const struct user *u)
{
    struct api_list *a = arg;
    struct user_view view = show_user(a->call, u);

    api_list_add(a, &view);
    return 0;
}

static int list_users(struct call *c, void *body, struct err *err)
{
    struct api_list a;

    (void)body;
    api_list_begin(&a, c);
    return api_list_end(&a, control_user_list(api_of(c)->control, put_user, &a, err));
}

struct new_user {
    char *name, *password;
    int64_t role;
    bool multi_login;
};
static const struct field new_user[] = {
    FIELD(struct new_user, name, F_STR, .flags = F_REQUIRED, .min = 1, .max = USER_NAME,
          .help = "a-z and 0-9, then also . _ -"),
    FIELD(struct new_user, role, F_ENUM, .names = roles),
    FIELD(struct new_user, password, F_STR, .min = 8, .max = 256, .help = "8 bytes or more"),
    FIELD(struct new_user, multi_login, F_BOOL, .help = "may be logged in several times at once"),
    {},
};

static int add_user(struct call *c, void *body, struct err *err)
{
    const struct new_user *b = body;
    struct user_change change = USER_UNCHANGED;
    struct user_view view;
    struct user u;

    if (!user_name_valid(str_of(b->name)))
        return err_set(err, ERR_INVALID,
                       "field 'name' must begin with a-z or 0-9 and go on with a-z, 0-9, '.', '_' "
                       "or '-', up to %d characters",
                       USER_NAME);
    if (control_user_add(api_of(c)->control, b->name, (enum user_role)b->role, b->password, &u,
                         err))
        return -1;
    u.multi_login = b->multi_login;
    change.multi_login = b->multi_login;
    if (b->multi_login && control_user_change(api_of(c)->control, &u, &change, err))
        return -1;
    view = show_user(c, &u);
    return api_reply(c, &view);
}

static int get_user(struct call *c, void *body, struct err *err)
{
    struct user_view view;
    struct user u;

    (void)body;
    if (control_user_get(api_of(c)->control, arena_strdup(&c->arena, c->param[0]), &u, err))
        return -1;
    view = show_user(c, &u);
    return api_reply(c, &view);
}

struct user_patch {
    char *locked, *multi_login, *password;
    int64_t role;
};
static const struct field user_patch[] = {
    FIELD(struct user_patch, role, F_ENUM, .names = roles, .def = -1),
    FIELD(struct user_patch, locked, F_JSON, .max = 5, .help = "true or false"),
    FIELD(struct user_patch, multi_login, F_JSON, .max = 5, .help = "true or false"),
    FIELD(struct user_patch, password, F_STR, .min = 8, .max = 256, .help = "8 bytes or more"),
    {},
};

/* One is always left who can undo what was done. */
static int check_self(struct call *c, const struct user *u, const struct user_change *change,
                      struct err *err)
{
    if (u->id == api_actor(c)->user &&
        (change->locked > 0 || (change->role >= 0 && change->role != ROLE_ADMIN)))
        return err_set(err, ERR_CONFLICT,
                       "an admin cannot lock or demote themselves; ask another admin");
    return 0;
}

static int set_bool(const char *field, const char *json, int64_t *out, struct err *err)
{
    if (json && strcmp(json, "true") && strcmp(json, "false"))
        return err_set(err, ERR_INVALID, "field '%s' must be true or false", field);
    if (json)
        *out = !strcmp(json, "true");
    return 0;
}

static int change_user(struct call *c, void *body, struct err *err)
{
    const struct user_patch *b = body;
    struct control *control = api_of(c)->control;
    char *name = arena_strdup(&c->arena, c->param[0]);
    struct user_change change = USER_UNCHANGED;
    struct user_view view;
    struct user u;

    change.role = b->role;
    change.password = b->password;
    if (control_user_get(control, name, &u, err) ||
        set_bool("locked", b->locked, &change.locked, err) ||
        set_bool("multi_login", b->multi_login, &change.multi_login, err) ||
        check_self(c, &u, &change, err) || control_user_change(control, &u, &change, err) ||
        control_user_get(control, name, &u, err))
        return -1;
    view = show_user(c, &u);
    return api_reply(c, &view);
}

/* ---- keys ---- */

struct key_view {
    const char *id, *key, *name, *begins, *created, *used;
};
#define KEY_FIELDS                                                                                 \
    FIELD(struct key_view, id, F_STR, .flags = F_REQUIRED),                                        \
        FIELD(struct key_view, name, F_STR, .flags = F_REQUIRED),                                  \
        FIELD(struct key_view, begins, F_STR, .flags = F_REQUIRED, .help = "the key's beginning"), \
        FIELD(struct key_view, created, F_STR, .flags = F_REQUIRED),                               \
        FIELD(struct key_view, used, F_STR, .flags = F_OMIT, .help = "last; absent: never")

static const struct field key_view[] = { KEY_FIELDS, {} };
static const struct field new_key_view[] = {
    KEY_FIELDS,
    FIELD(struct key_view, key, F_STR, .flags = F_REQUIRED, .help = "shown this once"),
    {},
};
struct keys_view {
    struct objs keys;
};
static const struct field keys_view[] = {
    FIELD(struct keys_view, keys, F_OBJS, .flags = F_REQUIRED, .sub = key_view,
          .sub_size = sizeof(struct key_view)),
    {},
};

struct key_query {
    char *user;
};
static const struct field key_query[] = {
    FIELD(struct key_query, user, F_STR, .max = USER_NAME, .help = "another user's; for admins"),
    {},
};

static int whose_keys(struct call *c, int64_t *user, struct err *err)
{
    struct key_query q = { 0 };
    struct user u;

    *user = api_actor(c)->user;
    if (api_query(c, &q, err))
        return -1;
    if (!q.user || !strcmp(q.user, api_actor(c)->name))
        return 0;
    if (!api_actor(c)->admin)
        return err_set(err, ERR_DENIED, "query parameter 'user': only an admin may");
    if (control_user_get(api_of(c)->control, q.user, &u, err))
        return -1;
    *user = u.id;
    return 0;
}

static struct key_view show_key(struct call *c, const struct api_key *k)
{
    return (struct key_view){
        .id = k->id,
        .name = k->name,
        .begins = k->shown,
        .created = api_time(c, k->created_ms),
        .used = api_time(c, k->used_ms),
    };
}

static int put_key(void *arg, const struct api_key *k)
{
    struct api_list *a = arg;
    struct key_view view = show_key(a->call, k);

    api_list_add(a, &view);
    return 0;
}

static int list_keys(struct call *c, void *body, struct err *err)
{
    struct api_list a;
    int64_t user;

    (void)body;
    if (whose_keys(c, &user, err))
        return -1;
    api_list_begin(&a, c);
    return api_list_end(&a, control_key_list(api_of(c)->control, user, put_key, &a, err));
}

struct new_key {
    char *name;
};
static const struct field new_key[] = {
    FIELD(struct new_key, name, F_STR, .max = USER_NAME, .help = "text of your own"),
    {},
};

static int add_key(struct call *c, void *body, struct err *err)
{
    const struct new_key *b = body;
    struct key_view view;
    struct api_key key;
    char text[64];
    int64_t user;
    int r;

    if (whose_keys(c, &user, err) ||
        control_key_add(api_of(c)->control, user, b->name ? b->name : "", NULL, &key, text, err))
        return -1;
    view = show_key(c, &key);
    view.key = text;
    call_header(c, "Cache-Control", "no-store");
    r = api_reply(c, &view);
    explicit_bzero(text, sizeof(text));
    return r;
}

static int remove_key(struct call *c, void *body, struct err *err)
{
    int64_t user = api_actor(c)->admin ? 0 : api_actor(c)->user;

    (void)body;
    if (control_key_remove(api_of(c)->control, user, arena_strdup(&c->arena, c->param[0]), err))
        return -1;
    return api_reply_empty(c);
}

/* ---- me ---- */

struct me {
    const char *user;
    bool admin;
};
static const struct field me[] = {
    FIELD(struct me, user, F_STR, .flags = F_REQUIRED),
    FIELD(struct me, admin, F_BOOL, .flags = F_REQUIRED),
    {},
};

static int get_me(struct call *c, void *body, struct err *err)
{
    const struct me view = { api_actor(c)->name, api_actor(c)->admin };

    (void)body, (void)err;
    return api_reply(c, &view);
}

#define TAG .body_max = API_BODY_MAX, .tag = "Users and keys"

const struct route native_user_routes[] = {
    { "GET", "/v1/me", ROUTE_RAW, .fn = get_me, .operation = "getMe", .help = "Whose key this is.",
      .reply = me, TAG },
    { "GET", "/v1/users", ROUTE_RAW, ROUTE_ADMIN, .fn = list_users, .operation = "listUsers",
      .help = "All users.", .reply = users_view, TAG },
    { "POST", "/v1/users", ROUTE_JSON, ROUTE_ADMIN, new_user, sizeof(struct new_user), add_user,
      "createUser", "Add a user. It needs a key to do anything.", .reply = user_view, .status = 201,
      TAG },
    { "GET", "/v1/users/{name}", ROUTE_RAW, ROUTE_ADMIN, .fn = get_user, .operation = "getUser",
      .help = "One user.", .reply = user_view, TAG },
    { "PATCH", "/v1/users/{name}", ROUTE_JSON, ROUTE_ADMIN, user_patch, sizeof(struct user_patch),
      change_user, "changeUser", "Change a user's role or password, lock or unlock it.",
      .reply = user_view, TAG },
    { "GET", "/v1/keys", ROUTE_RAW, .fn = list_keys, .operation = "listKeys",
      .help = "Your keys, without the keys themselves.", .query = key_query, .reply = keys_view,
      TAG },
    { "POST", "/v1/keys", ROUTE_JSON, 0, new_key, sizeof(struct new_key), add_key, "createKey",
      "A new key. It is shown in the answer and never again.", .query = key_query,
      .reply = new_key_view, .status = 201, TAG },
    { "DELETE", "/v1/keys/{id}", ROUTE_RAW, .fn = remove_key, .operation = "deleteKey",
      .help = "Make a key worthless at once.", .status = 204, TAG },
    {}
};
