/* contract_auth.c - logging in by password. The login of API pages takes name and password from the
 * query, as its contract has it; the query of a request is never logged. */
#include "api/contract.h"
#include "api/tables.h"

enum { PASSWORD_MAX = 256 };

struct user_view {
    int64_t id, status;
    const char *username, *nickname, *join_time;
    bool is_superuser, is_staff, is_multi_login;
};
static const struct field user_view[] = {
    FIELD(struct user_view, id, F_INT, .flags = F_REQUIRED),
    FIELD(struct user_view, username, F_STR, .flags = F_REQUIRED),
    FIELD(struct user_view, nickname, F_STR, .flags = F_REQUIRED),
    FIELD(struct user_view, status, F_INT, .flags = F_REQUIRED, .help = "1: not locked"),
    FIELD(struct user_view, is_superuser, F_BOOL, .flags = F_REQUIRED, .help = "an admin"),
    FIELD(struct user_view, is_staff, F_BOOL, .flags = F_REQUIRED),
    FIELD(struct user_view, is_multi_login, F_BOOL, .flags = F_REQUIRED,
          .help = "a login leaves earlier ones as they are"),
    FIELD(struct user_view, join_time, F_STR, .flags = F_REQUIRED),
    {},
};

static struct user_view show(struct call *c, const struct user *u)
{
    return (struct user_view){ .id = u->id,
                               .status = !u->locked,
                               .username = arena_strdup(&c->arena, str_of(u->name)),
                               .nickname = arena_strdup(&c->arena, str_of(u->name)),
                               .is_superuser = u->role == ROLE_ADMIN,
                               .is_staff = u->role == ROLE_ADMIN,
                               .is_multi_login = u->multi_login,
                               .join_time = api_time(c, u->created_ms) };
}

struct token_view {
    const char *access_token, *token_type, *session_uuid, *access_token_expire_time;
    struct user_view *user;
};
#define V(member) FIELD(struct token_view, member, F_STR, .flags = F_REQUIRED)
#define V_USER                                                                                     \
    FIELD(struct token_view, user, F_OBJ, .flags = F_REQUIRED, .sub = user_view,                   \
          .sub_size = sizeof(struct user_view))

static const struct field swagger_reply[] = { V(access_token), V(token_type), V_USER, {} };
static const struct field login_reply[] = {
    V(access_token), V(token_type), V(access_token_expire_time), V(session_uuid), V_USER, {}
};

static int reply_login(struct call *c, const struct login *l)
{
    struct user_view user = show(c, &l->user);
    const struct token_view view = { .access_token = buf_cstr(&l->token),
                                     .token_type = "Bearer",
                                     .session_uuid = l->session.id,
                                     .access_token_expire_time = api_time(c, l->session.expires_ms),
                                     .user = &user };

    call_header(c, "Cache-Control", "no-store");
    return c->route->flags & ROUTE_BARE ? api_reply(c, &view) : contract_reply(c, &view);
}

struct login_body {
    char *username, *password;
};
static const struct field login_body[] = {
    FIELD(struct login_body, username, F_STR, .flags = F_REQUIRED, .max = 256),
    FIELD(struct login_body, password, F_STR, .flags = F_REQUIRED, .max = PASSWORD_MAX),
    {},
};

static int log_in(struct call *c, struct login_body *b, bool by_query, struct err *err)
{
    AUTO(control_login_free) struct login l = { 0 };
    struct login_request rq = {
        .peer = api_client(c), .name = b->username, .password = b->password, .by_query = by_query
    };
    int r = control_login(api_of(c)->control, &rq, &l, err);

    explicit_bzero(b->password, strlen(b->password));
    if (r && err->code == ERR_LIMIT)
        call_header(c, "Retry-After", "60");
    return r ? -1 : reply_login(c, &l);
}

static int login_swagger(struct call *c, void *body, struct err *err)
{
    struct login_body q = { 0 };

    (void)body;
    return api_query(c, &q, err) ? -1 : log_in(c, &q, true, err);
}

static int login(struct call *c, void *body, struct err *err)
{
    return log_in(c, body, false, err);
}

static int refresh_token(struct call *c, void *body, struct err *err)
{
    AUTO(control_login_free) struct login l = { 0 };

    (void)body;
    if (control_refresh(api_of(c)->control, api_credential(c), &l, err))
        return -1;
    return reply_login(c, &l);
}

static int logout(struct call *c, void *body, struct err *err)
{
    (void)body;
    if (control_logout(api_of(c)->control, api_credential(c), err))
        return -1;
    return contract_reply(c, NULL);
}

#define TAG .body_max = API_BODY_MAX, .tag = "Auth"

const struct route contract_auth_routes[] = {
    { "POST", "/api/v1/auth/login/swagger", ROUTE_RAW, ROUTE_OPEN | ROUTE_LENIENT | ROUTE_BARE,
      .fn = login_swagger, .operation = "login_swagger",
      .help = "A token for name and password, without the envelope.", .query = login_body,
      .reply = swagger_reply, TAG },
    { "POST", "/api/v1/auth/login", ROUTE_JSON, ROUTE_OPEN | ROUTE_LENIENT, login_body,
      sizeof(struct login_body), login, "login", "A token for name and password.",
      .reply = login_reply, TAG },
    { "POST", "/api/v1/auth/refresh", ROUTE_RAW, .fn = refresh_token, .operation = "refresh_token",
      .help = "A new token for the one that is sent, which then works no more.",
      .reply = login_reply, TAG },
    { "POST", "/api/v1/auth/logout", ROUTE_RAW, .fn = logout, .operation = "logout",
      .help = "End the login of the token that is sent.", TAG },
    {}
};
