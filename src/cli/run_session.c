/* run_session.c - the command of `cove run` in its sandbox, beside what the keeper has to say. */
#include <stdlib.h>
#include <string.h>

#include "cli/run.h"

void run_event(const struct keep_reply *event, void *run)
{
    struct run *r = run;

    if (strcmp(event->id, r->id))
        return;
    if (event->kind == KEEP_LIMIT_MET) {
        r->met[event->u.limit.limit] = event->u.limit;
        r->was_met[event->u.limit.limit] = true;
    } else if (event->kind == KEEP_ENDED) {
        r->ended = true;
        r->reason = (enum keep_reason)event->reason;
        if (r->reason == ENDED_FAILED)
            err_set(&r->why, (enum err_code)event->code, "%s", event->message);
        r->state = event->u.state;
    }
}

static void watch_keeper(void *arg)
{
    struct run_session *s = arg;
    struct run *r = s->run;
    struct keep_reply event;
    size_t none = 0;
    int more;

    while (!co_wait(r->keep.fd, CO_IN, NEVER)) {
        while ((more = keep_next(&r->keep, &event, NULL, &none, &s->err)) > 0)
            run_event(&event, r);
        if (more < 0)
            s->failed = true;
        if (more < 0 || r->ended)
            break;
    }
    if (!co_cancelled())
        co_cancel_all(); /* there is nobody left to hear from */
}

static int dial(void *arg, int64_t until, struct err *err)
{
    struct run *r = arg;
    struct keep_request q = { .verb = KEEP_SOCKET, .u.socket = { .count = 1 } };
    struct keep_reply reply;
    size_t n = 1;
    int fd;

    (void)until;
    if (r->first >= 0)
        return TAKE(r->first, -1);
    memcpy(q.id, r->id, sizeof(q.id));
    if (keep_call(&r->keep, &q, &reply, &fd, &n, run_event, r, err))
        return -1;
    return n == 1 ? fd : err_set(err, ERR_UPSTREAM, "the keeper gave no connection");
}

void run_session(void *session)
{
    struct run_session *s = session;
    struct run *r = s->run;
    struct err err = { 0 };

    client_init(&r->client);
    r->envd =
        (struct envd){ .client = &r->client,
                       .to = { .dial = dial, .arg = r, .key = r->id, .answer_ms = INT32_MAX } };
    if (co_go(watch_keeper, s, NULL))
        abort();
    run_forward_serve(r);
    if (session_run(&r->session, &err) && !r->ended && !s->failed) {
        s->err = err;
        s->failed = true;
    }
    session_leave(&r->session);
    client_finish(&r->client);
    co_cancel_all();
}
