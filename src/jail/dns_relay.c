/* dns_relay.c - see dns_relay.h: the process around dns_serve.c.
 *
 * It has its walls before it reads the first byte of a stranger's, and before it waits for its
 * turn: nobody, without a capability or a way to gain one, in an empty root, with the system calls
 * of somebody who has sockets. What needs more it asks its parent for, over a line: its ports, and
 * what the host's resolv.conf says. */
#include "jail/dns_relay.h"

#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/fdpass.h"
#include "jail/dns_serve.h"
#include "jail/net_bridge.h"
#include "jail/oom.h"
#include "jail/walls.h"
#include "jail/weaken.h"

enum {
    NOBODY = 65534,
    LINE = 3,        /* its descriptor for its parent */
    READY_MS = 2000, /* longer than it tries to bind */
    BIND_TRIES = 40,
    BIND_WAIT_US = 25000,
    RESOLV_MAX = 64 << 10,
    SAID_MS = 1000, /* in which a relay has no reason to ask ... */
    SAID_MAX = 100, /* ... more often */
    SAYS_WAITING = 'w',
};

const struct setting dns_settings[] = {
    { "dns.queries-per-s", &dns_bounds.queries_per_s, 1, 1000,
      "name server queries a second of one sandbox, in the long run" },
    { "dns.burst", &dns_bounds.burst, 1, 2000, "name server queries of one sandbox at once" },
    { "dns.in-flight", &dns_bounds.in_flight, 1, DNS_IN_FLIGHT_MAX,
      "name server queries of all sandboxes that wait for an answer" },
    { "dns.in-flight-per-source", &dns_bounds.in_flight_per_source, 1, DNS_IN_FLIGHT_MAX,
      "the same, of one sandbox" },
    { "dns.connections", &dns_bounds.connections, 1, DNS_CONNECTIONS_MAX,
      "name server connections (TCP) of all sandboxes" },
    { "dns.connections-per-source", &dns_bounds.connections_per_source, 1, DNS_CONNECTIONS_MAX,
      "the same, of one sandbox" },
    { "dns.timeout-ms", &dns_bounds.timeout_ms, 1, 60000,
      "milliseconds until a name server query has failed" },
    { NULL },
};

/* ---- the parent: what the relay may not do itself ---- */

static int bind_port(const struct net_plan *p, int type)
{
    AUTO(closep) int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons(53),
                             .sin_addr = p->gateway.v4 };
    int one = 1;

    if (fd < 0)
        return -1;
    if (type == SOCK_STREAM) /* over connections of the relay before us, which are just ending */
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (const struct sockaddr *)&a, sizeof(a)) ||
        (type == SOCK_STREAM && listen(fd, 128)))
        return -1;
    return TAKE(fd, -1);
}

static void read_servers(const struct net_plan *p, struct dns_servers *out)
{
    AUTO(closep) int fd = open(p->resolv_conf, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    AUTO(freep) char *text = xmalloc(RESOLV_MAX);
    ssize_t n = fd < 0 ? 0 : read(fd, text, RESOLV_MAX);

    out->n = dns_message_servers((struct str){ text, n > 0 ? (size_t)n : 0 }, p->gateway.v4.s_addr,
                                 out->item);
}

/* It never waits for the relay: who does not read misses an answer. */
static int answer(const struct dns_relay *r, const struct net_plan *p, bool ports)
{
    AUTO(closep) int udp = ports ? bind_port(p, SOCK_DGRAM) : -1;
    AUTO(closep) int tcp = udp < 0 ? -1 : bind_port(p, SOCK_STREAM);
    struct dns_answer a = { .error = ports && tcp < 0 ? errno : 0 };
    size_t nfds = tcp < 0 ? 0 : 2;

    read_servers(p, &a.servers);
    if (fdpass_send(r->line, &a, sizeof(a), (const int[]){ udp, tcp }, nfds,
                    MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        log_debug("the name server relay missed an answer");
    return a.error ? 0 : ports;
}

/* The relay may be a stranger's by now: it gets what it had already, and not without end. */
static bool too_often(struct dns_relay *r)
{
    int64_t now = clock_ms();

    if (now - r->from >= SAID_MS) {
        r->from = now;
        r->said = 0;
    }
    return ++r->said > SAID_MAX;
}

/* One word of it. 1: it has what it needs, or waits for another's end. 0: it does not yet. */
static int hear(struct dns_relay *r, const struct net_plan *p)
{
    char word;
    ssize_t n = recv(r->line, &word, sizeof(word), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n != sizeof(word))
        return -1;
    if (too_often(r)) {
        log_error("the name server relay asks as no relay does, and is ended");
        return -1;
    }
    switch (word) {
    case SAYS_WAITING: return 1;
    case DNS_ASK_PORTS: return answer(r, p, true);
    case DNS_ASK_SERVERS: return answer(r, p, false);
    default: return -1;
    }
}

int dns_relay_answer(struct dns_relay *r, const struct net_plan *p)
{
    return hear(r, p) < 0 ? -1 : 0;
}

/* ---- the relay ---- */

static void say(char word)
{
    if (send(LINE, &word, 1, MSG_NOSIGNAL) != 1)
        _exit(1);
}

/* One of an earlier release gives up its lock and its ports in no certain order. */
static int take_ports(struct dns_serve *s, struct err *err)
{
    struct dns_answer a = { .error = EADDRINUSE };

    for (int i = 0; i < BIND_TRIES && a.error == EADDRINUSE; i++) {
        int fds[2] = { -1, -1 };
        size_t n = ARRAY_LEN(fds);

        if (i)
            usleep(BIND_WAIT_US);
        say(DNS_ASK_PORTS);
        if (fdpass_recv(LINE, &a, sizeof(a), fds, &n, 0) != sizeof(a))
            _exit(0); /* the parent has died */
        if (n != ARRAY_LEN(fds))
            continue;
        s->udp = fds[0];
        s->tcp = fds[1];
        s->servers = a.servers;
        return 0;
    }
    errno = a.error ? a.error : EMFILE; /* answered, without its sockets */
    return err_sys(err,
                   "bind port 53 of the bridge (does another name server listen on all addresses "
                   "of this host?)");
}

/* No more than this; what the host allows may be less. */
static void limit(int what, rlim_t value)
{
    struct rlimit l;

    if (getrlimit(what, &l))
        return;
    l.rlim_cur = l.rlim_max = MIN(value, l.rlim_max);
    setrlimit(what, &l);
}

static void die_with(pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        _exit(0);
}

/* Sockets of two families, and nothing that has a name. */
static int load_filter(struct err *err)
{
    static const unsigned allowed[] = {
        __NR_read,
        __NR_write,
        __NR_readv,
        __NR_writev,
        __NR_close,
        __NR_fcntl, /* the lock */
        __NR_accept4,
        __NR_connect,
        __NR_getsockname,
        __NR_getpeername,
        __NR_getsockopt,
        __NR_setsockopt,
        __NR_shutdown,
        __NR_sendto,
        __NR_recvfrom,
        __NR_sendmsg,
        __NR_recvmsg,
        __NR_epoll_create1,
        __NR_epoll_ctl,
        __NR_epoll_pwait,
        __NR_ppoll,
        __NR_eventfd2,
        __NR_nanosleep,
        __NR_clock_nanosleep,
        __NR_clock_gettime,
        __NR_gettimeofday,
        __NR_brk,
        __NR_munmap,
        __NR_mremap,
        __NR_madvise,
        __NR_futex,
        __NR_set_robust_list,
        __NR_rseq,
        __NR_sched_yield,
        __NR_gettid,
        __NR_getpid,
        __NR_exit,
        __NR_exit_group,
        __NR_rt_sigaction,
        __NR_rt_sigprocmask,
        __NR_rt_sigreturn,
        __NR_sigaltstack,
        __NR_restart_syscall,
        __NR_getrandom,
#ifdef __x86_64__ /* the old names that libraries still use */
        __NR_epoll_wait,
        __NR_poll,
        __NR_time,
#endif
    };
    static const unsigned families[] = { AF_INET, AF_INET6 };
    const unsigned self[] = { (unsigned)getpid() };
    static struct walls_filter f;

    walls_filter_begin(&f);
    walls_filter_allow(&f, allowed, ARRAY_LEN(allowed));
    walls_filter_values(&f, __NR_socket, 0, families, ARRAY_LEN(families), EAFNOSUPPORT);
    walls_filter_values(&f, __NR_tgkill, 0, self, ARRAY_LEN(self), EPERM); /* abort() */
    walls_filter_memory(&f);
    walls_filter_threads(&f);
    return walls_filter_load(&f, err);
}

/* It reads nothing, and prints nothing but what is logged. */
static int leave_terminal(struct err *err)
{
    AUTO(closep) int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    return null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 ? err_sys(err, "open /dev/null") : 0;
}

/* Before the first byte of a stranger's is read, and before it waits for anything. */
static int confine(pid_t parent, struct err *err)
{
    if (weakened("relay"))
        return 0;
    if (leave_terminal(err))
        return -1;
    oom_expose(); /* it hears strangers, and is started again */
    /* An answer on its way over TCP has two descriptors, over UDP one. */
    limit(RLIMIT_NOFILE, (rlim_t)(dns_bounds.in_flight + 2 * dns_bounds.connections) + 64);
    limit(RLIMIT_CORE, 0);
    if (!WALLS_SANITIZED && (walls_root_begin(err) || walls_root_enter(err)))
        return -1;
    if (walls_become(NOBODY, NOBODY, err))
        return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_DUMPABLE, 0))
        return err_sys(err, "give up privileges");
    die_with(parent); /* a change of ids forgets it */
    return load_filter(err);
}

static int wait_and_serve(const struct net_plan *p, pid_t parent, struct err *err)
{
    struct dns_serve s = { .line = LINE, .subnet = ntohl(p->subnet.ip.v4.s_addr) };
    int lock = net_bridge_open_lock(p, err); /* our own: the parent's would be shared */
    bool first;

    if (lock < 0)
        return -1;
    first = !net_bridge_lock(lock, NET_LOCK_RELAY, F_WRLCK, false);
    if (!first)
        say(SAYS_WAITING);
    else if (take_ports(&s, err))
        return -1;
    if (confine(parent, err))
        return -1;
    if (!first && net_bridge_lock(lock, NET_LOCK_RELAY, F_WRLCK, true))
        return err_sys(err, "wait for the relay of another keeper");
    if (!first && take_ports(&s, err))
        return -1;
    /* A process that ends closes by number, up or down, and may be put aside on the way: held below
     * and above the ports, the lock goes after them. */
    if (fcntl(lock, F_DUPFD_CLOEXEC, 0) < 0)
        return err_sys(err, "hold the lock");
    dns_serve(&s);
    return err_set(err, ERR_INTERNAL, "it cannot begin");
}

_Noreturn static void run(const struct net_plan *p, pid_t parent)
{
    struct err err = { 0 };

    prctl(PR_SET_NAME, "cove-dns");
    die_with(parent);
    if (close_range(LINE + 1, ~0u, 0))
        _exit(1);
    signal(SIGTERM, SIG_DFL);
    wait_and_serve(p, parent, &err);
    log_error("the name server relay ends", KV("bridge", p->bridge), KV("error", err.msg));
    _exit(1);
}

/* ---- its life ---- */

/* Until it answers, or waits for another's end. */
static int await(struct dns_relay *r, const struct net_plan *p)
{
    struct pollfd line = { .fd = r->line, .events = POLLIN };
    int64_t until = clock_ms() + READY_MS;
    int got = 0;

    while (!got && clock_ms() < until)
        if (poll(&line, 1, (int)MAX(until - clock_ms(), 0)) == 1)
            got = hear(r, p);
    return got > 0 ? 0 : -1;
}

int dns_relay_start(struct dns_relay *r, const struct net_plan *p, struct err *err)
{
    pid_t parent = getpid(), pid;
    int line[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line))
        return err_sys(err, "a line to the name server relay");
    pid = fork();
    if (!pid) {
        if (line[1] != LINE && dup2(line[1], LINE) < 0)
            _exit(1);
        run(p, parent);
    }
    close(line[1]);
    if (pid < 0) {
        close(line[0]);
        return err_sys(err, "start the name server relay");
    }
    *r = (struct dns_relay){ .pid = pid,
                             .pidfd = (int)syscall(SYS_pidfd_open, pid, 0),
                             .line = line[0] };
    if (!await(r, p))
        return 0;
    dns_relay_stop(r);
    return err_set(err, ERR_UNAVAILABLE, "the name server relay does not start");
}

void dns_relay_reap(struct dns_relay *r)
{
    if (!r->pid)
        return;
    waitpid(r->pid, NULL, 0);
    closep(&r->pidfd);
    closep(&r->line);
    *r = (struct dns_relay){ 0 };
}

void dns_relay_stop(struct dns_relay *r)
{
    if (!r->pid)
        return;
    kill(r->pid, SIGKILL);
    dns_relay_reap(r);
}
