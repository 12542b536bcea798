/* local_link.c - the connection of provider `local` to its keeper.
 *
 * One coroutine, the watcher, connects, reads records and wakes whoever waits for an answer, which
 * is found by its serial number. When the keeper dies every call under way is told so, and the
 * watcher connects to the next keeper; from then on calls work again, while another coroutine
 * claims the machines we knew, so that their events come to us. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/mem.h"
#include "io/fdpass.h"
#include "provider/local.h"

enum { FIRST_PAUSE_MS = 5, LAST_PAUSE_MS = 500, ENDING_MS = 10, DENIED_MS = 1000 };

struct ask_wait { /* one request without an answer yet; freed by who waits */
    struct list all;
    struct co_cond answered;
    uint64_t serial;
    struct keep_reply *reply;
    int *fds;
    size_t nfds;
    enum { WAITING, ANSWERED, LOST } state;
};

struct provider_limits provider_limits = { 30000, 5000, 30000, 600000, 600000 };

const struct setting provider_settings[] = {
    { "provider.start-ms", &provider_limits.start_ms, 1, 600000,
      "ms that the server waits for its keeper to come up" },
    { "provider.wait-ms", &provider_limits.wait_ms, 1, 600000,
      "ms that a call waits for a keeper that is being restarted" },
    { "provider.answer-ms", &provider_limits.answer_ms, 100, 600000,
      "ms within which a keeper has to answer" },
    { "provider.pause-ms", &provider_limits.pause_ms, 100, 86400000,
      "ms within which a sandbox has to be paused, writing its files out included" },
    { "provider.snapshot-ms", &provider_limits.snapshot_ms, 100, 86400000,
      "ms within which a snapshot has to be taken" },
    { 0 },
};

void local_put(struct local *l)
{
    if (--l->users)
        return;
    local_forget_all(l);
    free(l);
}

/* ---- asking ---- */

/* Waits for a keeper that is being restarted. */
static int wait_for_keeper(struct local *l, int64_t until, struct err *err)
{
    int64_t bound = MIN(until, co_in(provider_limits.wait_ms));

    while (l->keep.fd < 0 && !l->closing)
        if (l->refused.code)
            return err_set_host(err, ERR_UNAVAILABLE, "%s", l->refused.msg);
        else if (co_cond_wait(&l->changed, bound))
            return err_set(err, ERR_UNAVAILABLE,
                           errno == ECANCELED ? "the call was given up"
                                              : "the keeper is not running: try again");
    return l->closing ? err_set(err, ERR_UNAVAILABLE, "the server is ending") : 0;
}

/* Its socket is full, or its keeper has died and the watcher is about to see that: wait until there
 * is reason to try again. One at a time waits for room, the others for that one. */
static int wait_to_send(struct local *l, bool full, int64_t until)
{
    int r;

    if (!full)
        shutdown(l->keep.fd, SHUT_RDWR); /* whatever it was, the watcher hears of it now */
    if (!full || l->sending)
        return co_cond_wait(&l->sent, until);
    l->sending = true;
    r = co_wait(l->keep.fd, CO_OUT, until);
    l->sending = false;
    co_cond_wake(&l->sent);
    return r;
}

static int send_request(struct local *l, const struct keep_request *q, int64_t until,
                        struct err *err)
{
    for (;;) {
        bool full = l->sending;

        if (wait_for_keeper(l, until, err))
            return -1;
        if (!full && !keep_send_now(&l->keep, q))
            return 0;
        if (!full && errno == EINVAL)
            return err_set(err, ERR_UNSUPPORTED,
                           "the keeper is of an older release and cannot do "
                           "this: restart it");
        if (wait_to_send(l, full || errno == EAGAIN, until))
            return err_set(err, ERR_UNAVAILABLE, "the keeper is too busy to be asked");
    }
}

static void close_all(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        co_close(fds[i]);
}

static enum ask outcome(struct ask_wait *w, const struct keep_reply *reply, struct err *err)
{
    if (w->state == LOST) {
        err_set(err, ERR_UNAVAILABLE, "the keeper has ended: try again");
        return ASK_LOST;
    }
    if (w->state == WAITING) {
        err_set(err, errno == ECANCELED ? ERR_UNAVAILABLE : ERR_TIMEOUT,
                errno == ECANCELED ? "the call was given up"
                                   : "the keeper does not answer (provider.answer-ms)");
        return ASK_LEFT;
    }
    if (!reply->code)
        return ASK_DONE;
    close_all(w->fds, w->nfds);
    /* one of the keeper's own helpers hung up: there is another at the next try */
    err_set_host(err, reply->code == ERR_GONE ? ERR_UNAVAILABLE : (enum err_code)reply->code, "%s",
                 reply->message);
    err->reason = (enum err_reason)(reply->why < ERR_REASONS ? reply->why : ERR_REASON_NONE);
    return ASK_REFUSED;
}

enum ask local_ask(struct local *l, struct keep_request *q, struct keep_reply *reply, int *fds,
                   size_t *nfds, int64_t until, struct err *err)
{
    AUTO(freep) struct ask_wait *w = xcalloc(1, sizeof(*w)); /* others see it: not on our stack */
    enum ask r = ASK_REFUSED;

    *w = (struct ask_wait){
        .serial = ++l->serial, .reply = reply, .fds = fds, .nfds = nfds ? *nfds : 0
    };
    co_cond_init(&w->answered);
    q->serial = w->serial;
    if (!send_request(l, q, until, err)) {
        list_push(&l->asks, &w->all); /* nothing was read since it was sent */
        while (w->state == WAITING && !co_cond_wait(&w->answered, until))
            continue;
        list_remove(&w->all);
        r = outcome(w, reply, err);
    }
    if (nfds)
        *nfds = r == ASK_DONE ? w->nfds : 0;
    return r;
}

/* ---- hearing ---- */

static void take_answer(struct local *l, const struct keep_reply *r, const int *fds, size_t nfds)
{
    struct ask_wait *w;

    list_each(w, &l->asks, all)
        if (w->serial == r->serial && w->state == WAITING) {
            size_t n = MIN(nfds, w->nfds);

            *w->reply = *r;
            if (n)
                memcpy(w->fds, fds, n * sizeof(*fds));
            close_all(fds + n, nfds - n);
            w->nfds = n;
            w->state = ANSWERED;
            co_cond_wake(&w->answered);
            return;
        }
    close_all(fds, nfds); /* whoever asked has left */
}

static void hear(struct local *l, struct err *err)
{
    struct keep_reply r;
    int fds[KEEP_SOCKETS], more;

    do {
        size_t nfds = ARRAY_LEN(fds);

        while ((more = keep_next(&l->keep, &r, fds, &nfds, err)) > 0) {
            l->heard = true;
            if (r.kind == KEEP_REPLY)
                take_answer(l, &r, fds, nfds);
            else {
                close_all(fds, nfds); /* an event brings none */
                local_event(l, &r);
            }
            nfds = ARRAY_LEN(fds);
        }
    } while (!more && !co_wait(l->keep.fd, CO_IN, NEVER));
    if (!more)
        err_set(err, ERR_UNAVAILABLE, "the server is ending");
}

static void hang_up(struct local *l)
{
    struct ask_wait *w;

    co_close(TAKE(l->keep.fd, -1));
    list_each(w, &l->asks, all)
        if (w->state == WAITING) {
            w->state = LOST;
            co_cond_wake(&w->answered);
        }
    co_cond_wake(&l->sent);
}

/* ---- finding the next keeper ---- */

enum claimed { CLAIMED, CLAIM_GONE, CLAIM_ASTRAY, CLAIM_NO_KEEPER };

/* why: it cannot be reached, for this reason. */
static enum claimed claim(struct local *l, const char *ref, char why[static 256])
{
    struct keep_request q = { .verb = KEEP_ADOPT };
    struct keep_reply reply;
    struct err err = { 0 };

    snprintf(q.id, sizeof(q.id), "%s", ref);
    for (;;) {
        enum ask r = local_ask(l, &q, &reply, NULL, NULL, co_in(provider_limits.answer_ms), &err);

        if (r == ASK_DONE && reply.u.state.astray)
            return CLAIM_ASTRAY;
        if (r == ASK_DONE) {
            memcpy(why, reply.u.state.unreadable, sizeof(reply.u.state.unreadable));
            return CLAIMED;
        }
        if (r != ASK_REFUSED || l->keep.fd < 0)
            return CLAIM_NO_KEEPER;
        if (provider_gone(&l->provider, ref, &err))
            return CLAIM_GONE;
        if (co_sleep(co_in(ENDING_MS))) /* it is ending: nobody told us, so look again */
            return CLAIM_NO_KEEPER;
    }
}

static void regain(void *arg)
{
    struct local *l = arg;
    uint64_t epoch = l->epoch;
    size_t n;
    char(*refs)[ORDER_ID] = local_refs(l, &n);

    for (size_t i = 0; i < n && l->epoch == epoch && !l->closing; i++) {
        char why[256] = "";
        enum claimed r = claim(l, refs[i], why);
        struct machine *m = local_find(l, refs[i]);

        if (r == CLAIM_GONE && m && l->epoch == epoch)
            local_gone(l, m, "itself", "it ended while no keeper ran");
        else if (r == CLAIM_ASTRAY && m && l->epoch == epoch)
            local_astray(l, m);
        else if (r == CLAIMED && m && *why)
            local_unreachable(l, m, why);
    }
    if (l->epoch == epoch && l->keep.fd >= 0 && !l->closing) {
        log_info("the keeper is back", KVI("sandboxes", (int64_t)n));
        local_emit(l, MACHINE_REGAINED);
    }
    free(refs);
    local_put(l);
}

static void regain_begin(struct local *l)
{
    l->users++;
    if (!co_go(regain, l, NULL))
        return;
    l->users--;
    log_error("no memory to claim the sandboxes of the last keeper");
}

/* Says hello and hears which version the keeper speaks. Nobody else uses the connection yet. */
static int greet(struct keep *k, struct err *err)
{
    int64_t until = co_in(provider_limits.answer_ms);
    struct keep_reply reply;
    size_t none = 0;
    int more;

    if (keep_hello(k, err))
        return -1;
    while (!(more = keep_next(k, &reply, NULL, &none, err)))
        if (co_wait(k->fd, CO_IN, until))
            return err_set(err, ERR_UNAVAILABLE, "the keeper does not answer (provider.answer-ms)");
    if (more < 0 || keep_agree(k, &reply, err))
        return -1;
    if (k->version != KEEP_VERSION)
        log_warn("the keeper is of an older release: restart it when you can",
                 KVI("version", k->version), KVI("ours", KEEP_VERSION));
    return 0;
}

static int connect_and_greet(struct local *l, struct err *err)
{
    const struct keep_where *w = &l->where;
    struct keep k;

    if (keep_connect_now(&k, w->dir, w->owner, err) &&
        (err->code != ERR_NOT_FOUND || !w->old_dir ||
         keep_connect_now(&k, w->old_dir, w->owner, err)))
        return -1;
    if (greet(&k, err)) {
        co_close(k.fd);
        return -1;
    }
    l->keep = k;
    return 0;
}

/* Trying again does not help. A socket has its owner only a moment after it has its name. */
static bool is_final(const struct err *err, int64_t since)
{
    return err->code == ERR_CONFLICT || err->code == ERR_UNSUPPORTED || err->code == ERR_INVALID ||
           (err->code == ERR_DENIED && co_now() > since + DENIED_MS);
}

static int reach(struct local *l)
{
    int64_t pause = FIRST_PAUSE_MS, since = co_now();
    struct err err = { 0 };

    l->refused.code = ERR_NONE;
    while (!l->closing && connect_and_greet(l, &err)) {
        if (is_final(&err, since) && !l->refused.code) {
            log_error("the keeper cannot be used", KV("error", err.msg));
            l->refused = err;
            co_cond_wake(&l->changed);
        }
        if (err.code == ERR_NOT_FOUND)
            l->refused.code = ERR_NONE; /* it has gone: the next one may be ours */
        if (co_sleep(co_in(pause)))
            return -1;
        pause = MIN(pause * 2, (int64_t)LAST_PAUSE_MS / 5);
    }
    l->refused.code = ERR_NONE;
    return l->closing ? -1 : 0;
}

static void watch(void *arg)
{
    struct local *l = arg;
    int64_t pause = FIRST_PAUSE_MS;
    bool lost = false;

    while (!reach(l)) {
        struct err err = { 0 };

        l->heard = false;
        l->epoch++;
        co_cond_wake(&l->changed);
        if (lost)
            regain_begin(l);
        hear(l, &err);
        hang_up(l);
        if (l->closing || co_cancelled())
            break;
        /* a keeper that never says a sensible word is asked again, ever more seldom */
        pause = l->heard ? FIRST_PAUSE_MS : MIN(pause * 2, (int64_t)LAST_PAUSE_MS);
        log_warn("the keeper was lost", KV("error", err.msg));
        if (!lost || l->heard)
            local_emit(l, MACHINE_LOST);
        lost = true;
        if (co_sleep(co_in(pause)))
            break;
    }
    l->closing = true;
    co_cond_wake(&l->changed);
    local_put(l);
}

void local_start(struct local *l)
{
    l->keep.fd = -1;
    l->users = 2; /* the watcher, and who has it open */
    list_init(&l->asks);
    co_cond_init(&l->changed);
    co_cond_init(&l->sent);
    if (co_go(watch, l, &l->watcher))
        abort(); /* the first coroutine of a server: memory is gone */
}

void local_stop(struct local *l)
{
    l->closing = true;
    co_cond_wake(&l->changed);
    co_cancel(l->watcher);
    local_put(l);
}
