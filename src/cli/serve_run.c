/* serve_run.c - the server: gives up what it does not need, opens the store, finds the keeper,
 * adopts what lives, and serves until it is told to end. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "api/api.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/serve.h"
#include "io/fetch.h"
#include "io/tls.h"
#include "router/router.h"

enum { KEEPER_MS = 60000, STEP_MS = 20 };

struct server {
    struct serve *s;
    struct store *store;
    struct control *control;
    struct tls_context *tls;
    struct api api;
    struct httpd http, preview;
    struct co_cond told; /* to end */
    bool adopting, serving, ending, failed;
    int signals;
};

/* ---- what blocks, on a worker ---- */

struct opening {
    struct server *v;
    struct err *err;
    int result;
};

static void open_files(void *arg)
{
    struct opening *o = arg;
    const struct serve *s = o->v->s;

    o->result = serve_database_open(s, &o->v->store, o->err);
    if (!o->result && s->tls_chain)
        o->result = tls_server(s->shown_chain, s->shown_key, &o->v->tls, o->err);
}

/* ---- starting and ending ---- */

/* The keeper starts beside us. */
static int find_keeper(struct server *v, struct provider **out, struct err *err)
{
    const struct serve *s = v->s;
    struct keep_where w = { s->place, s->old_keeper ? s->run_dir : NULL, &s->owner };
    int64_t until = co_in(KEEPER_MS);

    while (provider_local(&w, control_event, &v->control, out, err)) {
        if ((err->code != ERR_NOT_FOUND && err->code != ERR_UNAVAILABLE) || co_now() > until)
            return -1;
        if (!co_cond_wait(&v->told, co_in(STEP_MS)) || v->ending)
            return err_set(err, ERR_GONE, "told to end");
    }
    return 0;
}

static void router_figures(struct api *a, struct buf *out) { router_metrics(a->router, out); }

static int begin(struct server *v, struct err *err)
{
    struct opening o = { v, err, 0 };
    struct provider *p = NULL;
    struct control_options c = { .run_dir = v->s->place,
                                 .boot = v->s->boot,
                                 .create_fault = v->s->create_fault,
                                 .template_news = v->s->template_news,
                                 .token_secret = v->s->token_secret,
                                 .domain = v->s->domain,
                                 .allow_mounts = v->s->o->allow_mounts.items,
                                 .forward_min = v->s->forward_min,
                                 .forward_max = v->s->forward_max,
                                 .ephemeral = v->s->o->ephemeral,
                                 .no_network = !v->s->root,
                                 .one_user = v->s->one_user };

    co_call(open_files, &o);
    if (o.result || find_keeper(v, &p, err))
        return -1;
    v->adopting = true;
    c.store = v->store;
    c.provider = provider_trace(p);
    if (control_open(&c, &v->control, err) || serve_admin(v->s, v->control, err))
        return -1;
    v->api = (struct api){ .control = v->control,
                           .version = COVE_VERSION,
                           .metrics = router_figures,
                           .proxies = &v->s->proxies,
                           .tls = v->tls != NULL };
    serve_contract_api(v->s, &v->api);
    return 0;
}

struct listening {
    struct httpd *http;
    int fd;
};

static void listen_on(void *arg)
{
    struct listening l = *(struct listening *)arg;

    free(arg);
    httpd_listen(l.http, l.fd);
}

static void serve_on(struct httpd *http, int fd)
{
    struct listening *l = xmalloc(sizeof(*l));

    *l = (struct listening){ http, fd };
    if (co_go(listen_on, l, NULL))
        abort(); /* no memory for one stack */
}

/* To people, and not into a log: whatever else standard output is, it is kept, and read by others.
 */
static void announce_secrets(const struct serve *s)
{
    if (!s->made_password && !s->made_key)
        return;
    if (!s->terminal) {
        printf(
            "cove: the administrator is admin: the password is in %s/admin.password, the API key "
            "in %s/admin.key (0600)\n",
            s->data_dir, s->data_dir);
        return;
    }
    if (s->made_password)
        printf("cove: administrator: admin, password %s\n", s->password);
    if (s->made_key)
        printf("cove: API key: %s\n", s->key);
    printf("cove: (said once; to be found in %s, admin.password and admin.key)\n", s->data_dir);
}

/* Once, whichever server of ours it is: one that is started again has nothing new to say, and what
 * is secret must not get into a log by way of a crash. */
static void announce(const struct serve *s)
{
    if (*s->ready)
        return;
    *s->ready = true;
    announce_secrets(s);
    if (s->preview_url)
        printf("cove: previews on %s\n", s->preview_url);
    printf("cove: ready on %s\n", s->url);
    fflush(stdout);
}

static void open_doors(struct server *v)
{
    struct conn_guard *guard = v->tls ? tls_guard(v->tls) : NULL;

    v->api.preview = v->s->preview >= 0 ? &v->preview : NULL;
    v->api.router = router_open(
        v->control, &(struct router_options){ .tls = v->tls != NULL,
                                              .https = !strcmp(v->api.contract.scheme, "https"),
                                              .names = v->s->o->hosts.items });
    v->http = (struct httpd){ .tables = api_tables,
                              .ctx = &v->api,
                              .first = router_first,
                              .before = api_before,
                              .failing = api_failing,
                              .refuse = api_refuse,
                              .from = api_client,
                              .tell_id = true,
                              .tls = guard };
    v->preview = (struct httpd){
        .tables = router_preview_tables,
        .ctx = &v->api,
        .first = router_preview,
        .from = api_client,
        .tls = guard,
    };
    serve_on(&v->http, v->s->listener);
    if (v->s->preview >= 0)
        serve_on(&v->preview, v->s->preview);
    announce(v->s);
}

static void reload(struct server *v)
{
    struct err err = { 0 };
    int r = v->tls ? tls_reload(v->tls, &err) : 0;

    if (r < 0)
        log_error("the certificate was not read again", KV("error", err.msg));
    else
        log_info("reloaded", KVI("certificates", r));
}

/* The monitor was killed, and perhaps the keeper with it: nobody is left who could end what waits
 * in the pool, and the next monitor waits for our place. What is written is written; it adopts the
 * rest. With --ephemeral sandboxes have to end before we do. */
static void leave_if_alone(const struct server *v)
{
    if (v->s->o->ephemeral || getppid() == v->s->monitor)
        return;
    log_warn("the monitor has died: the server ends, sandboxes go on");
    _exit(1);
}

/* A start may wait for the keeper, or for a slow disk that a worker waits for, and there is nothing
 * yet that a kill would take: what is written is written. With --ephemeral sandboxes have to end.
 */
static void leave_if_starting(const struct server *v)
{
    if (v->serving || (v->s->o->ephemeral && v->adopting))
        return;
    log_info("ending, before it was ready");
    _exit(0);
}

/* From the first moment on. */
static void hear_signals(void *arg)
{
    struct server *v = arg;
    struct signalfd_siginfo info = { .ssi_signo = SIGHUP };

    while (info.ssi_signo == SIGHUP) {
        if (co_read(v->signals, &info, sizeof(info), NEVER) != sizeof(info))
            return; /* cancelled: we are ending */
        if (info.ssi_signo == SIGHUP && v->serving)
            reload(v);
    }
    leave_if_alone(v);
    leave_if_starting(v);
    v->ending = true;
    co_cond_wake(&v->told);
}

static void trim_heap(void) { malloc_trim(0); }

static void serve_until_told(struct server *v)
{
    v->serving = true;
    open_doors(v);
    while (!v->ending && !co_cond_wait(&v->told, NEVER))
        ;
    log_info("ending", KV("sandboxes", v->s->o->ephemeral ? "end too" : "go on"));
}

static void server_main(void *arg)
{
    struct server *v = arg;
    struct err err = { 0 };

    co_on_idle(trim_heap);
    co_cond_init(&v->told);
    if (co_go(hear_signals, v, NULL))
        abort(); /* no memory for one stack */
    v->failed = begin(v, &err) && !v->ending;
    if (v->failed)
        log_error("the server could not start", KV("error", err.msg));
    else if (!v->ending)
        serve_until_told(v);
    if (v->control)
        control_stop(v->control);
    httpd_close(&v->http); /* calls under way use all that goes now */
    httpd_close(&v->preview);
    if (v->control)
        control_close(v->control);
    co_cancel_all();
    co_close(v->signals);
}

static int signals_as_descriptor(void)
{
    sigset_t set;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

int serve_run(struct serve *s)
{
    struct server v = { .s = s, .signals = signals_as_descriptor() };
    struct err err = { 0 };

    prctl(PR_SET_NAME, "cove-serve");
    closep(&s->lifeline);
    close(s->keeper_line[0]); /* the other end says that we live */
    mallopt(M_ARENA_MAX, 2);
    mallopt(M_TRIM_THRESHOLD, 128 << 10);
    if (v.signals < 0 || serve_confine(s, &err)) {
        log_error("the server could not start", KV("error", err.msg));
        return 1;
    }
    if (co_run(server_main, &v)) {
        log_error("no event loop", KV("error", strerrordesc_np(errno)));
        return 1;
    }
    fetch_closep(&v.api.fetch);
    router_close(v.api.router);
    store_closep(&v.store);
    tls_closep(&v.tls);
    return v.failed ? 1 : 0;
}
