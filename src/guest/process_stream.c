/* process_stream.c - one reader of a process's events: from its start to the end, or to its own.
 *
 * Beyond E2B's own fields every event carries `offset`: where its data begins in the process's
 * output, for start where this stream begins, for end how much there was. A reader that comes back
 * with Cove-Output-Offset goes on exactly there, or is told that it cannot. To one that comes
 * without, what fell out of the ring is told as {"lost": {"bytes": n}}, which E2B's clients pass
 * over; so is it to one that says Cove-Output-Lost: tell. */
#include <errno.h>
#include <sys/wait.h>

#include "guest/process.h"
#include "io/connect.h"

enum { EVENT_BYTES = 32 << 10 };

struct stream {
    struct call *call;
    struct process *p;
    struct process_reader reader;
    int64_t keepalive_ms, quiet_until, until;
    bool watch; /* the client's socket tells when it leaves */
};

static struct buf *event_begin(struct stream *s, uint64_t offset)
{
    struct buf *b = connect_message(s->call);

    json_open(b, '{');
    json_key(b, "event");
    json_open(b, '{');
    json_kv_int64s(b, "offset", (int64_t)offset);
    return b;
}

static int event_send(struct stream *s, struct buf *b, struct err *err)
{
    json_close(b, '}');
    json_close(b, '}');
    s->quiet_until = co_in(s->keepalive_ms);
    return connect_put(s->call) ? err_set(err, ERR_GONE, "the client left") : 0;
}

/* A reader has what was flushed; large events go out without being buffered. */
static int flush_events(struct stream *s, bool now, struct err *err)
{
    if (now && call_flush(s->call))
        return err_set(err, ERR_GONE, "the client left");
    if (!s->call->conn->used)
        s->reader.sent = s->reader.offset;
    return 0;
}

static int send_start(struct stream *s, struct err *err)
{
    struct buf *b;

    if (connect_begin(s->call))
        return err_set(err, ERR_GONE, "the client left");
    if (s->until != NEVER) /* one that does not read any more learns of its time limit by our end */
        s->call->conn->patience = s->until + http_limits.write_ms;
    b = event_begin(s, s->reader.offset - s->reader.lost);
    json_key(b, "start");
    json_open(b, '{');
    json_kv_int(b, "pid", s->p->child.pid);
    json_close(b, '}');
    return event_send(s, b, err);
}

static int send_data(struct stream *s, const struct ring_piece *piece, struct err *err)
{
    static const char *const names[] = {
        [RING_STDOUT] = "stdout", [RING_STDERR] = "stderr", [RING_PTY] = "pty"
    };
    uint64_t next = piece->offset + piece->data.n;
    struct buf *b = event_begin(s, piece->offset);

    json_key(b, "data");
    json_open(b, '{');
    json_key(b, names[piece->stream]);
    json_put_base64(b, piece->data.p, piece->data.n);
    json_close(b, '}');
    if (event_send(s, b, err))
        return -1;
    process_took(s->p, &s->reader, next);
    return flush_events(s, false, err);
}

static int send_lost(struct stream *s, struct err *err)
{
    struct buf *b = event_begin(s, s->reader.offset - s->reader.lost);

    json_key(b, "lost");
    json_open(b, '{');
    json_kv_int64s(b, "bytes", (int64_t)s->reader.lost);
    json_close(b, '}');
    s->reader.lost = 0;
    return event_send(s, b, err) || flush_events(s, false, err) ? -1 : 0;
}

/* Another reader sets the pace, and this one has not kept up. */
static int fell_behind(struct stream *s, struct err *err)
{
    struct process_reader *r = &s->reader;
    uint64_t first = s->p->ring.first;

    if (!r->gaps)
        return err_set(err, ERR_DATA_LOSS,
                       "this stream is more than process.output-bytes behind the reader that sets "
                       "the pace: bytes %llu to %llu of process %d are not kept any more",
                       (unsigned long long)r->offset, (unsigned long long)first, s->p->child.pid);
    r->lost = first - r->offset;
    process_took(s->p, r, first);
    return 0;
}

static int send_keepalive(struct stream *s, struct err *err)
{
    struct buf *b = event_begin(s, s->reader.offset);

    json_key(b, "keepalive");
    json_open(b, '{');
    json_close(b, '}');
    return event_send(s, b, err);
}

static int send_end(struct stream *s, struct err *err)
{
    struct process *p = s->p;
    struct buf *b;

    if (p->timed_out)
        return err_set(err, ERR_TIMEOUT, "process %d was killed: its time limit was reached",
                       p->child.pid);
    b = event_begin(s, p->ring.end);
    json_key(b, "end");
    json_open(b, '{');
    json_kv_int(b, "exitCode", p->exit_code);
    json_kv_bool(b, "exited", p->exited);
    json_kv_str(b, "status", p->status);
    if (!p->exited) {
        json_kv_str(b, "error", p->status);
        json_kv_int(b, "signal", WTERMSIG(p->child.status)); /* beyond E2B's fields */
    }
    json_close(b, '}');
    json_close(b, '}');
    json_close(b, '}');
    if (connect_send_end(s->call))
        return err_set(err, ERR_GONE, "the client left");
    return flush_events(s, true, err);
}

/* Waits for something to tell: 1 go on, -1 the client left or its time is over. What a program that
 * has ended already is about to say goes out with its end. */
static int wait_more(struct stream *s, struct err *err)
{
    int64_t until = MIN(s->quiet_until, s->until);
    int fd = s->call->conn->fd, r;

    if (flush_events(s, !s->p->child.reaped, err))
        return -1;
    if (s->reader.offset != s->p->ring.end || s->p->ended)
        return 1; /* came while the flush waited for the client: nobody will wake us for it */
    r = s->watch ? co_cond_wait_fd(&s->p->changed, fd, CO_IN, until)
                 : co_cond_wait(&s->p->changed, until);

    if (r == 1) {
        if (conn_peer_left(s->call->conn))
            return err_set(err, ERR_GONE, "the client left");
        /* when it sent its next request early there is nothing to learn from the socket */
        s->watch = conn_quiet(s->call->conn);
    }
    if (r >= 0)
        return 1;
    if (errno != ETIMEDOUT)
        return err_sys(err, "wait for process %d", s->p->child.pid);
    if (co_now() >= s->until)
        return err_set(err, ERR_TIMEOUT, "the stream's time limit was reached");
    return send_keepalive(s, err) || flush_events(s, true, err) ? -1 : 1;
}

static int send_events(struct stream *s, struct err *err)
{
    struct process *p = s->p;
    struct ring_piece piece;

    if (send_start(s, err))
        return -1;
    for (;;) {
        if (process_behind(p, &s->reader) && fell_behind(s, err))
            return -1;
        if (s->reader.lost) {
            if (send_lost(s, err))
                return -1;
            continue; /* it may have parked */
        }
        if (ring_get(&p->ring, s->reader.offset, EVENT_BYTES, &piece)) {
            if (send_data(s, &piece, err))
                return -1;
            continue;
        }
        if (p->ended)
            return send_end(s, err);
        if (wait_more(s, err) < 0)
            return -1;
    }
}

int process_follow(struct call *c, struct process *p, const uint64_t *offset, bool gaps,
                   int64_t until, struct err *err)
{
    struct stream s = {
        .call = c, .p = p, .keepalive_ms = connect_keepalive_ms(&c->head), .until = until
    };
    int r;

    s.watch = !conn_ready(c->conn);
    process_attach(p, &s.reader, offset, gaps);
    r = conn_peer_left(c->conn) && s.watch ? err_set(err, ERR_GONE, "the client left")
                                           : send_events(&s, err);
    process_detach(p, &s.reader);
    return r;
}
