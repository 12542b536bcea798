/* netmaker.c - see net.h: the keeper's side of the netmaker, and the process itself.
 *
 * The process lives as long as the keeper's end of its socket, so a killed keeper leaves nothing
 * behind: namespaces on their way die with the socket, and what is shared is removed by whoever is
 * last. Requests are answered in order. What the filter knows of a released sandbox is removed
 * later, when its port is gone, because another keeper may use its number again at once. */
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
#include "jail/net_filter.h"
#include "jail/net_make.h"

enum op { MAKE_NONE, MAKE_OPEN, ADOPT, RELEASE };

struct request {
    enum op op;
    uint32_t index;
};

struct answer {
    uint32_t index;
    enum net_mode mode;
    bool has6, failed;
    struct err err;
};

enum {
    SOCKET = 3,
    STOP_MS = 300,
    SWEEP_MS = 100,
    RELAY_AGAIN_MS = 1000,
    WORD = 64,
};

struct maker {
    const struct net_plan *plan;
    struct net_bridge bridge;
    int host; /* the namespace we come from */
    struct dns_relay relay;
    int64_t relay_at; /* when to start it again */
    uint64_t released[NET_INDEXES / WORD];
    size_t nreleased;
};

/* ---- the process ---- */

static void set_released(struct maker *m, uint32_t index, bool on)
{
    uint64_t bit = (uint64_t)1 << index % WORD, *word = &m->released[index / WORD];

    if (on == !!(*word & bit))
        return;
    *word ^= bit;
    m->nreleased += on ? 1 : (size_t)-1;
}

static void forget_if_gone(struct maker *m, uint32_t index)
{
    char port[IFNAMSIZ];

    net_plan_port(m->plan, index, port);
    if (net_bridge_lock(m->bridge.lock, NET_LOCK_ENTRIES, F_WRLCK, true))
        return;
    if (!if_nametoindex(port)) {
        net_make_forget(&m->bridge, m->plan, index);
        set_released(m, index, false);
    }
    net_bridge_lock(m->bridge.lock, NET_LOCK_ENTRIES, F_UNLCK, false);
}

static void sweep(struct maker *m)
{
    for (uint32_t i = 0; m->nreleased && i < NET_INDEXES; i++)
        if (m->released[i / WORD] & (uint64_t)1 << i % WORD)
            forget_if_gone(m, i);
}

static void start_relay(struct maker *m)
{
    struct err err;

    if (m->relay.pid || clock_ms() < m->relay_at)
        return;
    m->relay_at = clock_ms() + RELAY_AGAIN_MS;
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

static int make_open(struct maker *m, uint32_t index, struct err *err)
{
    int ns;

    if (use_bridge(m, err))
        return -1;
    set_released(m, index, false);
    if (net_bridge_lock(m->bridge.lock, NET_LOCK_ENTRIES, F_WRLCK, true))
        return err_sys(err, "lock the packet filter's entries");
    ns = net_make_open(m->host, &m->bridge, m->plan, index, err);
    net_bridge_lock(m->bridge.lock, NET_LOCK_ENTRIES, F_UNLCK, false);
    return ns;
}

static void answer(struct maker *m, const struct request *r)
{
    struct answer a = { .index = r->index, .mode = r->op == MAKE_OPEN ? NET_OPEN : NET_NONE };
    AUTO(closep)
    int ns = r->op == MAKE_OPEN ? make_open(m, r->index, &a.err) : net_make_none(m->host, &a.err);

    a.failed = ns < 0;
    a.has6 = m->bridge.has6;
    if (fdpass_send(SOCKET, &a, sizeof(a), &ns, a.failed ? 0 : 1, 0) < 0 && errno != EPIPE)
        log_error("a network namespace could not be handed over");
}

static void handle(struct maker *m, const struct request *r)
{
    struct err err;

    if (r->op == MAKE_NONE || r->op == MAKE_OPEN)
        answer(m, r);
    else if (r->op == RELEASE)
        set_released(m, r->index, true);
    else if (use_bridge(m, &err) || net_make_register(&m->bridge, m->plan, r->index, &err))
        log_error("a sandbox was adopted without its network", KVI("index", r->index),
                  KV("error", err.msg));
}

/* False at the end of the keeper. */
static bool next_request(struct maker *m)
{
    struct request r;
    size_t none = 0;
    ssize_t n = fdpass_recv(SOCKET, &r, sizeof(r), NULL, &none, MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN;
    if (n == sizeof(r) && r.index < NET_INDEXES)
        handle(m, &r);
    return n > 0;
}

static void serve(struct maker *m)
{
    int64_t sweep_at = NEVER;

    for (;;) {
        struct pollfd p[] = { { .fd = SOCKET, .events = POLLIN },
                              { .fd = m->relay.pid ? m->relay.pidfd : -1, .events = POLLIN } };
        int64_t now = clock_ms(), until = sweep_at;

        if (m->bridge.in_use && !m->relay.pid)
            until = MIN(until, m->relay_at);
        if (poll(p, ARRAY_LEN(p), until == NEVER ? -1 : (int)MAX(until - now, 0)) < 0 &&
            errno != EINTR)
            return;
        if (p[1].revents)
            dns_relay_reap(&m->relay);
        if (p[0].revents && !next_request(m))
            return;
        if (m->bridge.in_use)
            start_relay(m);
        if (clock_ms() >= sweep_at)
            sweep(m);
        if (!m->nreleased || !m->bridge.in_use)
            sweep_at = NEVER;
        else if (clock_ms() >= sweep_at || sweep_at == NEVER)
            sweep_at = clock_ms() + SWEEP_MS;
    }
}

_Noreturn static void run(const struct net_plan *plan, int sock)
{
    static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2 };
    struct maker m = { .plan = plan };
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
    if (m.bridge.in_use)
        sweep(&m);
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
    if (m->pid < 0) {
        err_sys(err, "start the network maker");
        netmaker_stop(m);
        return -1;
    }
    m->pidfd = (int)syscall(SYS_pidfd_open, m->pid, 0);
    return 0;
}

static int send_request(struct netmaker *m, enum op op, uint32_t index)
{
    const struct request r = { op, index };

    return fdpass_send(m->fd, &r, sizeof(r), NULL, 0, MSG_DONTWAIT) < 0 ? -1 : 0;
}

int netmaker_ask(struct netmaker *m, enum net_mode mode, uint32_t index, struct err *err)
{
    if (index >= NET_INDEXES)
        return err_set(err, ERR_INVALID, "sandbox number %u is beyond %d", index, NET_INDEXES - 1);
    if (!send_request(m, mode == NET_OPEN ? MAKE_OPEN : MAKE_NONE, index))
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
    if (!nfds) {
        *err = a.err;
        return -1;
    }
    return 0;
}

int netmaker_adopt(struct netmaker *m, int ns, enum net_mode mode, uint32_t index,
                   struct net_slot *out, struct err *err)
{
    const struct answer a = { .index = index, .mode = mode };

    if (index >= NET_INDEXES)
        return err_set(err, ERR_INVALID, "sandbox number %u is beyond %d", index, NET_INDEXES - 1);
    if (mode == NET_OPEN && send_request(m, ADOPT, index))
        return err_sys(err, "tell the network maker of sandbox %u", index);
    fill(m, &a, ns, out);
    return 0;
}

void netmaker_stop(struct netmaker *m)
{
    struct pollfd p = { .fd = m->pidfd, .events = POLLIN };

    closep(&m->fd);
    if (m->pid > 0) {
        if (m->pidfd >= 0)
            poll(&p, 1, STOP_MS);
        waitpid(m->pid, NULL, WNOHANG);
    }
    closep(&m->pidfd);
    m->fd = m->pidfd = -1;
    m->pid = 0;
}

void net_slot_release(struct net_slot *s)
{
    closep(&s->ns);
    s->ns = -1;
    /* A maker that does not hear it leaves an entry that no port can use. */
    if (s->mode == NET_OPEN && s->maker && s->maker->fd >= 0)
        send_request(s->maker, RELEASE, s->index);
    s->maker = NULL;
}
