/* dns_relay.c - see dns_relay.h: the process around dns_serve.c.
 *
 * It binds the ports as root, then becomes nobody: no capability, no way to gain one, as many
 * descriptors as its bounds allow. */
#include "jail/dns_relay.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "jail/dns_serve.h"
#include "jail/net_bridge.h"

enum { NOBODY = 65534, READY_MS = 1000, BIND_TRIES = 40, BIND_WAIT_US = 25000, READY = 3 };

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

static int bind_once(const struct net_plan *p, int type)
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

/* One of an earlier release gives up its lock and its ports in no certain order. */
static int bind_port(const struct net_plan *p, int type)
{
    for (int i = 0; i < BIND_TRIES; i++) {
        int fd = bind_once(p, type);

        if (fd >= 0 || errno != EADDRINUSE)
            return fd;
        usleep(BIND_WAIT_US);
    }
    return -1;
}

static void say(char state)
{
    if (write(READY, &state, 1) != 1)
        _exit(1);
    close(READY);
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

static void become_nobody(void)
{
    /* An answer on its way over TCP has two descriptors, over UDP one. */
    limit(RLIMIT_NOFILE, (rlim_t)(dns_bounds.in_flight + 2 * dns_bounds.connections) + 64);
    limit(RLIMIT_CORE, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || setgroups(0, NULL) ||
        setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY) ||
        prctl(PR_SET_DUMPABLE, 0))
        _exit(1);
}

static void die_with(pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        _exit(0);
}

_Noreturn static void run(const struct net_plan *p, pid_t parent)
{
    struct dns_serve s = { .subnet = ntohl(p->subnet.ip.v4.s_addr),
                           .own = p->gateway.v4.s_addr,
                           .resolv_conf = p->resolv_conf };
    struct err err = { 0 };
    bool first;
    int lock;

    prctl(PR_SET_NAME, "cove-dns");
    die_with(parent);
    if (close_range(READY + 1, ~0u, 0))
        _exit(1);
    signal(SIGTERM, SIG_DFL);
    lock = net_bridge_open_lock(p, &err); /* our own: the parent's would be shared */
    if (lock < 0)
        _exit(1);
    first = !net_bridge_lock(lock, NET_LOCK_RELAY, F_WRLCK, false);
    if (!first) {
        say('w');
        if (net_bridge_lock(lock, NET_LOCK_RELAY, F_WRLCK, true))
            _exit(1);
    }
    s.udp = bind_port(p, SOCK_DGRAM);
    s.tcp = s.udp < 0 ? -1 : bind_port(p, SOCK_STREAM);
    if (s.tcp < 0) {
        err_sys(&err,
                "bind port 53 of the bridge %s (does another name server listen on all "
                "addresses of this host?)",
                p->bridge);
        log_error("the name server relay ends", KV("error", err.msg));
        _exit(1);
    }
    /* A process that ends closes by number, up or down, and may be put aside on the way: held below
     * and above the ports, the lock goes after them. */
    if (fcntl(lock, F_DUPFD_CLOEXEC, 0) < 0)
        _exit(1);
    become_nobody();
    die_with(parent); /* a change of ids forgets it */
    if (first)
        say('r');
    dns_serve(&s);
    _exit(1);
}

/* Waits for one byte: 'r' ready, 'w' waiting for another's end. */
static int await(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    char state;

    return poll(&p, 1, READY_MS) == 1 && read(fd, &state, 1) == 1 ? 0 : -1;
}

int dns_relay_start(struct dns_relay *r, const struct net_plan *p, struct err *err)
{
    pid_t parent = getpid(), pid;
    int ready[2];

    if (pipe2(ready, O_CLOEXEC))
        return err_sys(err, "a pipe for the name server relay");
    pid = fork();
    if (!pid) {
        if (ready[1] != READY && dup2(ready[1], READY) < 0)
            _exit(1);
        run(p, parent);
    }
    close(ready[1]);
    if (pid > 0) {
        r->pid = pid;
        r->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    } else {
        err_sys(err, "start the name server relay");
    }
    if (pid > 0 && await(ready[0])) {
        err_set(err, ERR_UNAVAILABLE, "the name server relay does not start");
        dns_relay_stop(r);
        pid = -1;
    }
    close(ready[0]);
    return pid < 0 ? -1 : 0;
}

void dns_relay_reap(struct dns_relay *r)
{
    if (!r->pid)
        return;
    waitpid(r->pid, NULL, 0);
    closep(&r->pidfd);
    *r = (struct dns_relay){ 0 };
}

void dns_relay_stop(struct dns_relay *r)
{
    if (!r->pid)
        return;
    kill(r->pid, SIGKILL);
    dns_relay_reap(r);
}
