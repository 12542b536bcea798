/* api.c - what every facade shares: who asks, parameters, answers. See api.h. */
#include "api/api.h"

#include <nettle/sha2.h>
#include <time.h>

#include "api/parse.h"
#include "api/tables.h"
#include "base/log.h"
#include "io/forwarded.h"

/* Searched in this order: /sandboxes/metrics comes before /sandboxes/{sandboxID}. */
#define NATIVE                                                                                     \
    e2b_create_routes, e2b_watch_routes, e2b_sandbox_routes, e2b_pause_routes, native_box_routes,  \
        e2b_template_routes, e2b_later_routes, native_watch_routes, native_process_routes,         \
        native_user_routes, native_orphan_routes, native_port_routes, api_tunnel_routes,           \
        api_system_routes

const struct route *const native_tables[] = { NATIVE, NULL };
const struct route *const api_tables[] = { contract_box_routes,
                                           contract_run_routes,
                                           contract_file_routes,
                                           contract_url_routes,
                                           contract_auth_routes,
                                           NATIVE,
                                           NULL };

struct api *api_of(struct call *c) { return c->server->ctx; }

struct actor *api_actor(struct call *c) { return c->user; }

/* ---- who asks ---- */

const char *api_client(struct call *c)
{
    char *out = arena_alloc(&c->arena, FORWARDED_ADDRESS);

    forwarded_client(&c->head, conn_peer(c->conn), api_of(c)->proxies, out);
    return out;
}

struct str api_credential(const struct call *c)
{
    struct str key = http_get(&c->head, "x-api-key"), scheme;

    if (key.n)
        return key;
    str_cut(http_get(&c->head, "authorization"), ' ', &scheme, &key);
    return str_iis(scheme, "bearer") ? str_trim(key) : (struct str){ 0 };
}

int api_authenticate(struct call *c, struct err *err)
{
    struct str key = api_credential(c);
    struct actor *who;

    if (c->user)
        return 0;
    if (!key.n) {
        call_header(c, "WWW-Authenticate", "Bearer");
        return err_set(err, ERR_UNAUTHENTICATED,
                       "an API key is needed: send it as X-API-Key, or as Authorization: Bearer");
    }
    who = arena_alloc(&c->arena, sizeof(*who));
    if (control_actor_by_key(api_of(c)->control, key, who, err)) {
        if (err->code == ERR_UNAUTHENTICATED)
            call_header(c, "WWW-Authenticate", "Bearer");
        return -1;
    }
    c->user = who;
    return 0;
}

int api_before(struct call *c, struct err *err)
{
    if (contract_owns(c->path) && contract_before(c, err))
        return -1;
    if (c->route->flags & ROUTE_OPEN)
        return 0;
    if (api_authenticate(c, err))
        return -1;
    if (c->route->flags & ROUTE_ADMIN && !api_actor(c)->admin)
        return err_set(err, ERR_DENIED, "only an admin may do this; the key belongs to user '%s'",
                       api_actor(c)->name);
    return 0;
}

static bool may_show(const void *control, struct str path)
{
    return control_may_show(control, path);
}

const char *api_public_text(struct call *c, const char *text)
{
    char out[sizeof(((struct err *)0)->msg) * 2];

    if (!text || !strchr(text, '/') || (api_actor(c) && api_actor(c)->admin))
        return text;
    err_hide_paths(text, may_show, api_of(c)->control, out, sizeof(out));
    return arena_strdup(&c->arena, str_of(out));
}

/* The Python SDK repeats a bare 429, 502, 503 or 504 three times, creations too. That is right only
 * where nothing was done and a moment helps. */
void api_failing(struct call *c, struct err *err)
{
    int status = err_status(err->code);
    const char *told = err->host ? api_public_text(c, err->msg) : err->msg;

    if (strcmp(told, err->msg) != 0) {
        log_warn("a client was told an error without the paths in it", KV("id", call_id(c)),
                 KV("user", api_actor(c) ? api_actor(c)->name : ""), KV("error", err->msg));
        snprintf(err->msg, sizeof(err->msg), "%s", told);
    }
    if (err->code == ERR_UNAVAILABLE) {
        call_header(c, "Should-Retry", "true");
        call_header(c, "Retry-After", "1");
    } else if (status == 429 || status >= 500) {
        call_header(c, "Should-Retry", "false");
    }
}

bool api_refuse(struct call *c, const struct err *err) { return contract_refuse(c, err); }

/* ---- the request ---- */

/* A parameter is text; what its row is decides which JSON value that text stands for. */
static json_t *query_value(const struct field *table, const char *name, struct str text)
{
    const struct field *f = table;
    int64_t number;

    while (f->name && strcmp(f->name, name))
        f++;
    if (f->name && f->type == F_INT && !str_i64(text, &number))
        return json_integer(number);
    if (f->name && f->type == F_BOOL && (str_is(text, "true") || str_is(text, "1")))
        return json_true();
    if (f->name && f->type == F_BOOL && (str_is(text, "false") || str_is(text, "0")))
        return json_false();
    return json_stringn(text.p ? text.p : "", text.n);
}

static int add_parameter(struct call *c, json_t *all, struct str pair, struct err *err)
{
    struct str name, text;
    const char *key;
    json_t *value;

    str_cut(pair, '=', &name, &text);
    if (str_percent_decode(&c->arena, name, true, &name) ||
        str_percent_decode(&c->arena, text, true, &text))
        return err_set(err, ERR_INVALID, "the query has a bad %% escape");
    key = arena_strdup(&c->arena, name);
    if (json_object_get(all, key))
        return err_set(err, ERR_INVALID, "query parameter '%.64s' is given twice", key);
    value = query_value(c->route->query, key, text);
    if (!value || json_object_set_new(all, key, value)) /* refuses what is not UTF-8 */
        return err_set(err, ERR_INVALID, "the query is not UTF-8");
    return 0;
}

/* The table's sentences speak of fields. */
static int rename_field(struct err *err)
{
    struct err said = *err;
    const char *rest = said.msg;

    if (str_starts(str_of(rest), "field "))
        rest += sizeof("field ") - 1;
    return err_set(err, said.code, "query parameter %s", rest);
}

int api_query(struct call *c, void *out, struct err *err)
{
    AUTO(json_dropp) json_t *all = json_object();
    struct str rest = c->query, pair;

    while (rest.n) {
        str_cut(rest, '&', &pair, &rest);
        if (pair.n && add_parameter(c, all, pair, err))
            return -1;
    }
    if (!field_decode(c->route->query,
                      c->route->flags & ROUTE_LENIENT ? FIELDS_LENIENT : FIELDS_STRICT, all,
                      &c->arena, out, err))
        return 0;
    return rename_field(err);
}

struct sandbox *api_sandbox(struct call *c, struct err *err)
{
    return control_find(api_of(c)->control, api_actor(c), c->param[0], err);
}

int api_idempotency(struct call *c, const void *body, struct create_spec *s, struct err *err)
{
    AUTO(buf_free) struct buf asked = { 0 };
    struct str key = http_get(&c->head, "idempotency-key");
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx sha;
    char *hex;

    if (!key.p)
        return 0;
    if (!parse_idempotency_key(key))
        return err_set(err, ERR_INVALID,
                       "header Idempotency-Key must be 1 to 255 characters of a-z, 0-9 and '-'");
    /* By its meaning, not its bytes: a client that repeats may order the keys differently. */
    buf_puts(&asked, c->route->operation);
    field_encode(c->route->fields, body, &asked);
    sha256_init(&sha);
    sha256_update(&sha, asked.len, (const uint8_t *)asked.data);
    sha256_digest(&sha, sizeof(digest), digest);
    hex = arena_alloc(&c->arena, sizeof(digest) * 2 + 1);
    for (size_t i = 0; i < sizeof(digest); i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    s->idem_key = arena_strdup(&c->arena, key);
    s->idem_hash = hex;
    return 0;
}

int api_bits(const struct field_name *names, struct str list, const char *what, unsigned *out,
             struct err *err)
{
    struct str item;

    while (str_next(&list, ',', &item)) {
        const struct field_name *n = names;

        while (n->name && !str_is(item, n->name))
            n++;
        if (!n->name)
            return err_set(err, ERR_INVALID,
                           "query parameter '%s': '%.*s' is none of the known names", what,
                           (int)MIN(item.n, (size_t)40), item.p);
        *out |= (unsigned)n->value;
    }
    return 0;
}

/* ---- the answer ---- */

int api_reply(struct call *c, const void *view)
{
    AUTO(buf_free) struct buf json = { 0 };

    field_encode(c->route->reply, view, &json);
    return call_reply_json(c, c->route->status ? c->route->status : 200, &json);
}

void api_list_begin(struct api_list *l, struct call *c)
{
    *l = (struct api_list){ .call = c };
    if (!(c->route->flags & ROUTE_LIST)) {
        json_open(&l->json, '{');
        json_key(&l->json, c->route->reply->name);
    }
    json_open(&l->json, '[');
}

void api_list_add(struct api_list *l, const void *view)
{
    const struct route *r = l->call->route;

    field_encode(r->flags & ROUTE_LIST ? r->reply : r->reply->sub, view, &l->json);
    l->n++;
}

int api_list_end(struct api_list *l, int failed)
{
    int r = failed ? -1 : 0;

    json_close(&l->json, ']');
    if (!(l->call->route->flags & ROUTE_LIST))
        json_close(&l->json, '}');
    if (!r)
        r = call_reply_json(l->call, 200, &l->json);
    buf_free(&l->json);
    return r;
}

int api_reply_empty(struct call *c) { return call_reply(c, 204, NULL, (struct str){ 0 }); }

const char *api_time(struct call *c, int64_t unix_ms)
{
    time_t s = (time_t)(unix_ms / 1000);
    struct tm tm;

    if (!unix_ms || !gmtime_r(&s, &tm))
        return NULL;
    return arena_printf(&c->arena, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900,
                        tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                        (int)(unix_ms % 1000));
}
