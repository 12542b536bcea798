/* engine.c - see engine.h: sockets, requests, the end. Starting is engine_start.c's. */
#include "guest/kernels/engine.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/id.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "guest/kernels/engine_impl.h"
#include "guest/kernels/kernel.h"
#include "guest/kernels/scan.h"
#include "guest/services/python.h"

enum { PROBE_MS = 20, SEND_MS = 30000, TERM_MS = 2000, KILL_MS = 5000, WATCH_MS = 200 };
enum { LAST_MS = 1000 }; /* when the service itself has to end */
enum { NO_IPYKERNEL = 78 };
enum { RELINKS = 5, STEADY_MS = 10000 };

/* ---- life ---- */

struct engine *engine_get(struct engine *e)
{
    e->refs++;
    return e;
}

void engine_put(struct engine *e)
{
    char path[128];

    if (!e || --e->refs)
        return;
    for (int i = 0; i < CHANNELS; i++)
        zmtp_finish(&e->link[i]);
    unlink(e->file);
    if (!strncmp(e->base, "ipc://", 6))
        for (unsigned i = 1; i <= CHANNELS + 1; i++) {
            snprintf(path, sizeof(path), "%s%u", e->base + 6, i);
            unlink(path);
        }
    kernels.engines--;
    kernelspec_put(e->spec);
    environment_put(e->environment);
    free(e->file);
    free(e->base);
    free(e);
}

void engine_address(const struct engine *e, enum channel channel, char *out, size_t n)
{
    snprintf(out, n, "%s%u", e->base, e->port[channel]);
}

/* ---- what comes from the kernel ---- */

static bool of_a_probe(const struct message *m)
{
    return str_is(message_parent(m, "session"), "cove") &&
           str_is(message_parent(m, "msg_type"), "kernel_info_request");
}

static void on_iopub(struct engine *e, struct message *m)
{
    if (!e->heard) {
        e->heard = true;
        co_cond_wake(&e->changed);
    }
    if (e->owner && !str_is(message_type(m), "iopub_welcome") && !of_a_probe(m))
        kernel_heard(e->owner, m);
}

static void on_reply(struct engine *e, struct message *m)
{
    struct str id = message_parent(m, "msg_id");
    struct ask *a;

    list_each(a, &e->asking, node)
        if (!a->reply && str_is(id, a->id)) {
            a->reply = message_get(m);
            co_cond_wake(&e->changed);
        }
}

struct reader {
    struct engine *engine;
    enum channel channel;
};

/* Until the end: 0, or -1 with err. */
static int read_messages(struct engine *e, enum channel channel, struct err *err)
{
    struct zmtp *z = &e->link[channel];
    uint64_t skipped = 0;
    int got;

    while ((got = zmtp_read(z, NEVER, err)) > 0) {
        struct message *m = message_take(&z->in.parts, channel, &e->signer, err);

        if (z->in.skipped != skipped)
            log_warn("dropped", KV("kernel", e->file),
                     KV("error", "a message larger than kernel.message-bytes"));
        skipped = z->in.skipped;
        if (!m) { /* a kernel that sends garbage harms nobody but its own clients */
            log_warn("dropped", KV("kernel", e->file), KV("error", err->msg));
            continue;
        }
        if (channel == CHANNEL_IOPUB)
            on_iopub(e, m);
        else
            on_reply(e, m);
        message_put(m);
    }
    return got;
}

struct dial { /* how a link of ours is connected */
    char address[160], identity[33];
    enum zmtp_role role;
};

static struct dial dial_of(const struct engine *e, enum channel channel)
{
    struct dial d = { .role = channel == CHANNEL_IOPUB ? ZMTP_SUB : ZMTP_DEALER };

    engine_address(e, channel, d.address, sizeof(d.address));
    if (channel != CHANNEL_IOPUB)
        id_hex(d.identity, 32);
    return d;
}

/* A socket that broke is no kernel that ended: what it knows is in its process, and that lives. */
static int relink(struct engine *e, enum channel channel, struct err *err)
{
    struct dial d = dial_of(e, channel);

    if (zmtp_redial(&e->link[channel], d.address, d.role, str_of(d.identity), &e->dead,
                    co_in(kernels_limits.start_ms), err))
        return -1;
    log_info("kernel socket made anew", KV("kernel", e->file),
             KV("channel", channel_names[channel]));
    return 0;
}

static bool wait_dead(struct engine *e, int64_t ms)
{
    int64_t until = co_in(ms);

    while (!e->dead)
        if (co_cond_wait(&e->changed, until))
            return e->dead;
    return true;
}

/* There is no way to hear it any more, whether its socket broke or was closed. One that is ending
 * by itself closes its sockets first: that has the time to end as it likes. */
static bool is_deaf(struct engine *e, int got)
{
    if (got >= 0 && !e->ready)
        return false; /* it starts: who brings it up will see */
    if (e->dead || e->stopping || co_cancelled())
        return false;
    return !e->ready || (!wait_dead(e, kernels_limits.stop_ms) && !e->stopping && !co_cancelled());
}

static void read_link(void *arg)
{
    struct reader r = *(struct reader *)arg;
    struct engine *e = r.engine;
    struct err err = { 0 };
    int64_t since;
    int got, quick = 0;

    free(arg);
    do {
        since = co_now();
        got = read_messages(e, r.channel, &err);
        quick = co_now() - since < STEADY_MS ? quick + 1 : 0;
    } while (e->ready && !e->dead && !e->stopping && quick < RELINKS && !co_cancelled() &&
             !relink(e, r.channel, &err));
    if (is_deaf(e, got)) {
        log_warn("kernel socket", KV("kernel", e->file),
                 KV("error", err.msg[0] ? err.msg : "it is closed again and again"));
        engine_kill(e);
    }
    engine_put(e);
}

static int open_link(struct engine *e, enum channel channel, int64_t until, struct err *err)
{
    struct dial d = dial_of(e, channel);
    struct reader *r;

    if (zmtp_dial(&e->link[channel], d.address, d.role, str_of(d.identity),
                  (uint64_t)kernels_limits.message_bytes, &e->dead, until, err))
        return -1;
    r = xmalloc(sizeof(*r));
    *r = (struct reader){ engine_get(e), channel };
    if (co_go(read_link, r, NULL))
        abort();
    return 0;
}

/* ---- until it answers ---- */

/* Asks until there was a reply, and something on iopub: a subscription takes effect at a moment
 * that nobody tells us, and what a kernel says before that is lost. Requests are not: one at a
 * time. */
static int probe(struct engine *e, int64_t until, struct err *err)
{
    do {
        int r = engine_ask(e, CHANNEL_SHELL, "kernel_info_request", STR("{}"), until, NULL, err);

        if (r && err->code == ERR_TIMEOUT)
            return err_set(err, ERR_TIMEOUT,
                           "the kernel did not answer within kernel.start-ms=%lld",
                           (long long)kernels_limits.start_ms);
        if (r)
            return -1;
        if (!e->heard && co_cond_wait(&e->changed, co_in(PROBE_MS)) && errno == ECANCELED)
            return err_set(err, ERR_GONE, "cancelled");
    } while (!e->heard);
    return 0;
}

static void give_up(struct engine *e, const struct err *err)
{
    if (!e->dead) /* then it is known better */
        snprintf(e->why, sizeof(e->why), "%s", err->msg);
    engine_kill(e);
}

static void bring_up(void *arg)
{
    struct engine *e = arg;
    int64_t until = co_in(kernels_limits.start_ms);
    struct err err = { 0 };

    if (open_link(e, CHANNEL_IOPUB, until, &err) || open_link(e, CHANNEL_SHELL, until, &err) ||
        open_link(e, CHANNEL_CONTROL, until, &err)) {
        give_up(e, &err);
    } else {
        e->connected = true;
        if (probe(e, until, &err))
            give_up(e, &err);
        else
            e->ready = true;
    }
    e->late = !e->ready && !e->dead && co_now() >= until;
    engine_started(e);
    co_cond_wake(&e->changed);
    engine_put(e);
}

int engine_wait(struct engine *e, int64_t until, struct err *err)
{
    while (!e->ready) {
        if (e->dead)
            return err_set(err, ERR_UPSTREAM,
                           "kernel %s: %s; what it wrote is in jupyter-kernel.log", e->spec->name,
                           e->why[0] ? e->why : "it ended at once");
        if (co_cond_wait(&e->changed, until))
            return err_set(err, ERR_TIMEOUT, "kernel %s is not ready yet", e->spec->name);
    }
    return 0;
}

/* ---- requests of our own ---- */

int engine_send(struct engine *e, enum channel channel, const char *type, struct str content,
                struct ask *ask, struct err *err)
{
    AUTO(buf_free) struct buf header = { 0 };
    struct request r = { .channel = channel };

    *ask = (struct ask){ .reply = NULL };
    message_put_header(&header, type, "cove", ask->id);
    r.json[PART_HEADER] = buf_str(&header);
    r.json[PART_PARENT] = r.json[PART_METADATA] = STR("{}");
    r.json[PART_CONTENT] = content;
    list_push(&e->asking, &ask->node);
    return request_send(&r, &e->link[channel], &e->signer, co_in(SEND_MS), err);
}

int engine_await(struct engine *e, struct ask *ask, int64_t until, struct err *err)
{
    while (!ask->reply) {
        if (e->dead)
            return err_set(err, ERR_UPSTREAM, "the kernel has ended");
        if (co_cond_wait(&e->changed, until))
            return err_set(err, errno == ECANCELED ? ERR_GONE : ERR_TIMEOUT,
                           "the kernel did not answer in time");
    }
    return 0;
}

void engine_forget(struct ask *ask)
{
    list_remove(&ask->node);
    message_put(TAKE(ask->reply, NULL));
}

int engine_ask(struct engine *e, enum channel channel, const char *type, struct str content,
               int64_t until, struct message **out, struct err *err)
{
    struct ask ask;
    int r = engine_send(e, channel, type, content, &ask, err);

    if (!r)
        r = engine_await(e, &ask, until, err);
    if (!r && out)
        *out = TAKE(ask.reply, NULL);
    engine_forget(&ask);
    return r;
}

/* ---- the end ---- */

void engine_signal(struct engine *e, int sig)
{
    if (e->dead || e->pid <= 0)
        return;
    if (kill(-e->pid, sig)) /* it has no group of its own yet */
        kill(e->pid, sig);
}

void engine_kill(struct engine *e) { engine_signal(e, SIGKILL); }

int engine_interrupt(struct engine *e, struct err *err)
{
    const char *mode = e->spec->interrupt_mode;
    struct ask ask;
    int r;

    if (!mode || strcmp(mode, "message") != 0) {
        engine_signal(e, SIGINT);
        return 0;
    }
    engine_get(e); /* sending parks, and the kernel may be removed meanwhile */
    r = engine_send(e, CHANNEL_CONTROL, "interrupt_request", STR("{}"), &ask, err);
    engine_forget(&ask);
    engine_put(e);
    return r;
}

void engine_stop(struct engine *e, bool restart)
{
    struct err err = { 0 };
    struct ask ask;

    e->stopping = true;
    if (e->connected && !e->dead) {
        int r = engine_send(e, CHANNEL_CONTROL, "shutdown_request",
                            restart ? STR("{\"restart\":true}") : STR("{\"restart\":false}"), &ask,
                            &err);
        engine_forget(&ask);
        if (!r && wait_dead(e, kernels.ending ? LAST_MS : kernels_limits.stop_ms))
            return;
    }
    engine_signal(e, SIGTERM);
    if (e->connected && wait_dead(e, kernels.ending ? LAST_MS / 2 : TERM_MS))
        return;
    engine_kill(e);
    wait_dead(e, KILL_MS);
}

/* The kernel for bash that we bring along ends with a status of its own where there is no ipykernel
 * (bash.py). */
static void note_missing(struct engine *e)
{
    const struct strs *argv = &e->spec->argv;

    if (argv->n > 1 && str_starts(str_of(argv->items[1]), kernels.dir) &&
        WIFEXITED(e->child.status) && WEXITSTATUS(e->child.status) == NO_IPYKERNEL) {
        snprintf(e->why, sizeof(e->why),
                 "there is no ipykernel; install it in the sandbox or its template, or "
                 "type `" PYTHON_COMMAND "` on the machine that runs Cove");
        e->hopeless = true;
    }
}

static void describe_end(const struct engine *e, char *out, size_t n)
{
    int status = e->child.status;

    if (WIFSIGNALED(status))
        snprintf(out, n, "signal %s",
                 sigabbrev_np(WTERMSIG(status)) ? sigabbrev_np(WTERMSIG(status)) : "?");
    else
        snprintf(out, n, "status %d", WEXITSTATUS(status));
}

/* Until it has ended, and nothing else: that it cannot be watched for want of memory or descriptors
 * is no end. Cancelled, the service ends, and so does it. */
static void await_end(struct engine *e)
{
    while (child_wait(&e->child, NEVER) && !co_cancelled())
        co_sleep(co_in(WATCH_MS));
}

/* Waits for the process and tells whoever it concerns. */
void engine_watch(void *arg)
{
    struct engine *e = arg;
    struct kernel *owner;
    char end[40];

    await_end(e);
    describe_end(e, end, sizeof(end));
    if (!e->forked && !e->ready)
        note_missing(e);
    if (!e->ready && !e->why[0])
        snprintf(e->why, sizeof(e->why), "it ended while it started (%s)", end);
    e->dead = true;
    kill(-e->pid, SIGKILL); /* what it left behind in its group */
    child_forget(&e->child);
    engine_started(e);
    for (int i = 0; i < CHANNELS; i++)
        zmtp_break(&e->link[i]);
    co_cond_wake(&e->changed);
    owner = e->owner;
    log_info("kernel ended", KV("file", e->file), KVI("pid", e->pid), KV("by", end),
             KV("why", e->why));
    if (owner && !e->stopping)
        kernel_engine_died(owner, e);
    if (kernels.parked == e)
        engine_put(TAKE(kernels.parked, NULL));
    engine_put(e);
}

void engine_begin(struct engine *e)
{
    if (co_go(engine_watch, engine_get(e), NULL) || co_go(bring_up, engine_get(e), NULL))
        abort();
}
