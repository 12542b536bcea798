/* box_end.c - how a sandbox ends: the order, what its client is told, what is given back.
 *
 * Everything that ends one goes through box_end(): the signal; the rest happens when pid 1 is gone.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "keep/box_parts.h"
#include "keep/keeper.h"

static void unwatch(struct box *b, struct source *s)
{
    loop_remove(&b->keeper->loop, s);
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

/* All but its files and its record. */
static void release(struct box *b)
{
    struct keeper *k = b->keeper;

    pause_cancel(b, "has ended");
    opening_forget(b);
    list_remove(&b->waiting);
    if (b->ended.fd < 0) /* not watched yet, but ours all the same */
        b->ended.fd = b->jail.pidfd;
    if (b->report.fd < 0)
        b->report.fd = b->jail.sock;
    unwatch(b, &b->ended);
    unwatch(b, &b->report);
    unwatch(b, &b->memory);
    if (b->cgroup_made)
        late_cgroup(k, b->name);
    slots_put(k, TAKE(b->slot, NULL));
    if (b->socket_made)
        keeper_unlink(k->sockets, b->id);
    b->cgroup_made = b->socket_made = b->collected = false;
    closep(&b->jail.net);
    b->jail = (struct jail){ .pidfd = -1, .sock = -1, .net = -1 };
    b->started = 0;
    source_close(b);
}

/* The files of one that sleeps have a note and no record, and the note goes before they do:
 * whenever we are killed, something says whose they are. The record says that it is not paused, or
 * the next keeper would take the note for lost. */
static void forget_note(struct box *b)
{
    bool frozen = TAKE(b->frozen, false);
    struct err err;

    if ((b->noted || frozen) && adopt_record(b, &err))
        log_warn("not recorded", KV("sandbox", b->id), KV("error", err.msg));
    b->frozen = frozen;
    if (pause_forget(b, &err))
        log_warn("the note of a sandbox that ends stays", KV("sandbox", b->id),
                 KV("error", err.msg));
    b->noted = false;
}

/* The record goes last, for the same reason. */
void box_free(struct box *b)
{
    struct keeper *k = b->keeper;

    release(b);
    tie_forget(b);
    list_remove(&b->all);
    k->nboxes--;
    if (b->noted)
        forget_note(b);
    if (b->layer >= 0) {
        close(b->layer);
        late_delete(k, b->name, b->mounts, b->id);
    } else
        adopt_forget(b);
    closep(&b->mounts);
    buf_free(&b->unknown);
    free(b);
}

void box_sleep(struct box *b)
{
    log_info("its processes are gone, its files are kept", KV("sandbox", b->id));
    release(b);
    adopt_forget(b);    /* its note says it all */
    closep(&b->mounts); /* at once: it may wake, and its files are mounted again */
    b->mounts = -1;
    b->phase = PHASE_ASLEEP;
    b->frozen = true;
    b->fresh = b->waking = false;
    b->deadline = NEVER;
    b->oom_kills = b->pids_refused = b->socket_bytes = b->overrun_bytes = 0;
}

static void stay(struct box *b, struct keep_state *last);

/* Pid 1 goes last in its namespace: now nothing of the sandbox runs any more. An adopted one is
 * somebody else's child, whose status we may not learn. */
static int collect(struct box *b)
{
    siginfo_t info = { 0 };

    b->collected = true;
    if (waitid(P_PIDFD, (id_t)b->jail.pidfd, &info, WEXITED | WNOHANG))
        return -1; /* adopted: somebody else was told */
    return info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status & 0x7f;
}

/* ---- one that could not be built ---- */

/* Nothing of it runs any more. One that was being woken has its files and its note as before,
 * unless somebody wants it gone. */
static void failed(struct box *b, const struct err *err)
{
    struct pending end = b->end;
    char id[ORDER_ID];

    memcpy(id, b->id, sizeof(id));
    b->phase = PHASE_WAITING; /* as far as it had come */
    if (end.verb)
        forget_note(b);
    if (b->create.client)
        keeper_reply(&b->create, id, err, NULL);
    else if (!b->noted) /* of one that stays there is nothing to tell */
        keeper_event_failed(b, err);
    b->create.client = b->end.client = NULL;
    if (b->noted && b->layer >= 0)
        box_sleep(b);
    else
        box_free(b);
    keeper_reply(&end, id, NULL, NULL); /* it wanted it gone: it is */
}

static bool has_process(const struct box *b)
{
    struct pollfd p = { .fd = b->jail.pidfd, .events = POLLIN };

    return p.fd >= 0 && !b->collected && poll(&p, 1, 0) <= 0;
}

static void send_kill(const struct box *b)
{
    if (syscall(SYS_pidfd_send_signal, b->jail.pidfd, SIGKILL, NULL, 0) && errno != ESRCH)
        log_warn("not ended yet", KV("sandbox", b->id), KV("error", strerrordesc_np(errno)));
}

void box_fail(struct box *b, const struct err *err)
{
    struct err unwatched;

    if (b->jail.pidfd >= 0) /* by descriptor: a number may be another's by now */
        send_kill(b);
    if (!has_process(b)) {
        if (b->jail.pidfd >= 0 && !b->collected)
            collect(b);
        failed(b, err);
        return;
    }
    b->fault = xcalloc(1, sizeof(*b->fault)); /* goes on in box_on_ended() */
    *b->fault = *err;
    b->phase = PHASE_ENDING;
    if (b->ended.fd >= 0)
        return;
    b->ended = (struct source){ b->jail.pidfd, box_on_ended };
    if (loop_add(&b->keeper->loop, &b->ended, EPOLLIN, &unwatched))
        log_debug("looked at now and then", KV("sandbox", b->id), KV("error", unwatched.msg));
}

/* ---- the order ---- */

static void end_asleep(struct box *b, enum keep_reason reason)
{
    struct pending end = b->end;
    struct keep_state last;
    char id[ORDER_ID];

    memcpy(id, b->id, sizeof(id));
    b->reason = reason;
    box_measure(b, &last);
    keeper_event_ended(b, 0, &last);
    box_free(b);
    keeper_reply(&end, id, NULL, &last);
}

void box_end(struct box *b, enum keep_reason reason)
{
    if (b->phase == PHASE_ENDING)
        return;
    if (b->phase == PHASE_UNREAD) {
        unread_end(b, reason);
        return;
    }
    forget_note(b);
    if (b->phase == PHASE_ASLEEP) {
        end_asleep(b, reason);
        return;
    }
    if (b->phase == PHASE_WAITING) { /* nothing runs yet */
        struct err err;

        err_set(&err, ERR_GONE, "ended before it was built");
        box_fail(b, &err);
        return;
    }
    b->phase = PHASE_ENDING;
    b->reason = reason;
    box_end_again(b);
}

/* A sandbox with ORDER_STAY loses its processes only: the keeper sees their end as any other, and
 * keeps its files. */
void box_overrun(struct box *b, uint64_t sockets, uint64_t memory)
{
    b->socket_bytes = sockets;
    b->overrun_bytes = sockets + memory;
    keeper_event_limit(b, LIMIT_MEMORY, b->order.limits.memory_bytes, b->overrun_bytes);
    if (b->order.flags & ORDER_STAY)
        send_kill(b);
    else
        box_end(b, ENDED_MEMORY);
}

void box_end_again(struct box *b)
{
    struct keep_state last;

    if (b->staying) {
        box_measure(b, &last);
        stay(b, &last);
        return;
    }
    send_kill(b);
    if (b->fault)
        box_notice_end(b); /* it may not be watched */
}

/* Nothing of it runs any more, and nothing of it is kept. */
static void over(struct box *b, const struct keep_state *last)
{
    struct err early;

    b->phase = PHASE_ENDING;
    err_set(&early, ERR_GONE, "ended before it was built");
    keeper_reply(&b->create, b->id, &early, NULL); /* if that has not been answered yet */
    keeper_event_ended(b, b->status, last);
    keeper_reply(&b->end, b->id, NULL, last); /* before the cleaning up */
    box_free(b);
}

/* It is to be started again: its files are kept as those of a paused one are, and its client is
 * told. What cannot be written now (the disk is full) is tried again, until its time is up or
 * somebody ends it: they are not deleted for that. */
static void stay(struct box *b, struct keep_state *last)
{
    struct err err = { 0 };

    if (b->end.verb || b->deadline <= clock_ms()) {
        over(b, last);
        return;
    }
    if (note_write(b, false, &err)) {
        if (!b->staying)
            log_error("its files are not noted yet", KV("sandbox", b->id), KV("error", err.msg));
        loop_remove(&b->keeper->loop, &b->ended); /* from here on box_end_again() comes to us */
        b->staying = true;
        b->phase = PHASE_ENDING;
        return;
    }
    b->staying = false;
    b->noted = true;
    b->left = b->deadline == NEVER ? NEVER : MAX(b->deadline - clock_ms(), (int64_t)0);
    box_sleep(b);
    last->asleep = last->frozen = 1;
    keeper_event_ended(b, b->status, last);
}

void box_on_ended(struct source *s)
{
    struct box *b = CONTAINER_OF(s, struct box, ended);
    struct keep_state last;

    b->status = collect(b);
    if (b->fault) {
        AUTO(freep) struct err *fault = TAKE(b->fault, NULL);

        failed(b, fault);
        return;
    }
    if (b->report.fd >= 0 &&
        b->phase != PHASE_ENDING) { /* it died while building: its word says why */
        box_on_report(&b->report);
        return;
    }
    if (b->noted && b->phase != PHASE_ENDING) {
        pause_sleep(b);
        return;
    }
    box_measure(b, &last);
    if (b->phase != PHASE_ENDING)
        b->reason = b->overrun_bytes || (b->oom_kills && b->status == SIGKILL) ? ENDED_MEMORY
                                                                               : ENDED_BY_ITSELF;
    if (b->phase == PHASE_RUNNING && b->order.flags & ORDER_STAY)
        stay(b, &last);
    else
        over(b, &last);
}

void box_notice_end(struct box *b)
{
    struct pollfd p = { .fd = b->ended.fd, .events = POLLIN };

    if (p.fd >= 0 && poll(&p, 1, 0) > 0)
        box_on_ended(&b->ended);
}
