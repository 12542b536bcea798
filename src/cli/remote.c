/* remote.c - see remote.h. */
#include "cli/remote.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/field.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/dirs.h"
#include "io/tls.h"

enum { SMALL_FILE = 4096, REPLY_BYTES = 64 << 20 };

/* ---- where it is ---- */

int remote_parse_url(struct str text, struct remote_url *out, struct err *err)
{
    struct str rest, host = { 0 }, path, name, port = { 0 };
    uint64_t number;
    const char *colon;

    *out = (struct remote_url){ .tls = str_starts(text, "https://") };
    if (!out->tls && !str_starts(text, "http://"))
        return err_set(err, ERR_INVALID, "'%.*s' does not begin with http:// or https://",
                       (int)MIN(text.n, (size_t)100), text.p);
    rest = (struct str){ text.p + 7 + out->tls, text.n - 7 - out->tls };
    str_cut(rest, '/', &host, &path);
    colon = host.n ? memrchr(host.p, ':', host.n) : NULL;
    if (colon && memchr(colon, ']', host.n - (size_t)(colon - host.p)))
        colon = NULL; /* the last one of "[::1]" */
    name = colon ? (struct str){ host.p, (size_t)(colon - host.p) } : host;
    if (colon)
        port = (struct str){ colon + 1, host.n - name.n - 1 };
    number = out->tls ? 443 : 80;
    if (colon && (str_u64(port, &number) || !number || number > 65535))
        return err_set(err, ERR_INVALID, "'%.*s': the port is not 1 to 65535",
                       (int)MIN(text.n, (size_t)100), text.p);
    if (name.n > 2 && name.p[0] == '[' && name.p[name.n - 1] == ']')
        name = (struct str){ name.p + 1, name.n - 2 };
    for (size_t i = 0; i < host.n; i++) /* it becomes a header line */
        if (host.p[i] <= ' ' || host.p[i] > '~' || strchr("@?#\\", host.p[i]))
            name.n = 0;
    if (!name.n || name.n > 255 || (path.p && path.n))
        return err_set(err, ERR_INVALID, "'%.*s' is not http[s]://HOST[:PORT]",
                       (int)MIN(text.n, (size_t)100), text.p);
    out->host = host;
    out->name = name;
    out->port = (uint16_t)number;
    return 0;
}

static const char *variable(const char *name)
{
    const char *text = getenv(name);

    return text && *text ? text : NULL;
}

/* A few lines of text; ENOENT and EACCES are for the caller to explain. */
static char *read_small(const char *dir, const char *name)
{
    AUTO(buf_free) struct buf path = { 0 };
    AUTO(closep) int fd = -1;
    char text[SMALL_FILE];
    ssize_t n;

    buf_printf(&path, "%s/%s", dir, name);
    fd = open(path.data, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    return n < 0 ? NULL : xstrndup(text, (size_t)n);
}

struct announced {
    char *url;
};
static const struct field announced_fields[] = {
    FIELD(struct announced, url, F_STR, .flags = F_REQUIRED, .max = 512), {}
};

/* Whoever can write there could have our key sent to himself. A directory that was named is the
 * caller's word; the default one of an ordinary user may be somebody else's trap in /var/tmp. */
static int check_directory(const char *dir, struct err *err)
{
    struct stat st;

    if (stat(dir, &st) || !st.st_uid || st.st_uid == geteuid() || !geteuid())
        return 0; /* absent: the caller says so */
    return err_set(err, ERR_DENIED, "%.150s belongs to another user (name it by --data to use it)",
                   dir);
}

static int read_announced(struct remote *r, const char *dir, bool named, struct err *err)
{
    AUTO(freep) char *text = NULL;
    struct arena arena = { 0 };
    struct announced a = { 0 };
    int failed;

    if (!named && check_directory(dir, err))
        return -1;
    text = read_small(dir, "server.json");
    if (!text && errno == EACCES)
        return err_set(err, ERR_DENIED,
                       "%.120s/server.json: %s (set COVE_URL and COVE_API_KEY, or be root)", dir,
                       strerrordesc_np(EACCES));
    if (!text)
        return err_set(err, ERR_NOT_FOUND,
                       "there is no server: COVE_URL is not set, and none runs on %.120s (start "
                       "one: cove serve)",
                       dir);
    failed = field_decode_text(announced_fields, FIELDS_PROTO, str_of(text), &arena, &a, err);
    if (!failed)
        r->url = xstrdup(a.url);
    arena_free(&arena);
    return failed ? err_in(err, "%.120s/server.json", dir) : 0;
}

static int read_key(struct remote *r, const char *dir, struct err *err)
{
    char *text = read_small(dir, "admin.key");

    if (!text)
        return err_set(err, ERR_DENIED, "%.120s/admin.key: %s (set COVE_API_KEY, or be root)", dir,
                       strerrordesc_np(errno));
    text[strcspn(text, " \r\n")] = 0;
    r->key = text;
    return 0;
}

static int find(struct remote *r, struct err *err)
{
    const char *url = r->o->data ? NULL : variable("COVE_URL"), *key = variable("COVE_API_KEY");
    const char *named = r->o->data ? r->o->data : variable("COVE_DATA");

    if (!url)
        r->dir = named ? xstrdup(named) : dirs_data();
    if (url && !key)
        return err_set(err, ERR_UNAUTHENTICATED,
                       "COVE_URL is set, but COVE_API_KEY is not (`cove key add` there makes one)");
    r->key = key && !r->o->data ? xstrdup(key) : NULL;
    if (url)
        r->url = xstrdup(url);
    else if (read_announced(r, r->dir, named != NULL, err))
        return -1;
    if (!r->key && read_key(r, r->dir, err))
        return -1;
    for (const char *p = r->key; *p; p++) /* it becomes a header line */
        if (*p <= ' ' || *p > '~')
            return err_set(err, ERR_INVALID, "%s is not an API key",
                           key ? "what COVE_API_KEY holds" : "what admin.key holds");
    return 0;
}

/* The authority that `cove tls init` made is trusted by who found the server beside it. */
static int begin_tls(struct remote *r, struct err *err)
{
    AUTO(buf_free) struct buf own = { 0 };
    const char *file = variable("COVE_CA_FILE");

    if (!file && r->dir) {
        buf_printf(&own, "%s/tls/ca.pem", r->dir);
        file = access(own.data, R_OK) ? NULL : own.data;
    }
    return tls_client(file, &r->tls, err);
}

static int resolve(struct remote *r, struct err *err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
    struct remote_url u;
    char port[8];
    int code;

    if (remote_parse_url(str_of(r->url), &u, err))
        return err_in(err, "%s", r->dir ? "server.json" : "COVE_URL");
    r->url[(size_t)(u.host.p - r->url) + u.host.n] = 0; /* without a slash behind it */
    r->host = xstrndup(u.host.p, u.host.n);
    r->name = xstrndup(u.name.p, u.name.n);
    snprintf(port, sizeof(port), "%u", u.port);
    code = getaddrinfo(r->name, port, &hints, &r->at);
    if (code)
        return err_set(err, ERR_UPSTREAM, "%.120s: %s", r->url, gai_strerror(code));
    return u.tls ? begin_tls(r, err) : 0;
}

/* ---- asking it ---- */

static int dial(void *arg, int64_t until, struct err *err)
{
    struct remote *r = arg;
    int error = ECONNREFUSED;

    for (const struct addrinfo *a = r->at; a; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        if (fd >= 0 && !co_connect(fd, a->ai_addr, a->ai_addrlen, until))
            return fd;
        error = errno;
        co_close(fd);
    }
    if (error == ECANCELED)
        return err_set(err, ERR_GONE, "cancelled");
    return err_set(err, ERR_UPSTREAM, "%.120s: %s%s", r->url, strerrordesc_np(error),
                   r->dir ? " (the server has ended; start one: cove serve)" : "");
}

void remote_put_headers(const struct remote *r, struct buf *b)
{
    buf_printf(b, "X-API-Key: %s\r\n", r->key);
}

void remote_put_encoded(struct buf *b, const char *text)
{
    for (; *text; text++) {
        bool plain = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
                     (*text >= '0' && *text <= '9') || strchr("-._~", *text);

        if (plain)
            buf_putc(b, *text);
        else
            buf_printf(b, "%%%02X", (unsigned char)*text);
    }
}

static int refused(const struct remote *r, int status, const struct buf *reply, struct err *err)
{
    envd_problem(status, buf_str(reply), err);
    if (status == 401)
        return err_set(err, ERR_UNAUTHENTICATED, "%.100s refuses the key in %s", r->url,
                       r->dir && !variable("COVE_API_KEY") ? "admin.key" : "COVE_API_KEY");
    if (err->code == ERR_UPSTREAM)
        return err_set(err, ERR_UPSTREAM, "%.100s answered with status %d%s", r->url, status,
                       status == 404 ? ": is it Cove's API?" : "");
    return -1;
}

int remote_call(struct remote *r, const char *method, const char *target, const struct buf *body,
                struct buf *reply, struct err *err)
{
    AUTO(buf_free) struct buf headers = { 0 };
    AUTO(buf_free) struct buf own = { 0 };
    AUTO(client_closep) struct exchange *x = NULL;
    struct client_request rq = { .method = str_of(method),
                                 .target = str_of(target),
                                 .host = str_of(r->host) };

    if (!reply)
        reply = &own;
    remote_put_headers(r, &headers);
    if (body) {
        buf_puts(&headers, "Content-Type: application/json\r\n");
        rq.body = buf_str(body);
    }
    rq.headers = buf_str(&headers);
    x = client_do(&r->client, &r->to, &rq, err);
    if (!x)
        return -1;
    x->body.max = REPLY_BYTES;
    if (http_body_read_all(&x->body, reply, err))
        return err_in(err, "%.100s", r->url);
    if (x->head.status >= 200 && x->head.status < 300)
        return 0;
    return refused(r, x->head.status, reply, err);
}

void remote_print(const struct buf *text)
{
    fwrite(buf_cstr(text), 1, text->len, stdout);
    if (!text->len || text->data[text->len - 1] != '\n')
        putchar('\n');
}

/* ---- a sandbox ---- */

static const struct field limit_fields[] = {
    FIELD(struct remote_limits, memory_bytes, F_INT, .max = INT64_MAX), {}
};

#define TEXT(mem) FIELD(struct remote_sandbox, mem, F_STR)
const struct field remote_sandbox_fields[] = {
    TEXT(id),
    TEXT(template),
    TEXT(state),
    TEXT(owner),
    TEXT(created),
    TEXT(started),
    TEXT(ends),
    TEXT(ended),
    TEXT(reason),
    TEXT(token),
    FIELD(struct remote_sandbox, limits, F_OBJ, .sub = limit_fields,
          .sub_size = sizeof(struct remote_limits)),
    {},
};

int remote_sandbox_target(const char *id, const char *more, struct buf *out, struct err *err)
{
    size_t n = strlen(id);

    if (!n || n > 64 || strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-") != n)
        return err_set(err, ERR_INVALID, "'%.60s' is no sandbox id (`cove ps` lists them)", id);
    buf_printf(out, "/v1/sandboxes/%s%s", id, more);
    return 0;
}

int remote_sandbox(struct remote *r, const char *id, struct arena *a, struct remote_sandbox *out,
                   struct err *err)
{
    AUTO(buf_free) struct buf target = { 0 };
    AUTO(buf_free) struct buf reply = { 0 };

    *out = (struct remote_sandbox){ 0 };
    if (remote_sandbox_target(id, "", &target, err) ||
        remote_call(r, "GET", target.data, NULL, &reply, err))
        return -1;
    if (field_decode_text(remote_sandbox_fields, FIELDS_PROTO, buf_str(&reply), a, out, err))
        return err_in(err, "the server's answer");
    return out->id && out->state ? 0
                                 : err_set(err, ERR_UPSTREAM, "the server's answer has no sandbox");
}

int remote_guest_open(struct remote *r, const char *id, struct remote_guest *g, struct err *err)
{
    *g = (struct remote_guest){ .envd = { .client = &r->client, .to = r->to, .host = r->host } };
    if (remote_sandbox(r, id, &g->arena, &g->sandbox, err))
        return -1;
    if (g->sandbox.ended || !strcmp(g->sandbox.state, "ended"))
        return err_set(err, ERR_NOT_FOUND, "sandbox %.64s has ended%s%.120s", g->sandbox.id,
                       g->sandbox.reason ? ": " : "", g->sandbox.reason ? g->sandbox.reason : "");
    buf_printf(&g->headers, "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\n", g->sandbox.id);
    g->envd.headers = g->headers.data;
    g->envd.token = g->sandbox.token;
    g->envd.to.answer_ms = INT32_MAX; /* a command may be silent for as long as it likes */
    return 0;
}

void remote_guest_close(struct remote_guest *g)
{
    buf_free(&g->headers);
    arena_free(&g->arena);
}

void remote_guest_explain(struct remote *r, struct remote_guest *g, struct err *err)
{
    struct remote_sandbox now;
    struct err other = { 0 };

    if (!g->sandbox.id || co_cancelled())
        return;
    if (remote_sandbox(r, g->sandbox.id, &g->arena, &now, &other)) {
        if (other.code == ERR_NOT_FOUND)
            err_set(err, ERR_GONE, "sandbox %.64s has ended", g->sandbox.id);
    } else if (now.ended || !strcmp(now.state, "ended") || !strcmp(now.state, "ending"))
        err_set(err, ERR_GONE, "sandbox %.64s has ended%s%.120s", g->sandbox.id,
                now.reason ? ": " : "", now.reason ? now.reason : "");
}

/* ---- a command ---- */

struct running {
    struct remote *remote;
    remote_fn *fn;
    int status;
    struct err err;
};

static void run(void *arg)
{
    struct running *w = arg;
    struct remote *r = w->remote;

    client_init(&r->client);
    r->to = (struct client_to){ .dial = dial,
                                .arg = r,
                                .key = r->url,
                                .tls = r->tls ? tls_guard(r->tls) : NULL,
                                .tls_name = r->name };
    w->status = w->fn(r, &w->err);
    client_finish(&r->client);
    co_cancel_all();
}

int remote_command(struct args *a, const struct remote_options *o, remote_fn *fn)
{
    struct remote r = { .args = a, .o = o };
    struct running w = { .remote = &r, .fn = fn, .status = -1 };
    int failed = a->command->usage_status ? a->command->usage_status : 1;

    log_level = LOG_ERROR;
    signal(SIGPIPE, SIG_IGN);
    if (!find(&r, &w.err) && !resolve(&r, &w.err) && co_run(run, &w))
        err_sys(&w.err, "start the event loop");
    if (r.at)
        freeaddrinfo(r.at);
    tls_closep(&r.tls);
    free(r.dir);
    free(r.url);
    free(r.host);
    free(r.name);
    if (r.key)
        explicit_bzero(r.key, strlen(r.key));
    free(r.key);
    return w.status < 0 ? args_fail(a, failed, &w.err) : w.status;
}
