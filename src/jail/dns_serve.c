/* dns_serve.c - see dns_serve.h.
 *
 * One coroutine per question. It goes out with an id and a port of its own, both random, to one of
 * the host's name servers; the answer has to come from there, with that id and that question. A
 * question over TCP is asked over TCP. All memory is bounded: so many questions at a time, so many
 * of one sandbox, so many a second of one sandbox (names can carry data out). */
#include "jail/dns_serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/list.h"
#include "base/mem.h"
#include "io/co.h"
#include "jail/dns_message.h"

enum { TRIES = 3, CHECK_MS = 1000, NEWS_MS = 20, TOKEN = 1000, IDLE_MS = 10000 };

struct dns_bounds dns_bounds = {
    .queries_per_s = 50,
    .burst = 200,
    .in_flight = 2048,
    .in_flight_per_source = 64,
    .connections = 256,
    .connections_per_source = 8,
    .timeout_ms = 5000,
};

struct source {      /* one per address of the /16 */
    uint32_t tokens; /* thousandths of a query; 0 at `seen` 0 means full */
    uint32_t seen;   /* ms, wraps */
    uint16_t in_flight, connections;
};

struct query { /* a question over UDP */
    struct query *next;
    struct source *source;
    struct sockaddr_in from;
    struct dns_query q;
    size_t n;
    unsigned char data[DNS_QUERY_MAX + 1]; /* one more: too long is seen, and refused */
};

static struct {
    const struct dns_serve *s;
    struct source source[1 << 16]; /* touched only where a sandbox asks */
    struct query *free;
    int64_t in_flight, connections;
    struct dns_servers servers;
    int64_t check_at;                      /* when to ask for them again */
    unsigned char answer[DNS_MESSAGE_MAX]; /* never used across a call that parks */
} D;

static uint16_t random_id(void)
{
    uint16_t id = 0;

    while (getrandom(&id, sizeof(id), 0) != sizeof(id))
        ;
    return id;
}

/* ---- whom to ask ---- */

/* The last that was said counts; what came late, too. */
static void hear_servers(void)
{
    struct dns_answer a;

    while (recv(D.s->line, &a, sizeof(a), MSG_DONTWAIT) == sizeof(a))
        if (a.servers.n && a.servers.n <= DNS_SERVERS_MAX)
            D.servers = a.servers;
}

/* At the time of a question, at most once a second, so that an idle relay never wakes. The parent
 * answers in less than a millisecond; when it is busy, the question goes where the last one went.
 */
static void refresh_servers(void)
{
    static const char ask = DNS_ASK_SERVERS;
    struct pollfd p = { .fd = D.s->line, .events = POLLIN };

    if (co_now() < D.check_at)
        return;
    D.check_at = co_now() + CHECK_MS;
    hear_servers();
    if (send(D.s->line, &ask, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 && poll(&p, 1, NEWS_MS) == 1)
        hear_servers();
}

/* ---- how much one may ask ---- */

static struct source *source_of(const struct sockaddr_in *from)
{
    uint32_t address = ntohl(from->sin_addr.s_addr);

    return (address ^ D.s->subnet) >> 16 ? NULL : &D.source[address & 0xffff];
}

static bool take_token(struct source *s)
{
    uint32_t now = (uint32_t)co_now() | 1; /* 0 means "never asked" */
    uint64_t full = (uint64_t)dns_bounds.burst * TOKEN;
    uint64_t tokens = s->tokens + (uint64_t)(now - s->seen) * (uint64_t)dns_bounds.queries_per_s;

    s->tokens = (uint32_t)(s->seen ? MIN(tokens, full) : full);
    s->seen = now;
    if (s->tokens < TOKEN)
        return false;
    s->tokens -= TOKEN;
    return true;
}

/* ---- UDP ---- */

static void reply(const struct query *q, const unsigned char *p, size_t n)
{
    /* A full socket buffer drops it, as any network may. */
    sendto(D.s->udp, p, n, MSG_DONTWAIT, (const struct sockaddr *)&q->from, sizeof(q->from));
}

static void reply_error(const struct query *q, enum dns_rcode code)
{
    unsigned char out[DNS_ERROR_MAX];

    reply(q, out, dns_message_error(q->data, &q->q, code, out));
}

/* Asks one server; true when its answer has been passed on. */
static bool ask_udp(struct query *q, const struct addr *server, int64_t until)
{
    AUTO(co_closep)
    int fd = socket(server->sa.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    uint16_t id = random_id();

    /* Connected: the kernel picks a random port, and passes on what comes from that server only. */
    if (fd < 0 || connect(fd, (const struct sockaddr *)&server->sa, server->len))
        return false;
    dns_message_set_id(q->data, id);
    if (send(fd, q->data, q->n, MSG_NOSIGNAL) < 0)
        return false;
    for (;;) {
        ssize_t n = recv(fd, D.answer, sizeof(D.answer), 0);

        if (n < 0 && errno == EAGAIN ? co_wait(fd, CO_IN, until) : n < 0 && errno != EINTR)
            return false; /* the time is up, or nobody listens there */
        if (n < 0 || !dns_message_answers(D.answer, (size_t)n, id, q->data, &q->q))
            continue;
        dns_message_set_id(D.answer, q->q.id);
        reply(q, D.answer, (size_t)n);
        return true;
    }
}

static void relay_udp(void *arg)
{
    struct query *q = arg;
    int64_t slice = MAX(dns_bounds.timeout_ms / TRIES, 1);
    bool done = false;

    for (size_t i = 0; i < TRIES && !done; i++)
        done = ask_udp(q, &D.servers.item[i % D.servers.n], co_in(slice));
    if (!done)
        reply_error(q, DNS_SERVFAIL);
    q->source->in_flight--;
    D.in_flight--;
    q->next = D.free;
    D.free = q;
}

static struct query *take_query(void)
{
    struct query *q = D.free;

    if (!q)
        return xcalloc(1, sizeof(*q)); /* never more than may be in flight, and one */
    D.free = q->next;
    return q;
}

/* The query is passed on to a coroutine, or stays the caller's (false). */
static bool start_udp(struct query *q)
{
    struct source *s = q->source = source_of(&q->from);
    enum dns_rcode code;

    if (!s)
        return false;
    code = dns_message_check(q->data, q->n, &q->q);
    if (code == DNS_OK && !take_token(s))
        code = DNS_REFUSED;
    if (code == DNS_OK &&
        (D.in_flight >= dns_bounds.in_flight || s->in_flight >= dns_bounds.in_flight_per_source))
        code = DNS_SERVFAIL;
    if (code != DNS_OK) {
        if (code != DNS_SILENT)
            reply_error(q, code);
        return false;
    }
    refresh_servers();
    s->in_flight++;
    D.in_flight++;
    if (!co_go(relay_udp, q, NULL))
        return true;
    s->in_flight--;
    D.in_flight--;
    reply_error(q, DNS_SERVFAIL);
    return false;
}

static void listen_udp(void *arg)
{
    struct query *q = NULL;
    unsigned burst = 0;

    (void)arg;
    for (;;) {
        socklen_t len = sizeof(q->from);
        ssize_t n;

        q = q ? q : take_query();
        n = recvfrom(D.s->udp, q->data, sizeof(q->data), 0, (struct sockaddr *)&q->from, &len);
        if (n < 0 && errno == EAGAIN && co_wait(D.s->udp, CO_IN, NEVER))
            return;
        if (n < 0 || len != sizeof(q->from))
            continue;
        q->n = (size_t)n;
        if (start_udp(q))
            q = NULL;
        if (++burst % 64 == 0) /* a flood must not keep answers from going out */
            co_pass();
    }
}

/* ---- TCP ---- */

struct connection {
    int fd;
    struct source *source;
};

static int send_framed(int fd, const unsigned char *p, size_t n, int64_t until)
{
    unsigned char length[2] = { (unsigned char)(n >> 8), (unsigned char)n };
    struct iovec v[] = { { length, 2 }, { (void *)(size_t)p, n } };

    return co_writev(fd, v, 2, until);
}

/* The length of the message that follows, 0 at the end or on failure. */
static size_t read_length(int fd, int64_t until)
{
    unsigned char length[2];

    return co_read_full(fd, length, 2, until) == 2 ? (size_t)length[0] << 8 | length[1] : 0;
}

/* The answer in *out, which the caller frees; its length, or 0. */
static size_t ask_tcp(unsigned char *query, size_t n, const struct dns_query *q,
                      const struct addr *server, int64_t until, unsigned char **out)
{
    AUTO(co_closep)
    int fd = socket(server->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    AUTO(freep) unsigned char *answer = NULL;
    uint16_t id = random_id();
    size_t length;

    if (fd < 0 || co_connect(fd, &server->sa, server->len, until))
        return 0;
    dns_message_set_id(query, id);
    if (send_framed(fd, query, n, until))
        return 0;
    length = read_length(fd, until);
    if (length < DNS_HEADER)
        return 0;
    answer = xmalloc(length);
    if (co_read_full(fd, answer, length, until) != (ssize_t)length ||
        !dns_message_answers(answer, length, id, query, q))
        return 0;
    dns_message_set_id(answer, q->id);
    *out = TAKE(answer, NULL);
    return length;
}

/* One question and its answer; false ends the connection. */
static bool relay_tcp(const struct connection *c)
{
    unsigned char query[DNS_QUERY_MAX], error[DNS_ERROR_MAX];
    AUTO(freep) unsigned char *answer = NULL;
    size_t n = read_length(c->fd, co_in(IDLE_MS)), length = 0;
    enum dns_rcode code;
    struct dns_query q;

    if (n < DNS_HEADER || n > sizeof(query) ||
        co_read_full(c->fd, query, n, co_in(IDLE_MS)) != (ssize_t)n)
        return false;
    code = dns_message_check(query, n, &q);
    if (code == DNS_SILENT)
        return false;
    if (code == DNS_OK && !take_token(c->source))
        code = DNS_REFUSED;
    if (code == DNS_OK) {
        refresh_servers();
        for (size_t i = 0; i < TRIES && !length; i++)
            length = ask_tcp(query, n, &q, &D.servers.item[i % D.servers.n],
                             co_in(MAX(dns_bounds.timeout_ms / TRIES, 1)), &answer);
        code = DNS_SERVFAIL;
    }
    if (!length) {
        length = dns_message_error(query, &q, code, error);
        return !send_framed(c->fd, error, length, co_in(IDLE_MS));
    }
    return !send_framed(c->fd, answer, length, co_in(IDLE_MS));
}

static void serve_tcp(void *arg)
{
    struct connection *c = arg;
    int64_t until = co_in(IDLE_MS * 3); /* nobody occupies a place for ever */

    while (co_now() < until && relay_tcp(c))
        ;
    c->source->connections--;
    D.connections--;
    co_close(c->fd);
    free(c);
}

static bool start_tcp(int fd)
{
    struct sockaddr_in from = { 0 };
    socklen_t len = sizeof(from);
    struct source *s;
    struct connection *c;
    int one = 1;

    if (getpeername(fd, (struct sockaddr *)&from, &len) || len != sizeof(from))
        return false;
    s = source_of(&from);
    if (!s || D.connections >= dns_bounds.connections ||
        s->connections >= dns_bounds.connections_per_source)
        return false;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    c = xcalloc(1, sizeof(*c));
    c->fd = fd;
    c->source = s;
    s->connections++;
    D.connections++;
    if (!co_go(serve_tcp, c, NULL))
        return true;
    s->connections--;
    D.connections--;
    free(c);
    return false;
}

static void listen_tcp(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = co_accept(D.s->tcp);

        if (fd < 0) {
            if (co_cancelled())
                return;
            co_sleep(co_in(10)); /* out of descriptors: some will be free soon */
        } else if (!start_tcp(fd)) {
            co_close(fd);
        }
    }
}

static void start(void *arg)
{
    (void)arg;
    if (!co_go(listen_tcp, NULL, NULL))
        listen_udp(NULL);
}

void dns_serve(const struct dns_serve *s)
{
    D.s = s;
    D.servers = s->servers;
    co_run(start, NULL);
}
