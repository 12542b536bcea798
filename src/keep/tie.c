/* tie.c - sandboxes that are tied to a client (`cove run`): they end with it, and are nobody else's
 * business.
 *
 * While it is connected, the end of its connection says so. A keeper that was restarted has no
 * connection to it, but its process in the sandbox's record: the sandbox goes on while that one
 * lives, and it may come back and ask for the sandbox's events. */
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "keep/keeper.h"

void tie_note(struct box *b, const struct client *c)
{
    if (!(b->order.flags & ORDER_TIED) || c->pid <= 0)
        return;
    b->client_pid = c->pid;
    if (adopt_start_time(c->pid, &b->client_started))
        b->client_started = 0;
}

static void on_end(struct source *s)
{
    struct box *b = CONTAINER_OF(s, struct box, client);

    tie_forget(b);
    box_end(b, ENDED_LEFT);
}

bool tie_is_of(const struct box *b, const struct client *c)
{
    pid_t pid = b->known ? b->known->client : b->client_pid;

    return !(b->order.flags & ORDER_TIED) || b->owner == c || (pid > 0 && c && pid == c->pid);
}

/* One whose owner is connected is in the list of no other connection, also of the same process. */
bool tie_lists(const struct box *b, const struct client *c)
{
    return tie_is_of(b, c) && (!(b->order.flags & ORDER_TIED) || !b->owner || b->owner == c);
}

/* Ends it if its client is gone. -1: that cannot be told now. */
static int watch(struct box *b, struct err *err)
{
    int fd = -1;
    enum life life =
        b->client_pid > 0 ? adopt_process(b->client_pid, b->client_started, &fd, err) : LIFE_ENDED;

    if (life == LIFE_ENDED) {
        box_end(b, ENDED_LEFT);
        return 0;
    }
    b->client = (struct source){ fd, on_end };
    if (life == LIFE_LIVES && !loop_add(&b->keeper->loop, &b->client, EPOLLIN, err))
        return 0;
    closep(&b->client.fd);
    b->client.fd = -1;
    return -1;
}

void tie_adopt(struct box *b)
{
    struct err err = { 0 };

    if (watch(b, &err))
        log_warn("its client cannot be watched yet", KV("sandbox", b->id), KV("error", err.msg));
}

void tie_tick(struct box *b)
{
    struct err err = { 0 };

    if (!(b->order.flags & ORDER_TIED) || b->client.fd >= 0)
        return;
    if (!b->owner)
        (void)!watch(b, &err);
    else if (b->client_pid > 0 && !b->client_started) { /* it could not be read yet */
        tie_note(b, b->owner);
        if (b->client_started && adopt_record(b, &err))
            log_warn("not recorded", KV("sandbox", b->id), KV("error", err.msg));
    }
}

void tie_forget(struct box *b)
{
    if (b->client.fd < 0)
        return;
    loop_remove(&b->keeper->loop, &b->client);
    close(TAKE(b->client.fd, -1));
}
