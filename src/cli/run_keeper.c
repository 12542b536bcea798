/* run_keeper.c - the keeper of a `cove run`: the one that runs for this data directory, or one of
 * its own.
 *
 * One that others use may be restarted meanwhile. The command does not notice: its output comes
 * over a connection to the guest, and the next keeper lets the sandbox live as long as we do. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/run.h"
#include "jail/cgroup.h"

enum { AGAIN_MS = 20, ANSWER_MS = 5000, RETURN_MS = 5000 };

/* ---- finding it ---- */

static void progress(const char *what, const char *where)
{
    if (isatty(2))
        fprintf(stderr, "cove run: %s %s (only the first time)\n", what, where);
}

/* The data directory is root's, and we are whom `cove keep --client` names: the only one there is,
 * if it lets us. */
static int connect_to_only(struct run *r, const char *run_dir, struct err *err)
{
    DIR *d = opendir(run_dir);
    const struct dirent *e;
    struct keep k;
    int found = 0;

    while (d && (e = readdir(d))) {
        AUTO(freep) char *place = NULL;

        if (asprintf(&place, "%s/%s", run_dir, e->d_name) < 0)
            abort();
        if (*e->d_name == '.' || keep_connect(&k, place, NULL, err))
            continue;
        if (found++) {
            close(k.fd);
            continue;
        }
        r->keep = k;
        r->place = TAKE(place, NULL);
    }
    if (d)
        closedir(d);
    if (found == 1)
        return 0;
    if (found)
        close(TAKE(r->keep.fd, -1));
    return err_set(err, ERR_NOT_FOUND, "%d keepers in %s are for us", found, run_dir);
}

static int connect_to_shared(struct run *r, const char *data_dir, const char *run_dir,
                             struct err *err)
{
    if (!keep_owner_read(data_dir, &r->owner, err)) {
        r->place = keep_place(run_dir, &r->owner);
        if (!keep_connect(&r->keep, r->place, &r->owner, err))
            return 0;
    } else if (err->code == ERR_DENIED)
        return connect_to_only(r, run_dir, err);
    if (err->code != ERR_NOT_FOUND || keep_old_one(run_dir, data_dir) != KEEP_OLD_OURS)
        return -1;
    free(r->place);
    r->place = xstrdup(run_dir);
    return keep_connect(&r->keep, r->place, &r->owner, err);
}

int run_keeper_find(struct run *r, const char *data_dir, const char *run_dir, struct err *err)
{
    static const char *const anywhere[] = { "/", NULL };
    struct keep_options ko = { .data_dir = data_dir,
                               .run_dir = run_dir,
                               .allow_mounts = anywhere, /* what we may read we may show */
                               .client_uid = getuid(),
                               .rootless = r->rootless,
                               .progress = progress,
                               .likely = strcmp(r->o->network, "open") ? ORDER_NET_NONE
                                                                       : ORDER_NET_OPEN };

    if (!r->o->private && !connect_to_shared(r, data_dir, run_dir, err))
        return r->o->set.n ? err_set(err, ERR_INVALID,
                                     "--set is for a keeper of its own, and one runs that many "
                                     "share: add --private, or give it to that one")
                           : 0;
    r->mover = r->rootless ? 0 : cgroups_expect_move();
    return keep_private(&r->keep, &ko, err);
}

/* ---- asking it ---- */

/* It was lost, not: it has refused. */
static bool is_lost(const struct run *r, const struct keep_reply *reply, const struct err *err)
{
    return !r->keep.pid && !reply->code && err->code == ERR_GONE;
}

int run_keeper_ask(struct run *r, struct keep_request *q, int *fd, struct err *err)
{
    struct keep_reply reply;
    size_t n;

    do {
        reply.code = 0;
        n = 1;
        if (r->keep.fd >= 0 && !keep_call(&r->keep, q, &reply, fd, &n, run_event, r, err))
            return n == 1 ? 0 : keep_no_socket(err);
        if (r->keep.fd >= 0 && !is_lost(r, &reply, err))
            return -1;
    } while (!co_sleep(co_in(AGAIN_MS))); /* run_keeper_watch() finds the next one */
    return err_set(err, ERR_GONE, "the keeper has ended");
}

/* ---- hearing it, and the next one ---- */

/* The answer to what was asked last; events that come before it are heard. */
static int answer(struct run *r, struct keep *k, struct keep_reply *reply, struct err *err)
{
    int64_t until = co_in(ANSWER_MS);
    size_t none = 0;
    int more;

    for (;;) {
        more = keep_next(k, reply, NULL, &none, err);
        if (more < 0)
            return -1;
        if (more && reply->kind == KEEP_REPLY)
            return 0;
        if (more)
            run_event(reply, r);
        else if (co_wait(k->fd, CO_IN, until))
            return err_set(err, ERR_TIMEOUT, "the keeper does not answer");
    }
}

/* The sandbox's events come to us again. 1: there is no such sandbox any more. */
static int claim(struct run *r, struct keep *k, struct err *err)
{
    struct keep_request q = { .verb = KEEP_ADOPT };
    struct keep_reply reply;

    memcpy(q.id, r->id, sizeof(q.id));
    if (keep_hello(k, err) || answer(r, k, &reply, err) || keep_agree(k, &reply, err) ||
        keep_send(k, &q, err) || answer(r, k, &reply, err))
        return -1;
    if (!reply.code)
        return 0;
    return reply.code == ERR_NOT_FOUND ? 1 : -1;
}

/* -1: we are ending. */
static int regain(struct run *r)
{
    const struct keep_owner *owner = *r->owner.identity ? &r->owner : NULL;
    struct err err = { 0 };
    struct keep k;
    int missing = 0;

    co_close(TAKE(r->keep.fd, -1));
    while (!co_sleep(co_in(AGAIN_MS))) {
        int claimed = keep_connect_now(&k, r->place, owner, &err);

        if (claimed)
            continue;
        claimed = claim(r, &k, &err);
        missing = claimed > 0 ? missing + 1 : 0;
        if (!claimed) {
            r->keep = k;
            return 0;
        }
        co_close(k.fd);
        if (missing > 1) { /* asked twice */
            r->ended = true;
            r->reason = ENDED_FAILED;
            err_set(&r->why, ERR_GONE, "the sandbox ended while its keeper was restarted");
            return 0;
        }
    }
    return -1;
}

void run_keeper_watch(void *session)
{
    struct run_session *s = session;
    struct run *r = s->run;
    struct keep_reply event;
    struct err err = { 0 };
    size_t none = 0;
    int more = 0;

    do {
        while (!r->ended && more >= 0 && !co_wait(r->keep.fd, CO_IN, NEVER))
            while ((more = keep_next(&r->keep, &event, NULL, &none, &err)) > 0)
                run_event(&event, r);
        if (more < 0 && !r->ended && r->keep.pid) {
            s->err = err;
            s->failed = true;
        }
        more = 0;
    } while (!r->ended && !s->failed && !co_cancelled() && !regain(r));
    if (!co_cancelled())
        co_cancel_all(); /* there is nobody left to hear from */
}

/* ---- ending the sandbox ---- */

static int ask_to_end(struct run *r)
{
    struct keep_request q = { .verb = KEEP_KILL };
    struct keep_reply reply = { .code = 0 };
    struct err err = { 0 };

    memcpy(q.id, r->id, sizeof(q.id));
    return keep_call(&r->keep, &q, &reply, NULL, NULL, run_event, r, &err) &&
                   is_lost(r, &reply, &err)
               ? -1
               : 0;
}

static int connect_again(struct run *r)
{
    const struct keep_owner *owner = *r->owner.identity ? &r->owner : NULL;
    struct keep_request q = { .verb = KEEP_ADOPT };
    struct keep_reply reply;
    struct err err = { 0 };

    if (r->keep.fd >= 0)
        close(TAKE(r->keep.fd, -1));
    if (keep_connect(&r->keep, r->place, owner, &err)) {
        r->keep.fd = -1;
        return -1;
    }
    memcpy(q.id, r->id, sizeof(q.id));
    (void)!keep_call(&r->keep, &q, &reply, NULL, NULL, run_event, r, &err);
    return 0;
}

/* Where no keeper comes back the next one takes away what is left; nothing goes on till then. */
static void end_at_shared(struct run *r)
{
    int64_t until = clock_ms() + RETURN_MS;

    while (r->keep.fd < 0 || ask_to_end(r)) {
        if (!connect_again(r))
            continue;
        if (clock_ms() >= until) {
            if (r->pidfd >= 0)
                syscall(SYS_pidfd_send_signal, r->pidfd, SIGKILL, NULL, 0);
            return;
        }
        usleep(AGAIN_MS * 1000);
    }
}

void run_keeper_end(struct run *r)
{
    if (r->keep.pid)
        keep_leave(&r->keep, run_event, r); /* it has no other sandbox */
    else if (!r->ended)
        end_at_shared(r);
}
