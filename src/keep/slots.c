/* slots.c - network namespaces made ahead. Each belongs to a number (ids.h), because address and
 * port follow from it. */
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "keep/box_parts.h"
#include "keep/keeper.h"

static const enum net_mode modes[ORDER_NETWORKS] = {
    [ORDER_NET_NONE] = NET_NONE, [ORDER_NET_OPEN] = NET_OPEN
};

static enum order_network network_of(enum net_mode mode)
{
    return mode == NET_OPEN ? ORDER_NET_OPEN : ORDER_NET_NONE;
}

static struct slot *asked_for(struct keeper *k, uint32_t number)
{
    struct slot *s;

    list_each(s, &k->asked, all)
        if (s->ids.number == number)
            return s;
    return NULL;
}

/* The oldest sandbox that waits for this kind gets it, otherwise the stock. */
static void deliver(struct keeper *k, struct slot *s)
{
    enum order_network network = network_of(s->net.mode);
    struct box *b;

    list_remove(&s->all);
    list_each(b, &k->waiting, waiting)
        if (b->order.network == network) {
            list_remove(&b->waiting);
            b->slot = s;
            box_continue(b);
            return;
        }
    list_push(&k->stock[network], &s->all);
}

/* s: what was asked for, or NULL. The oldest that waits for this kind hears it. */
static void fail_one(struct keeper *k, struct slot *s, enum order_network network,
                     const struct err *err)
{
    struct box *b;

    if (s) {
        list_remove(&s->all);
        ids_put(&k->ids, &s->ids);
        free(s);
    }
    log_warn("cannot make a network namespace", KV("error", err->msg));
    list_each(b, &k->waiting, waiting)
        if (b->order.network == network) {
            list_remove(&b->waiting);
            box_fail(b, err);
            return;
        }
}

static int ask(struct keeper *k, enum order_network network, struct err *err);

/* Somebody's sandbox has the interface of this number although nobody holds it (its keeper's run
 * directory was deleted, say). The number stays ours, so that nobody tries it again while we live;
 * whoever waits gets another. */
static int ask_another(struct keeper *k, struct slot *s, struct err *err)
{
    enum order_network network = network_of(s->net.mode);

    log_warn("a number is set aside", KVI("number", s->ids.number), KV("error", err->msg));
    list_remove(&s->all);
    free(s); /* its lock stays open */
    return ask(k, network, err);
}

static void take_ready(struct source *source)
{
    struct keeper *k = CONTAINER_OF(source, struct keeper, net_ready);
    struct net_slot got;
    enum order_network network;
    struct err err = { 0 };
    int r;

    while ((r = netmaker_take(&k->net, &got, &err)) != 1) {
        struct slot *s = r < 0 && err.code == ERR_GONE ? NULL : asked_for(k, got.index);

        if (!r && s) {
            s->net = got;
            deliver(k, s);
            continue;
        }
        if (!r) {
            net_slot_release(&got);
            continue;
        }
        network = s ? network_of(s->net.mode) : ORDER_NET_NONE;
        if (s && err.code == ERR_CONFLICT) {
            if (!ask_another(k, s, &err))
                continue;
            s = NULL;
        }
        fail_one(k, s, network, &err);
        if (err.code == ERR_GONE) { /* every sandbox needs it: end, and be started again */
            loop_remove(&k->loop, source);
            k->loop.stop = true;
            return;
        }
    }
}

static bool started(const struct keeper *k) { return k->net_ready.fd >= 0; }

static int start_maker(struct keeper *k, struct err *err)
{
    if (netmaker_start(&k->net, &net_configured, err))
        return -1;
    k->net_ready = (struct source){ k->net.fd, take_ready };
    return loop_add(&k->loop, &k->net_ready, EPOLLIN, err);
}

/* Without privilege each sandbox makes its own; for a single one the zygote has made it. */
int slots_start(struct keeper *k, struct err *err)
{
    return k->o.rootless || k->single ? 0 : start_maker(k, err);
}

/* At once: nothing is left to make. */
static int take_home(struct keeper *k, struct slot *s)
{
    k->home_free = false;
    s->home = true;
    list_push(&k->stock[ORDER_NET_NONE], &s->all);
    return 0;
}

static int ask(struct keeper *k, enum order_network network, struct err *err)
{
    struct slot *s = xcalloc(1, sizeof(*s));

    s->net = (struct net_slot){ .ns = -1, .mode = modes[network] };
    list_init(&s->all);
    if (ids_take(&k->ids, &s->ids, err)) {
        free(s);
        return -1;
    }
    if (network == ORDER_NET_NONE && k->home_free && list_empty(&k->waiting))
        return take_home(k, s);
    if ((!started(k) && start_maker(k, err)) ||
        netmaker_ask(&k->net, modes[network], s->ids.number, err)) {
        ids_put(&k->ids, &s->ids);
        free(s);
        return -1;
    }
    list_push(&k->asked, &s->all);
    return 0;
}

static size_t count(const struct list *l)
{
    size_t n = 0;

    for (const struct list *at = l->next; at != l; at = at->next)
        n++;
    return n;
}

static size_t count_asked(struct keeper *k, enum order_network network)
{
    const struct slot *s;
    size_t n = 0;

    list_each(s, &k->asked, all)
        n += network_of(s->net.mode) == network;
    return n;
}

static size_t count_waiting(struct keeper *k, enum order_network network)
{
    const struct box *b;
    size_t n = 0;

    list_each(b, &k->waiting, waiting)
        n += b->order.network == network;
    return n;
}

void slots_ahead(struct keeper *k, size_t n)
{
    struct err err;

    while (count(&k->stock[k->o.likely]) + count_asked(k, k->o.likely) < n)
        if (ask(k, k->o.likely, &err))
            return; /* whoever needs one asks again, and hears why */
}

/* As many as wait, and the stock. A keeper of many sandboxes has a stock of each kind that was ever
 * asked for: a bridge and a filter that nobody wants are not made. -1: somebody would wait in vain.
 */
int slots_want(struct keeper *k, enum order_network network, struct err *err)
{
    size_t have = count(&k->stock[network]) + count_asked(k, network);
    size_t want;

    if (k->o.socket < 0)
        k->wanted[network] = (size_t)keep_limits.stock;
    want = k->wanted[network] + count_waiting(k, network);

    for (; have < want; have++)
        if (ask(k, network, err)) {
            if (err->code != ERR_LIMIT)
                log_warn("cannot ask for a network namespace", KV("error", err->msg));
            return count_waiting(k, network) > count_asked(k, network) ? -1 : 0;
        }
    return 0;
}

struct slot *slots_take(struct keeper *k, enum order_network network)
{
    struct slot *s;

    if (list_empty(&k->stock[network]))
        return NULL;
    s = CONTAINER_OF(k->stock[network].next, struct slot, all);
    list_remove(&s->all);
    return s;
}

void slots_put(struct keeper *k, struct slot *s)
{
    if (!s)
        return;
    list_remove(&s->all);
    net_slot_release(&s->net);
    ids_put(&k->ids, &s->ids);
    free(s);
}

void slots_finish(struct keeper *k)
{
    struct slot *s;

    if (started(k))
        loop_remove(&k->loop, &k->net_ready);
    for (enum order_network n = 0; n < ORDER_NETWORKS; n++)
        list_each(s, &k->stock[n], all)
            slots_put(k, s);
    list_each(s, &k->asked, all) {
        list_remove(&s->all);
        ids_put(&k->ids, &s->ids);
        free(s);
    }
    if (started(k))
        netmaker_hang_up(&k->net); /* it sees that, and ends */
}

void slots_wait(struct keeper *k)
{
    if (started(k))
        netmaker_stop(&k->net);
}
