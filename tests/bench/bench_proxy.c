/* bench_proxy.c - the server that the benchmarks measure: bench-httpd --listen ADDR:PORT
 * [--upstream ADDR:PORT].
 *
 * GET / answers a short text, POST /json reads a small object by table and writes one. With an
 * upstream, everything is passed on to it; paths under /proxy/ lose that prefix. One loop; SIGTERM
 * ends it. */
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "io/proxy.h"

static struct {
    struct addr listen, upstream;
    bool has_upstream;
    struct client client;
    struct httpd server;
} bench;

static int hello(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_reply(c, 200, "text/plain", STR("Hello, world\n"));
}

struct job {
    char *name;
    int64_t count;
    struct strs tags;
};

static const struct field job_fields[] = {
    FIELD(struct job, name, F_STR, .flags = F_REQUIRED, .max = 64),
    FIELD(struct job, count, F_INT, .min = 0, .max = 1000000),
    FIELD(struct job, tags, F_STRS, .max = 16),
    {},
};

static int json(struct call *c, void *body, struct err *err)
{
    const struct job *j = body;
    AUTO(buf_free) struct buf out = { 0 };

    (void)err;
    json_open(&out, '{');
    json_kv_str(&out, "name", j->name);
    json_kv_int(&out, "count", j->count + 1);
    json_key(&out, "tags");
    json_open(&out, '[');
    for (size_t i = 0; i < j->tags.n; i++)
        json_put_str(&out, str_of(j->tags.items[i]));
    json_close(&out, ']');
    json_kv_bool(&out, "ok", true);
    json_kv_str(&out, "state", "running");
    json_kv_str(&out, "createdAt", "2025-01-01T00:00:00Z");
    json_kv_str(&out, "node", "node-1");
    json_close(&out, '}');
    return call_reply_json(c, 200, &out);
}

static const struct route routes[] = {
    { "GET", "/", ROUTE_RAW, .fn = hello },
    { "POST", "/json", ROUTE_JSON, .fields = job_fields, .size = sizeof(struct job), .fn = json },
    {},
};
static const struct route *const tables[] = { routes, NULL };

static int pass_on(struct call *c, struct err *err)
{
    struct proxy p = { .client = &bench.client, .to.addr = &bench.upstream };

    if (str_starts(c->head.target, "/proxy/"))
        p.target = (struct str){ c->head.target.p + 6, c->head.target.n - 6 };
    return proxy_call(&p, c, err) < 0 ? -1 : 1;
}

static void stop(void *arg)
{
    struct signalfd_siginfo info;

    co_read(*(int *)arg, &info, sizeof(info), NEVER);
    co_cancel_all();
}

static void serve(void *arg)
{
    struct err err = { 0 };
    int fd = sock_listen(&bench.listen, &err);

    if (fd < 0) {
        fprintf(stderr, "bench-httpd: %s\n", err.msg);
        return;
    }
    co_go(stop, arg, NULL);
    client_init(&bench.client);
    bench.server.tables = tables;
    if (bench.has_upstream)
        bench.server.first = pass_on;
    httpd_listen(&bench.server, fd);
    client_finish(&bench.client);
}

static int usage(const char *why)
{
    fprintf(stderr,
            "bench-httpd: %s\nusage: bench-httpd --listen ADDR:PORT [--upstream ADDR:PORT]\n", why);
    return 2;
}

int main(int argc, char **argv)
{
    struct err err = { 0 };
    sigset_t set;
    int signals;

    for (int i = 1; i < argc; i += 2) {
        bool up = !strcmp(argv[i], "--upstream");

        if ((!up && strcmp(argv[i], "--listen") != 0) || i + 1 == argc)
            return usage("unknown argument, or one without a value");
        if (addr_parse(str_of(argv[i + 1]), up ? &bench.upstream : &bench.listen, &err))
            return usage(err.msg);
        bench.has_upstream |= up;
    }
    if (!bench.listen.len)
        return usage("--listen is missing");
    http_limits.connections = http_limits.peer_connections = INT32_MAX; /* ten thousand idle ones */
    http_limits.reserve = 0;
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return signals < 0 || co_run(serve, &signals) ? 1 : 0;
}
