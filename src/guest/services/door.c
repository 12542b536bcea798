/* door.c - see door.h. */
#include "guest/services/door.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/sock.h"
#include "model/door.h"

struct door_place door_place = { .set = -1 };

bool door_wanted(const struct door *d, const char *names)
{
    return door_is_kept(names, d->service->name);
}

/* PORT is for the document's start script only: in a sandbox it says where the user's own web
 * server is to listen, and nothing is more common than that. There the service has a variable of
 * its own. */
int door_port(const struct service_port *p)
{
    const char *name =
        door_place.inside && p->inside_variable ? p->inside_variable : p->port_variable;
    const char *text = name ? map_get(&door_place.guest->env, name) : NULL;
    uint64_t port;

    if (!text || !*text)
        return p->port;
    if (!str_u64(str_of(text), &port) && port <= 65535 && (port || !door_place.inside))
        return (int)port; /* 0: any that is free, and the status says which */
    log_warn("not a port number", KV("variable", name), KV("value", text));
    return p->port;
}

static int listen_on(const struct service_port *p, int port, struct err *err)
{
    const char *host = p->host_variable ? map_get(&door_place.guest->env, p->host_variable) : NULL;
    char text[80];
    struct addr a;

    if (door_place.inside)
        host = "127.0.0.1"; /* who dials in from outside comes by way of it */
    snprintf(text, sizeof(text), "%.64s:%d", host && *host ? host : "0.0.0.0", port);
    return addr_parse(str_of(text), &a, err) ? -1 : sock_listen(&a, err);
}

void door_arm_port(struct door *d, int i)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.ptr = d };

    if (d->listener[i] >= 0 && epoll_ctl(door_place.set, EPOLL_CTL_ADD, d->listener[i], &ev))
        log_warn("cannot wait for a service's port", KV("error", strerrordesc_np(errno)));
}

void door_arm(struct door *d)
{
    d->state = DOOR_WAITING;
    d->armed = true;
    for (int i = 0; i < SERVICE_PORTS; i++)
        door_arm_port(d, i);
}

void door_disarm(struct door *d)
{
    for (int i = 0; i < SERVICE_PORTS && d->armed; i++)
        if (d->listener[i] >= 0)
            epoll_ctl(door_place.set, EPOLL_CTL_DEL, d->listener[i], NULL);
    d->armed = false;
}

bool door_listens(const struct door *d)
{
    for (int i = 0; i < SERVICE_PORTS; i++)
        if (d->listener[i] >= 0)
            return true;
    return false;
}

void door_let_go(struct door *d)
{
    door_disarm(d);
    for (int i = 0; i < SERVICE_PORTS; i++) {
        co_close(TAKE(d->listener[i], -1));
        d->lent[i] = false;
    }
    if (d->state == DOOR_WAITING)
        d->state = DOOR_OFF;
}

static int port_in_force(int fd)
{
    struct addr a = { .len = sizeof(a.sa) };

    /* at the same place for both families */
    return getsockname(fd, (struct sockaddr *)&a.sa, &a.len)
               ? 0
               : ntohs(((const struct sockaddr_in *)(const void *)&a.sa)->sin_port);
}

/* Of "any that is free" the one it became: other services look there for this one. */
static void tell_port(const struct service_port *p, int port)
{
    struct map *env = &door_place.guest->env;
    AUTO(buf_free) struct buf text = { 0 };

    buf_printf(&text, "%d", port);
    for (size_t i = 0; i < env->n; i++)
        if (!strcmp(env->items[i].key, p->port_variable)) {
            free(env->items[i].value);
            env->items[i].value = xstrdup(buf_cstr(&text));
        }
}

int door_hold_port(struct door *d, int i, struct err *err)
{
    const struct service_port *p = &d->service->ports[i];

    d->port[i] = door_port(p);
    d->listener[i] = listen_on(p, d->port[i], err);
    if (d->listener[i] < 0) {
        snprintf(d->error, sizeof(d->error), "%s", err->msg);
        return -1;
    }
    if (!d->port[i]) {
        d->port[i] = port_in_force(d->listener[i]);
        tell_port(p, d->port[i]);
    }
    d->lent[i] = false;
    return 0;
}

int door_hold(struct door *d, struct err *err)
{
    for (int i = 0; i < SERVICE_PORTS && d->service->ports[i].name; i++)
        if (door_hold_port(d, i, err)) {
            door_let_go(d);
            return -1;
        }
    d->error[0] = 0;
    door_arm(d);
    return 0;
}
