/* answer.c - what the keeper sends: replies to requests, and events. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "io/fdpass.h"
#include "keep/keeper.h"
#include "keep/wire.h"

/* Nobody may make the keeper wait, and an answer that is lost without a trace would be waited for
 * in vain: a client that does not read loses its connection. */
void keeper_send(struct client *c, struct keep_reply *r, const int *fds, size_t nfds)
{
    static struct buf bytes;
    struct err err;

    bytes.len = 0;
    if (wire_write_reply(r, c->version, &bytes, &err)) {
        log_error("an answer cannot be written", KV("error", err.msg));
        shutdown(c->source.fd, SHUT_RDWR);
        return;
    }
    if (fdpass_send(c->source.fd, bytes.data, bytes.len, fds, nfds, MSG_DONTWAIT) < 0 &&
        errno != EPIPE) {
        log_warn("a client does not take its answer", KV("error", strerrordesc_np(errno)));
        shutdown(c->source.fd, SHUT_RDWR); /* the loop hears that it has left */
    }
}

/* Only a look-up says that there is no such sandbox. What else was not there on the way (a mount, a
 * cgroup's file) may be there again, and clients of older releases end what they hear this of. */
static enum err_code code_of(const struct pending *p, const struct err *err)
{
    bool makes = p->verb == KEEP_CREATE || p->verb == KEEP_RESTORE;

    return err->code == ERR_NOT_FOUND && err->reason != ERR_NO_SANDBOX && !makes ? ERR_UNAVAILABLE
                                                                                 : err->code;
}

void keeper_reply(const struct pending *p, const char *id, const struct err *err,
                  const struct keep_state *state)
{
    struct keep_reply r = { .kind = KEEP_REPLY, .verb = p->verb, .serial = p->serial };

    if (!p->client)
        return;
    snprintf(r.id, sizeof(r.id), "%s", id);
    if (err) {
        r.code = code_of(p, err);
        r.why = err->reason;
        snprintf(r.message, sizeof(r.message), "%s", err->msg);
    } else if (state)
        r.u.state = *state;
    keeper_send(p->client, &r, NULL, 0);
}

void keeper_event_limit(struct box *b, enum limit_id limit, uint64_t value, uint64_t use)
{
    uint64_t sockets = limit == LIMIT_MEMORY ? b->socket_bytes : 0;
    struct keep_reply r = {
        .kind = KEEP_LIMIT_MET,
        .u.limit = { .limit = limit, .value = value, .use = use, .sockets = sockets },
    };
    char is[32], was[32];

    limits_format(limit, value, is, sizeof(is));
    limits_format(limit, use, was, sizeof(was));
    log_info("limit met", KV("sandbox", b->id), KV("limit", limit_rows[limit].name),
             KV("value", is), KV("use", was), KVI("in-sockets", (int64_t)sockets));
    memcpy(r.id, b->id, sizeof(r.id));
    if (b->owner)
        keeper_send(b->owner, &r, NULL, 0);
}

void keeper_event_failed(struct box *b, const struct err *err)
{
    struct keep_reply r = { .kind = KEEP_ENDED, .reason = ENDED_FAILED, .code = err->code };

    log_warn("could not be built", KV("sandbox", b->id), KV("error", err->msg));
    memcpy(r.id, b->id, sizeof(r.id));
    snprintf(r.message, sizeof(r.message), "%s", err->msg);
    if (b->owner)
        keeper_send(b->owner, &r, NULL, 0);
}

void keeper_event_ended(struct box *b, int status, const struct keep_state *last)
{
    struct keep_reply r = { .kind = KEEP_ENDED, .reason = b->reason, .status = (uint32_t)status };

    log_info("ended", KV("sandbox", b->id), KV("reason", keep_reason_names[b->reason]));
    memcpy(r.id, b->id, sizeof(r.id));
    r.u.state = *last;
    if (b->owner)
        keeper_send(b->owner, &r, NULL, 0);
}
