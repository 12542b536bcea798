/* loop.c - see loop.h. */
#include "keep/loop.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

int loop_open(struct loop *l, struct err *err)
{
    *l = (struct loop){ .epoll = epoll_create1(EPOLL_CLOEXEC) };
    return l->epoll < 0 ? err_sys(err, "epoll") : 0;
}

void loop_close(struct loop *l)
{
    if (l->epoll >= 0)
        close(l->epoll);
    l->epoll = -1;
}

int loop_add(struct loop *l, struct source *s, uint32_t events, struct err *err)
{
    struct epoll_event e = { .events = events, .data.ptr = s };

    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, s->fd, &e))
        return err_sys(err, "watch a descriptor");
    return 0;
}

void loop_remove(struct loop *l, struct source *s)
{
    if (s->fd < 0)
        return;
    epoll_ctl(l->epoll, EPOLL_CTL_DEL, s->fd, NULL);
    for (int i = 0; i < l->nbatch; i++)
        if (l->batch[i] == s)
            l->batch[i] = NULL;
}

int loop_turn(struct loop *l, int timeout_ms, struct err *err)
{
    struct epoll_event e[ARRAY_LEN(l->batch)];
    int n = epoll_wait(l->epoll, e, ARRAY_LEN(e), timeout_ms);

    if (n < 0)
        return errno == EINTR ? 0 : err_sys(err, "epoll_wait");
    for (int i = 0; i < n; i++)
        l->batch[i] = e[i].data.ptr;
    l->nbatch = n;
    for (int i = 0; i < n; i++)
        if (l->batch[i])
            l->batch[i]->ready(l->batch[i]);
    l->nbatch = 0;
    return 0;
}
