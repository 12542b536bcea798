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

static int dial(void *arg, int64_t until, struct err *err)
{
    struct run *r = arg;
    struct keep_request q = { .verb = KEEP_SOCKET, .u.socket = { .count = 1 } };
    int fd;

    (void)until;
    if (r->first >= 0)
        return TAKE(r->first, -1);
    memcpy(q.id, r->id, sizeof(q.id));
    return run_keeper_ask(r, &q, &fd, err) ? -1 : fd;
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
    if (co_go(run_keeper_watch, s, NULL))
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
