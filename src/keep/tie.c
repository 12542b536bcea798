/* tie.c - sandboxes that are tied to a client (`cove run`): they end with it.
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
    b->client_started = adopt_start_time(c->pid);
}

static void on_end(struct source *s)
{
    struct box *b = CONTAINER_OF(s, struct box, client);

    tie_forget(b);
    box_end(b, ENDED_LEFT);
}

void tie_adopt(struct box *b)
{
    struct err err = { 0 };

    b->client = (struct source){
        b->client_started ? adopt_open_process(b->client_pid, b->client_started) : -1, on_end
    };
    if (b->client.fd < 0) {
        box_end(b, ENDED_LEFT);
        return;
    }
    if (loop_add(&b->keeper->loop, &b->client, EPOLLIN, &err))
        log_warn("nobody will see its client end", KV("sandbox", b->id), KV("error", err.msg));
}

void tie_forget(struct box *b)
{
    if (b->client.fd < 0)
        return;
    loop_remove(&b->keeper->loop, &b->client);
    close(TAKE(b->client.fd, -1));
}
