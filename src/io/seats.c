/* seats.c - see seats.h.
 *
 * Connections hang in lists of their address, one for each state, in the order in which they came
 * into it. Addresses are ranked, in each state, by the binary logarithm of how many they have
 * there: to find one of those with most costs a look at a few lists, and nothing has to be sorted.
 * An IPv6 peer counts by its /64, which is what one customer gets. */
#include "io/seats.h"

#include <netinet/in.h>
#include <search.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/mem.h"

enum {
    RANKS = 20,
    AUTO_MAX = 16384,
    LEAST = 8,
    LOOKS = 64,
    STALLED_MS = 1000,
    SLOW_MS = 10000,
    UNREAD_MS = 5000,
    SAY_MS = 60000
};

struct seat_peer { /* freed with its last connection */
    uint64_t key;  /* first: see by_key() */
    int64_t total;
    int64_t count[SEAT_STATES];
    struct list seats[SEAT_STATES];
    struct list rank[SEAT_STATES];
};

static struct seats {
    bool ready;
    int64_t said_at; /* in the log, that there was no room */
    void *peers;     /* a tree */
    struct seats_counts counts;
    struct list ranks[SEAT_STATES][RANKS];
} T;

/* ---- bounds ---- */

static int64_t open_files(void)
{
    struct rlimit l;

    return getrlimit(RLIMIT_NOFILE, &l) ? 1024 : (int64_t)MIN(l.rlim_cur, (rlim_t)INT32_MAX);
}

static int64_t reserve_of(int64_t files) { return MIN(http_limits.reserve, files / 4); }

static bool is_scarce(int fd, int64_t files) { return fd >= files - reserve_of(files); }

bool seats_scarce(int fd) { return is_scarce(fd, open_files()); }

/* Half of what may be open: a request for a sandbox has a connection on either side. */
static int64_t most(int64_t files)
{
    int64_t own = MAX((files - reserve_of(files)) / 2, (int64_t)LEAST);

    return http_limits.connections ? http_limits.connections : MIN(own, (int64_t)AUTO_MAX);
}

/* The last quarter is never one address's alone, even if all of its connections are busy. */
static int64_t most_of_peer(int64_t all)
{
    return http_limits.peer_connections ? http_limits.peer_connections : all - all / 4;
}

/* ---- addresses ---- */

static int by_key(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* IPv4 has /64s from a range that IPv6 gives nobody, 0:1:a.b.c.d; what is no address has 0. */
uint64_t seats_key(const struct sockaddr *sa)
{
    static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
    const struct sockaddr_in *v4 = (const void *)sa;
    const struct sockaddr_in6 *v6 = (const void *)sa;
    unsigned char prefix[8] = { [3] = 1 };
    uint64_t key;

    if (sa->sa_family == AF_INET)
        memcpy(prefix + 4, &v4->sin_addr, 4);
    else if (sa->sa_family != AF_INET6)
        return 0;
    else if (!memcmp(&v6->sin6_addr, mapped, sizeof(mapped)))
        memcpy(prefix + 4, v6->sin6_addr.s6_addr + 12, 4);
    else
        memcpy(prefix, &v6->sin6_addr, sizeof(prefix));
    memcpy(&key, prefix, sizeof(key));
    return key;
}

static uint64_t key_of(int fd)
{
    union {
        struct sockaddr sa;
        struct sockaddr_in6 in6;
    } a = { 0 };
    socklen_t n = sizeof(a);

    return getpeername(fd, &a.sa, &n) ? 0 : seats_key(&a.sa);
}

static struct seat_peer *peer_of(uint64_t key)
{
    struct seat_peer *p;
    void *found = tfind(&key, &T.peers, by_key);

    if (found)
        return *(struct seat_peer **)found;
    p = xcalloc(1, sizeof(*p));
    p->key = key;
    for (int i = 0; i < SEAT_STATES; i++)
        list_init(&p->seats[i]);
    for (int i = 0; i < SEAT_STATES; i++)
        list_init(&p->rank[i]);
    if (!tsearch(p, &T.peers, by_key))
        abort(); /* no memory */
    return p;
}

static int rank_of(int64_t n)
{
    return MIN(63 - __builtin_clzll((unsigned long long)n), RANKS - 1);
}

/* One more or less in a state. */
static void count(struct seat_peer *p, enum seat_state state, int by)
{
    int64_t before = p->count[state], now = before + by;

    p->count[state] = now;
    T.counts.now[state] += by;
    if ((before && now && rank_of(before) == rank_of(now)))
        return;
    list_remove(&p->rank[state]);
    if (now)
        list_push(&T.ranks[state][rank_of(now)], &p->rank[state]);
}

static void drop(struct seat_peer *p)
{
    if (--p->total)
        return;
    tdelete(p, &T.peers, by_key);
    free(p);
}

/* ---- seats ---- */

void seat_is(struct seat *s, enum seat_state state)
{
    if (!s->peer)
        return;
    list_remove(&s->in);
    list_push(&s->peer->seats[state], &s->in);
    if (state != s->state) {
        count(s->peer, s->state, -1);
        count(s->peer, state, 1);
    }
    s->state = state;
}

void seat_leave(struct seat *s)
{
    struct seat_peer *p = TAKE(s->peer, NULL);

    if (!p)
        return;
    list_remove(&s->in);
    count(p, s->state, -1);
    drop(p);
}

static void end(struct seat *s)
{
    T.counts.ended[s->state]++;
    seat_leave(s);
    co_cancel(s->co);
}

/* ---- making room ---- */

/* A byte now and then is no body, else strangers without a key could hold all of the table. */
static bool owes(const struct conn *c)
{
    return c->reads_at && (co_now() - c->reads_at >= STALLED_MS || conn_owed(c) >= SLOW_MS);
}

/* Its client is waited for, and has been for a while. Who reads what a process writes may take its
 * time. One that is not stalled is looked at after all others the next time. */
static bool has_stalled(struct seat *s)
{
    const struct conn *c = s->conn;

    if (s->state == SEAT_OWING && owes(c))
        return true;
    if (c->writes_at && !c->patience && co_now() - c->writes_at >= UNREAD_MS)
        return true;
    seat_is(s, s->state);
    return false;
}

/* The one of this address to go, NULL: none. *looks: how many more may be looked at. */
static struct seat *first_of(struct seat_peer *p, enum seat_state state, int *looks)
{
    struct seat *s;

    list_each(s, &p->seats[state], in)
        if (state < SEAT_OWING || (--*looks >= 0 && has_stalled(s)))
            return s;
        else if (*looks < 0)
            break;
    return NULL;
}

static struct seat *first_of_any(enum seat_state state, int *looks)
{
    for (int i = RANKS; i--;) {
        struct seat_peer *p;

        list_each(p, &T.ranks[state][i], rank[state]) {
            struct seat *s = first_of(p, state, looks);

            if (s || *looks < 0)
                return s;
        }
    }
    return NULL;
}

/* Of one address, NULL: of any. */
static bool make_room(struct seat_peer *p)
{
    int looks = LOOKS;

    for (int i = SEAT_SILENT; i < SEAT_STATES; i++) {
        struct seat *s =
            p ? first_of(p, (enum seat_state)i, &looks) : first_of_any((enum seat_state)i, &looks);

        if (s) {
            end(s);
            return true;
        }
    }
    return false;
}

static int refused(const struct err *err)
{
    T.counts.ended[SEAT_WHY_REFUSED]++;
    if (!T.said_at || co_now() - T.said_at >= SAY_MS) {
        log_warn("connections are refused", KV("error", err->msg));
        T.said_at = co_now();
    }
    return -1;
}

static int find_room(struct seat_peer *p, int fd, struct err *err)
{
    int64_t files = open_files(), all = most(files), of_peer = most_of_peer(all), have = 0;

    if (p->total > of_peer && !make_room(p)) {
        err_set(err, ERR_UNAVAILABLE,
                "requests fill all %lld connections of this address (http.peer-connections)",
                (long long)of_peer);
        return refused(err);
    }
    for (int i = 0; i < SEAT_STATES; i++)
        have += T.counts.now[i];
    if (have >= all && !make_room(NULL)) {
        err_set(err, ERR_UNAVAILABLE, "requests fill all %lld connections (http.connections)",
                (long long)all);
        return refused(err);
    }
    if (have < all && is_scarce(fd, files) && !make_room(NULL)) {
        err_set(err, ERR_UNAVAILABLE,
                "the server is out of descriptors: all but http.reserve of RLIMIT_NOFILE=%lld are "
                "in use",
                (long long)files);
        return refused(err);
    }
    return 0;
}

int seat_take(struct seat *s, int fd, struct err *err)
{
    struct seat_peer *p;

    if (!T.ready)
        for (int i = 0; i < SEAT_STATES; i++)
            for (int j = 0; j < RANKS; j++)
                list_init(&T.ranks[i][j]);
    T.ready = true;
    p = peer_of(key_of(fd));
    p->total++; /* so that it stays while others of it go */
    if (find_room(p, fd, err)) {
        drop(p);
        return -1;
    }
    *s = (struct seat){ .peer = p, .state = SEAT_SILENT };
    list_push(&p->seats[SEAT_SILENT], &s->in);
    count(p, SEAT_SILENT, 1);
    return 0;
}

void seat_late(void) { T.counts.ended[SEAT_WHY_LATE]++; }

const struct seats_counts *seats_counts(void) { return &T.counts; }
