/* netmaker.c - see net.h: the keeper's side of the netmaker, and the process itself.
 *
 * The process lives as long as the keeper's end of its socket, so a killed keeper leaves nothing
 * behind: namespaces on their way die with the socket, and what is shared is removed by whoever is
 * last. Requests are answered in order.
 *
 * A released sandbox's connections may close in peace: its port is looked at now and then, and what
 * the filter knows of it forgotten when it is gone. After two seconds the port is deleted (15 ms,
 * which is why it is the exception). Another keeper may use the number again meanwhile: then the
 * port of that name is not the one that was released, and left alone.
 *
 * Namespaces of ended sandboxes are let go many at once: each group costs the kernel the same dozen
 * grace periods that a single one does, and for each port that goes down alone it walks the whole
 * table of connections, 2 ms, but sixteen times at most for those that go together. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/fdpass.h"
#include "jail/dns_relay.h"
#include "jail/net.h"
#include "jail/net_element.h"
#include "jail/net_link.h"
#include "jail/net_make.h"

enum op { MAKE_NONE, MAKE_OPEN, ADOPT, RELEASE };

struct request { /* a release carries the namespace */
    enum op op;
    uint32_t index;
    unsigned link;
};

struct answer {
    uint32_t index;
    unsigned link;
    enum net_mode mode;
    bool has6, failed;
    struct err err;
};

enum {
    SOCKET = 3,
    STOP_MS = 300,
    SWEEP_MS = 100,
    STEP_MS = 10,
    LINGER_MS = 2000,
    AGAIN_MS = 1000,
    QUEUE_BYTES = 4 << 20,
    HELD_MAX = 64,
    HELD_MS = 300,
    FULL_TRIES = 20,
};

struct released {
    uint32_t index;
    unsigned link;
    int ns;        /* owned, until it is let go with the others; -1: it was */
    int64_t until; /* then its port is deleted */
};

struct maker {
    const struct net_plan *plan;
    struct net_bridge bridge;
    int host; /* the namespace we come from */
    struct dns_relay relay;
    int64_t relay_at;          /* when to start it again */
    int64_t repair_at;         /* when to repair the bridge; NEVER: it is whole */
    struct released *released; /* owned */
    size_t nreleased, cap;
    size_t nheld;      /* of them, those with a namespace */
    int64_t let_go_at; /* when they go at the latest; NEVER: there are none */
};

/* ---- the process ---- */

/* True when there is nothing left to do for it. */
static bool finish_release(struct maker *m, const struct released *r, bool now)
{
    unsigned link;
    bool gone;
    char port[IFNAMSIZ];

    net_plan_port(m->plan, r->index, port);
    if (net_bridge_lock(m->bridge.lock, NET_LOCK_ENTRIES, F_WRLCK, true))
        return true;
    link = if_nametoindex(port);
    if (link == r->link && now)
        net_link_delete(&m->bridge.route, link);
    gone = !link || (link == r->link && now);
    if (gone)
        net_bridge_forget(&m->bridge, m->plan, r->index);
    net_bridge_lock(m->bridge.lock, NET_LOCK_ENTRIES, F_UNLCK, false);
    return gone || link != r->link;
}

static void let_go(struct maker *m)
{
    for (size_t i = 0; i < m->nreleased; i++) {
        int ns = TAKE(m->released[i].ns, -1);

        closep(&ns);
    }
    m->nheld = 0;
    m->let_go_at = NEVER;
}

/* index: this one now, whether its time has come or not; NET_INDEXES: all of them. */
static void sweep(struct maker *m, uint32_t index)
{
    size_t kept = 0;

    for (size_t i = 0; i < m->nreleased; i++) {
        const struct released r = m->released[i];
        bool now = r.until <= clock_ms() || r.index == index || index == NET_INDEXES;

        if (r.ns >= 0 || !finish_release(m, &r, now))
            m->released[kept++] = r;
    }
    m->nreleased = kept;
}

static void release(struct maker *m, const struct request *r, int *ns)
{
    if (!m->bridge.in_use)
        return;
    if (*ns >= 0) {
        net_make_wind_up(m->host, *ns);
        m->let_go_at = MIN(m->let_go_at, clock_ms() + HELD_MS);
        m->nheld++;
    }
    if (m->nreleased == m->cap) {
        m->cap = m->cap ? m->cap * 2 : 64;
        m->released = xrealloc(m->released, m->cap * sizeof(*m->released));
    }
    m->released[m->nreleased++] =
        (struct released){ r->index, r->link, TAKE(*ns, -1), clock_ms() + LINGER_MS };
    if (m->nheld >= HELD_MAX)
        let_go(m);
}

static void start_relay(struct maker *m)
{
    struct err err;

    if (m->relay.pid || clock_ms() < m->relay_at)
        return;
    m->relay_at = clock_ms() + AGAIN_MS;
    if (dns_relay_start(&m->relay, m->plan, &err))
        log_error("sandboxes have no name server", KV("error", err.msg));
}

static int use_bridge(struct maker *m, struct err *err)
{
    if (net_bridge_use(&m->bridge, m->plan, err))
        return err_in(err, "network 'open'");
    start_relay(m);
    return 0;
}

static int wire(struct maker *m, uint32_t index, struct err *err)
{
    int ns;

    if (net_bridge_lock(m->bridge.lock, NET_LOCK_ENTRIES, F_WRLCK, true))
        return err_sys(err, "lock the packet filter's entries");
    ns = net_make_open(m->host, &m->bridge, m->plan, index, err);
    net_bridge_lock(m->bridge.lock, NET_LOCK_ENTRIES, F_UNLCK, false);
    return ns;
}

static int make_open(struct maker *m, uint32_t index, struct err *err)
{
    bool holding;
    int ns;

    if (use_bridge(m, err))
        return -1;
    for (size_t i = 0; i < m->nreleased; i++)
        if (m->released[i].index == index) {
            let_go(m);
            sweep(m, index);
            break;
        }
    holding = m->nheld;
    ns = wire(m, index, err);
    /* full, perhaps only of what we hold: that is gone in a moment */
    for (int i = 0; ns < 0 && err->code == ERR_LIMIT && holding && i < FULL_TRIES; i++) {
        let_go(m);
        usleep(STEP_MS * 1000);
        ns = wire(m, index, err);
    }
    return ns;
}

/* It was made and cannot be handed over (too many descriptors are on their way). Whoever waits must
 * hear that; if even that fails, our end tells it. */
static void confess(struct answer *a)
{
    err_sys(&a->err, "hand over a network namespace");
    a->failed = true;
    if (fdpass_send(SOCKET, a, sizeof(*a), NULL, 0, 0) < 0) {
        if (errno == EPIPE || errno == ECONNRESET)
            return; /* nobody waits any more: we end in order */
        log_error("the network maker cannot answer", KV("error", a->err.msg));
        _exit(1);
    }
}

static void answer(struct maker *m, const struct request *r)
{
    struct answer a = { .index = r->index, .mode = r->op == MAKE_OPEN ? NET_OPEN : NET_NONE };
    AUTO(closep)
    int ns = r->op == MAKE_OPEN ? make_open(m, r->index, &a.err) : net_make_none(m->host, &a.err);

    a.failed = ns < 0;
    if (a.mode == NET_OPEN && ns >= 0) {
        char port[IFNAMSIZ];

        net_plan_port(m->plan, r->index, port);
        a.link = if_nametoindex(port);
    }
    a.has6 = m->bridge.has6;
    if (fdpass_send(SOCKET, &a, sizeof(a), &ns, a.failed ? 0 : 1, 0) >= 0)
        return;
    if (a.mode == NET_OPEN && ns >= 0)
        release(m, &(struct request){ RELEASE, a.index, a.link }, &ns);
    confess(&a);
}

static void handle(struct maker *m, const struct request *r, int *ns)
{
    struct err err;

    if (r->op == MAKE_NONE || r->op == MAKE_OPEN)
        answer(m, r);
    else if (r->op == RELEASE)
        release(m, r, ns);
    else if (use_bridge(m, &err) || net_bridge_admit(&m->bridge, m->plan, r->index, &err))
        log_error("a sandbox was adopted without its network", KVI("index", r->index),
                  KV("error", err.msg));
}

/* False at the end of the keeper. */
static bool next_request(struct maker *m)
{
    AUTO(closep) int ns = -1;
    struct request r;
    size_t nfds = 1;
    ssize_t n = fdpass_recv(SOCKET, &r, sizeof(r), &ns, &nfds, MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN;
    if (n == sizeof(r) && r.index < NET_INDEXES)
        handle(m, &r, &ns);
    return n > 0;
}

static void repair(struct maker *m)
{
    struct err err;
    int r = net_bridge_repair(&m->bridge, m->plan, &err);

    m->repair_at = r < 0 ? clock_ms() + AGAIN_MS : NEVER;
    if (r < 0)
        log_error("the packet filter of sandboxes is gone, and so is their network",
                  KV("error", err.msg));
    else if (r)
        log_warn("the packet filter of sandboxes was removed by somebody, and is loaded again");
}

static void serve(struct maker *m)
{
    int64_t sweep_at = NEVER;

    for (;;) {
        const struct net_bridge *b = &m->bridge;
        struct pollfd p[] = { { .fd = SOCKET, .events = POLLIN },
                              { .fd = m->relay.pid ? m->relay.pidfd : -1, .events = POLLIN },
                              { .fd = b->in_use ? mnl_socket_get_fd(b->watch.sock) : -1,
                                .events = POLLIN },
                              { .fd = m->relay.pid ? m->relay.line : -1, .events = POLLIN } };
        int64_t now = clock_ms(), first = MIN(sweep_at, m->repair_at);
        int64_t until = MIN(first, m->let_go_at);

        if (b->in_use && !m->relay.pid)
            until = MIN(until, m->relay_at);
        if (poll(p, ARRAY_LEN(p), until == NEVER ? -1 : (int)MAX(until - now, 0)) < 0 &&
            errno != EINTR)
            return;
        if ((p[2].revents && net_element_lost(&m->bridge.watch, m->plan)) ||
            clock_ms() >= m->repair_at)
            repair(m);
        if (p[1].revents)
            dns_relay_reap(&m->relay);
        else if (p[3].revents && dns_relay_answer(&m->relay, m->plan))
            dns_relay_stop(&m->relay);
        if (p[0].revents && !next_request(m))
            return;
        if (m->bridge.in_use)
            start_relay(m);
        if (clock_ms() >= m->let_go_at)
            let_go(m);
        if (clock_ms() >= sweep_at)
            sweep(m, UINT32_MAX);
        if (m->nreleased == m->nheld)
            sweep_at = NEVER;
        else if (clock_ms() >= sweep_at || sweep_at == NEVER)
            sweep_at = clock_ms() + SWEEP_MS;
    }
}

_Noreturn static void run(const struct net_plan *plan, int sock)
{
    static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2 };
    struct maker m = { .plan = plan, .repair_at = NEVER, .let_go_at = NEVER };
    sigset_t none;

    prctl(PR_SET_NAME, "cove-net");
    /* A signal to the keeper's group is not the end of the keeper: that is the end of the socket.
     */
    for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
        signal(ignored[i], SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if ((sock != SOCKET && dup2(sock, SOCKET) < 0) || close_range(SOCKET + 1, ~0u, 0) ||
        fcntl(SOCKET, F_SETFD, FD_CLOEXEC) || chdir("/"))
        _exit(1);
    m.host = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (m.host < 0) {
        log_error("the network maker needs /proc");
        _exit(1);
    }
    serve(&m);
    let_go(&m);
    for (int i = 0; m.nreleased && i < STOP_MS / 2 / STEP_MS; i++) { /* together they go faster */
        usleep(STEP_MS * 1000);
        sweep(&m, UINT32_MAX);
    }
    sweep(&m, NET_INDEXES);
    free(m.released);
    dns_relay_stop(&m.relay);
    net_bridge_leave(&m.bridge, plan);
    _exit(0);
}

/* ---- the keeper's side ---- */

int netmaker_start(struct netmaker *m, const struct net_options *o, struct err *err)
{
    int pair[2];

    *m = (struct netmaker){ .fd = -1, .pidfd = -1 };
    if (net_plan_init(&m->plan, o, err))
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return err_sys(err, "a socket for the network maker");
    m->pid = fork();
    if (!m->pid) {
        close(pair[0]); /* the end of the keeper must be seen, so nobody else may hold its side */
        run(&m->plan, pair[1]);
    }
    close(pair[1]);
    m->fd = pair[0];
    /* Room for some thousand requests: releasing many sandboxes must not stand in the way. */
    setsockopt(m->fd, SOL_SOCKET, SO_SNDBUFFORCE, &(int){ QUEUE_BYTES }, sizeof(int));
    if (m->pid < 0) {
        err_sys(err, "start the network maker");
        netmaker_stop(m);
        return -1;
    }
    m->pidfd = (int)syscall(SYS_pidfd_open, m->pid, 0);
    return 0;
}

static int send_request(struct netmaker *m, const struct request *r, int ns)
{
    return fdpass_send(m->fd, r, sizeof(*r), &ns, ns < 0 ? 0 : 1, MSG_DONTWAIT) < 0 ? -1 : 0;
}

int netmaker_ask(struct netmaker *m, enum net_mode mode, uint32_t index, struct err *err)
{
    if (index >= NET_INDEXES)
        return err_set(err, ERR_INVALID, "sandbox number %u is beyond %d", index, NET_INDEXES - 1);
    if (!send_request(m, &(struct request){ mode == NET_OPEN ? MAKE_OPEN : MAKE_NONE, index, 0 },
                      -1))
        return 0;
    if (errno == EAGAIN)
        return err_set(err, ERR_LIMIT, "too many network namespaces are being made");
    return err_set(err, ERR_GONE, "the network maker has ended");
}

static void fill(struct netmaker *m, const struct answer *a, int ns, struct net_slot *out)
{
    *out = (struct net_slot){ .ns = ns, .mode = a->mode, .index = a->index, .maker = m };
    if (a->mode != NET_OPEN)
        return;
    out->address = net_plan_address(&m->plan, a->index).v4.s_addr;
    out->gateway = m->plan.gateway.v4.s_addr;
    out->address6 = net_plan_address6(&m->plan, a->index).v6;
    out->has6 = a->has6;
    out->link = a->link;
    net_plan_port(&m->plan, a->index, out->port);
}

int netmaker_take(struct netmaker *m, struct net_slot *out, struct err *err)
{
    struct answer a;
    int ns = -1;
    size_t nfds = 1;
    ssize_t n = fdpass_recv(m->fd, &a, sizeof(a), &ns, &nfds, MSG_DONTWAIT);

    *out = (struct net_slot){ .ns = -1, .index = UINT32_MAX };
    if (n < 0 && errno == EAGAIN)
        return 1;
    if (n != sizeof(a))
        return err_set(err, ERR_GONE, "the network maker has ended");
    fill(m, &a, nfds ? ns : -1, out);
    if (nfds)
        return 0;
    *err = a.err;
    if (a.failed)
        return -1;
    /* made, and lost on its way to us */
    if (a.mode == NET_OPEN)
        send_request(m, &(struct request){ RELEASE, a.index, a.link }, -1);
    return err_set(err, ERR_LIMIT, "too many open files for a network namespace to be taken");
}

int netmaker_adopt(struct netmaker *m, int ns, enum net_mode mode, uint32_t index,
                   struct net_slot *out, struct err *err)
{
    const struct answer a = { .index = index, .mode = mode };

    if (index >= NET_INDEXES)
        return err_set(err, ERR_INVALID, "sandbox number %u is beyond %d", index, NET_INDEXES - 1);
    if (mode == NET_OPEN && send_request(m, &(struct request){ ADOPT, index, 0 }, -1))
        return err_set(err, ERR_GONE, "the network maker has ended");
    fill(m, &a, ns, out);
    out->link = if_nametoindex(out->port);
    return 0;
}

/* What it made and nobody took is released; what it makes from here on it cannot send. */
void netmaker_hang_up(struct netmaker *m)
{
    struct net_slot unused;
    struct err err;

    if (m->fd < 0)
        return;
    shutdown(m->fd, SHUT_RD);
    for (int r = 0; r != 1 && (r >= 0 || err.code != ERR_GONE);) {
        r = netmaker_take(m, &unused, &err);
        if (!r)
            net_slot_release(&unused);
    }
    closep(&m->fd);
    m->fd = -1;
}

void netmaker_stop(struct netmaker *m)
{
    struct pollfd p = { .fd = m->pidfd, .events = POLLIN };

    netmaker_hang_up(m);
    if (m->pid > 0) {
        if (m->pidfd >= 0)
            poll(&p, 1, STOP_MS);
        waitpid(m->pid, NULL, WNOHANG);
    }
    closep(&m->pidfd);
    m->pidfd = -1;
    m->pid = 0;
}

void net_slot_release(struct net_slot *s)
{
    const struct request r = { RELEASE, s->index, s->link };

    /* A maker that does not hear it leaves an entry that no other port can use. */
    if (s->mode == NET_OPEN && s->maker && s->maker->fd >= 0 && send_request(s->maker, &r, s->ns) &&
        errno == ETOOMANYREFS)
        send_request(s->maker, &r, -1);
    closep(&s->ns);
    s->ns = -1;
    s->maker = NULL;
}
