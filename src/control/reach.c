/* reach.c - ways into a sandbox: a client_to for each of its ports, and the words that only the
 * control part says to its guest (POST /init). */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/json.h"
#include "base/mem.h"
#include "control/impl.h"

enum { REFUSAL_MAX = 4096 };

/* Still open, and silent: the guest closes what is idle for long. */
static bool quiet(int fd)
{
    char c;

    return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static int dial(void *arg, int64_t until, struct err *err)
{
    const struct way *w = arg;
    struct live *l = w->live;
    struct provider *p = l->control ? l->control->provider : NULL;

    if (!p)
        return err_set(err, ERR_UNAVAILABLE, "the server is ending");
    if (w->port == PROVIDER_GUEST_PORT && l->spare >= 0) {
        int fd = TAKE(l->spare, -1);

        if (quiet(fd))
            return fd;
        co_close(fd);
    }
    switch ((enum sandbox_state)l->s.state) {
    case SANDBOX_CREATING:
    case SANDBOX_RESUMING: /* whoever resumes it; the router lets nobody else in */
    case SANDBOX_RUNNING: return p->ops->dial(p, l->s.id, w->port, until, err);
    case SANDBOX_PAUSING:
    case SANDBOX_PAUSED:
        return err_set(err, ERR_CONFLICT, "sandbox %s is %s", l->s.id,
                       sandbox_state_names[l->s.state]);
    case SANDBOX_ENDING:
    case SANDBOX_ENDED:
    case SANDBOX_STATES: break;
    }
    return table_not_found(str_of(l->s.id), err);
}

/* Made once for each port that is asked for: connections are kept by its key, and a caller may use
 * it as long as it holds the sandbox. */
static struct way *way_to(struct live *l, uint16_t port)
{
    struct way **bucket = &l->ways[port % WAY_BUCKETS], *w;

    for (w = *bucket; w; w = w->next)
        if (w->port == port)
            return w;
    w = xcalloc(1, sizeof(*w));
    *w = (struct way){ .next = *bucket, .live = l, .port = port };
    snprintf(w->key, sizeof(w->key), "%s:%u", l->s.id, port);
    *bucket = w;
    return w;
}

void control_to(struct control *c, struct sandbox *s, uint16_t port, struct client_to *out)
{
    struct way *w = way_to(live_of(s), port);

    (void)c;
    *out = (struct client_to){ .dial = dial, .arg = w, .key = w->key };
}

void reach_interrupt(struct live *l)
{
    for (size_t i = 0; i < WAY_BUCKETS; i++)
        for (struct way *w = l->ways[i]; w; w = w->next) {
            const struct client_to to = { .dial = dial, .arg = w, .key = w->key };

            client_interrupt(&l->control->client, &to);
        }
}

void reach_free(struct live *l)
{
    for (size_t i = 0; i < WAY_BUCKETS; i++)
        for (struct way *w = l->ways[i], *next; w; w = next) {
            next = w->next;
            free(w);
        }
    co_close(l->spare);
}

int guest_dial(struct control *c, const char *ref, struct err *err)
{
    return c->provider->ops->dial(c->provider, ref, PROVIDER_GUEST_PORT,
                                  co_in(control_limits.init_ms), err);
}

/* ---- POST /init ---- */

static void put_init(struct buf *b, const struct guest_init *g, const char *user)
{
    json_open(b, '{');
    if (g->env && g->env->n) {
        json_key(b, "envVars");
        json_open(b, '{');
        for (size_t i = 0; i < g->env->n; i++)
            json_kv_str(b, g->env->items[i].key, g->env->items[i].value);
        json_close(b, '}');
    }
    if (g->token && *g->token)
        json_kv_str(b, "accessToken", g->token);
    if (user && *user)
        json_kv_str(b, "defaultUser", user);
    if (g->workdir && *g->workdir)
        json_kv_str(b, "defaultWorkdir", g->workdir);
    if (g->paused_ms)
        json_kv_int(b, "pausedMs", g->paused_ms);
    json_close(b, '}');
}

static int refused(struct exchange *x, struct err *err)
{
    int status = x->head.status;
    char why[REFUSAL_MAX];
    AUTO(json_dropp) json_t *j = NULL;
    const char *message;
    struct err ignored = { 0 };
    size_t n = 0;
    ssize_t r;

    while (n < sizeof(why) &&
           (r = http_body_read(&x->body, why + n, sizeof(why) - n, &ignored)) > 0)
        n += (size_t)r;
    j = json_read((struct str){ why, n }, &ignored);
    message = j ? json_string_value(json_object_get(j, "message")) : NULL;
    return err_set(err, status >= 400 && status < 500 && status != 401 ? ERR_INVALID : ERR_UPSTREAM,
                   "the guest refused its settings with status %d: %.128s", status,
                   message ? message : "it did not say why");
}

int guest_init(struct control *c, const struct client_to *to, const struct guest_init *g,
               struct err *err)
{
    AUTO(client_closep) struct exchange *x = NULL;
    AUTO(buf_free) struct buf body = { 0 }, headers = { 0 };
    const char *demanded = g->was ? g->was : g->token;
    struct client_to where = *to;

    put_init(&body, g, c->one_user ? "root" : g->user);
    buf_puts(&headers, "Content-Type: application/json\r\n");
    if (g->known && demanded && *demanded)
        buf_printf(&headers, "X-Access-Token: %s\r\n", demanded);
    where.connect_ms = where.answer_ms = control_limits.init_ms;
    x = client_do(&c->client, &where,
                  &(struct client_request){ .method = STR("POST"),
                                            .target = STR("/init"),
                                            .headers = buf_str(&headers),
                                            .body = buf_str(&body) },
                  err);
    if (body.data)
        explicit_bzero(body.data, body.len);
    explicit_bzero(headers.data, headers.len);
    if (!x)
        return -1;
    return x->head.status == 204 ? 0 : refused(x, err);
}
