/* native_port.c - /v1/sandboxes/{id}/ports/{port}: a URL by which a browser gets to a port, also to
 * one that asks for a credential. */
#include "api/contract.h"
#include "api/native.h"
#include "api/tables.h"
#include "model/door.h"

enum { PATH_MAX_BYTES = 2048 };

struct url_body {
    char *path;
};
static const struct field url_body[] = {
    FIELD(struct url_body, path, F_STR, .max = PATH_MAX_BYTES,
          .help = "of the page, with its query; default /"),
    {},
};

struct url_view {
    const char *url, *expires;
};
static const struct field url_view[] = {
    FIELD(struct url_view, url, F_STR, .flags = F_REQUIRED, .help = "good for one request"),
    FIELD(struct url_view, expires, F_STR, .flags = F_REQUIRED),
    {},
};

static int port_of(struct call *c, uint16_t *out, struct err *err)
{
    uint64_t port;

    if (str_u64(c->param[1], &port) || port < 1 || port > UINT16_MAX)
        return err_set(err, ERR_INVALID, "the port must be a number from 1 to 65535");
    if (port == PROVIDER_GUEST_PORT)
        return err_set(err, ERR_INVALID,
                       "port %d is the guest's, which knows nobody by a URL: send X-Access-Token",
                       PROVIDER_GUEST_PORT);
    *out = (uint16_t)port;
    return 0;
}

/* As it goes into a request line. */
static int check_path(const char *path, struct err *err)
{
    if (path[0] != '/')
        return err_set(err, ERR_INVALID, "field 'path' must begin with '/'");
    for (const char *p = path; *p; p++)
        if (*p <= ' ' || *p > '~' || *p == '#')
            return err_set(err, ERR_INVALID,
                           "field 'path': what is no printable ASCII, '#' and spaces are written "
                           "as %%XX");
    if (strstr(path, DOOR_TICKET_NAME))
        return err_set(err, ERR_INVALID,
                       "field 'path': " DOOR_TICKET_NAME " is put there by the server");
    return 0;
}

static int make_url(struct call *c, void *body, struct err *err)
{
    const struct url_body *b = body;
    const char *path = b->path && *b->path ? b->path : "/";
    struct sandbox *s = api_sandbox(c, err);
    char ticket[DOOR_TICKET + 1];
    struct url_view view;
    uint16_t port;
    int64_t ms;

    if (!s || port_of(c, &port, err) || check_path(path, err))
        return -1;
    ms = control_door_ticket(s, port, ticket);
    view.url = arena_printf(&c->arena, "%s%s%c" DOOR_TICKET_NAME "=%s", contract_url(c, s, port),
                            path, strchr(path, '?') ? '&' : '?', ticket);
    view.expires = api_time(c, clock_wall_ms() + ms);
    call_header(c, "Cache-Control", "no-store");
    return api_reply(c, &view);
}

const struct route native_port_routes[] = {
    { "POST", "/v1/sandboxes/{id}/ports/{port}/url", ROUTE_JSON, 0, url_body,
      sizeof(struct url_body), make_url, "makePortUrl",
      "A URL for a browser: it opens the port once, within a minute, and sets a cookie for it.",
      .body_max = API_BODY_MAX, .reply = url_view, .tag = "Sandboxes" },
    {},
};
