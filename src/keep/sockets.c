/* sockets.c - ending a sandbox whose sockets hold more than its memory limit leaves.
 *
 * What waits in netlink sockets (and in ping sockets, for those that asked for them) is charged to
 * no cgroup, nor are connections that nobody accepts and the errors that a UDP socket keeps, so
 * that a sandbox could fill the machine with it, a gigabyte a second; and version 1 has its limit
 * of TCP and UDP queues beside that of memory, and lets each TCP socket have a packet above it. We
 * look for that from outside. An idle sandbox is to cost nothing, so all of them are
 * looked at only when the kernel's own memory has grown, or after a while: one small file tells of
 * that for the whole machine. A child looks, because thousands of sandboxes take it longer than a
 * millisecond, and it asks for sums only where there are many sockets.
 *
 * Without root the namespaces cannot be entered, and no limit is enforced. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "jail/queues.h"
#include "jail/weaken.h"
#include "keep/keeper.h"

enum {
    LOOK_MS = 50,      /* how often the machine is looked at, ... */
    GROWTH = 32 << 20, /* ... and how much more there has to be until sandboxes are ... */
    ALL_MS = 15000,    /* ... or how long it may be since they were */
    MANY = 64,         /* sockets in a namespace: 16 MiB, with queues of the usual size */
    QUEUE = 256 << 10, /* a full one, of a socket that cannot be looked into */
    SHARE = 16,        /* what waits is nobody's concern below this part of the limit */
    FOUND = 64,        /* in one look; the next finds the others */
};

struct found {
    char id[ORDER_ID];
    pid_t pid;
    uint64_t sockets, memory; /* bytes */
};

struct look { /* what the child says: in memory that it shares with us */
    size_t n;
    struct found found[FOUND];
};

/* One that is being paused runs until its files are on the disk, and that may take long. */
static bool concerns(const struct box *b)
{
    return b->phase == PHASE_RUNNING && !b->frozen && !b->keeper->o.rootless;
}

/* ---- in the child ---- */

/* Memory that the sandbox cannot be rid of; files that were read are no reason to end it. */
static uint64_t held_bytes(const struct keeper *k, const struct box *b)
{
    struct cgroup_usage u = { 0 };
    uint64_t files = cgroup_files_bytes(&k->cgroups, b->name);

    cgroup_usage(&k->cgroups, b->name, &u);
    return u.memory_bytes > files ? u.memory_bytes - files : 0;
}

/* A program has few sockets that are in no list: not connected yet, or reset and not closed. If a
 * sandbox has many, each counts as full. */
static uint64_t unlisted_bytes(uint64_t n) { return n > MANY ? (n - MANY) * QUEUE : 0; }

/* What waits in its sockets and is not a part of its memory. The list may have some of them twice
 * if it changes meanwhile: the lesser of two looks is true. */
static uint64_t socket_bytes(const struct keeper *k, const struct box *b)
{
    struct queues first, again;
    uint64_t inet, charged;
    bool in_memory;
    struct err err;

    if (queues_sum(b->jail.pid, &first, &err) || queues_sum(b->jail.pid, &again, &err))
        return 0; /* it has ended */
    charged = cgroup_sockets_bytes(&k->cgroups, b->name, &in_memory);
    inet = MIN(first.inet, again.inet);
    inet = MAX(inet, charged); /* what is above is kept besides */
    return MIN(first.uncharged, again.uncharged) + inet - (in_memory ? charged : 0) +
           unlisted_bytes(MIN(first.unlisted, again.unlisted));
}

static void look_at(const struct keeper *k, const struct box *b, struct look *l)
{
    uint64_t limit = b->order.limits.memory_bytes, n, sockets, memory;
    struct found *f = &l->found[l->n];

    if (queues_sockets(b->jail.pid, &n) || n <= MANY)
        return;
    sockets = socket_bytes(k, b);
    if (sockets <= limit / SHARE)
        return;
    memory = held_bytes(k, b);
    if (sockets + memory <= limit)
        return;
    *f = (struct found){ .pid = b->jail.pid, .sockets = sockets, .memory = memory };
    memcpy(f->id, b->id, sizeof(f->id));
    l->n++;
}

struct arg {
    struct look *look;
};

static int look(struct keeper *k, void *arg, struct err *err)
{
    struct look *l = ((struct arg *)arg)->look;
    const struct box *b;

    (void)err;
    list_each(b, &k->boxes, all)
        if (concerns(b) && l->n < FOUND)
            look_at(k, b, l);
    return 0;
}

/* ---- in the keeper ---- */

static void looked(struct keeper *k, void *arg, const struct err *err)
{
    struct look *l = ((struct arg *)arg)->look;

    if (err)
        log_warn("the sockets of sandboxes were not looked at", KV("error", err->msg));
    for (size_t i = 0; i < MIN(l->n, (size_t)FOUND); i++) {
        const struct found *f = &l->found[i];
        struct box *b = box_find(k, f->id);

        if (b && b->phase == PHASE_RUNNING && b->pausing != PAUSING_DROP && b->jail.pid == f->pid)
            box_overrun(b, f->sockets, f->memory);
    }
    munmap(l, sizeof(*l));
    k->sockets_watch.looking = false;
}

static int begin(struct keeper *k, struct err *err)
{
    struct arg *a = xcalloc(1, sizeof(*a));
    struct look *l =
        /* cppcheck-suppress invalidFunctionArg ; what an anonymous mapping wants */
        mmap(NULL, sizeof(*l), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (l == MAP_FAILED) {
        free(a);
        return err_sys(err, "memory to share with a child");
    }
    a->look = l;
    if (!job_start(k, look, looked, a, NULL, err))
        return 0;
    munmap(l, sizeof(*l));
    return -1;
}

/* Has the kernel more than when we looked last? Where that cannot be told, time alone decides. */
static bool has_grown(struct sockets_watch *w)
{
    AUTO(closep) int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    char text[2048];
    uint64_t now;
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));

    if (n <= 0 || queues_kernel_bytes((struct str){ text, (size_t)n }, &now))
        return false;
    w->base = MIN(w->base, now);
    if (now - w->base < GROWTH)
        return false;
    w->base = now;
    return true;
}

/* Not at once: a sandbox that lives but a moment is not to wait for it. */
void sockets_start(struct keeper *k)
{
    int64_t now = clock_ms();

    k->sockets_watch =
        (struct sockets_watch){ .next = now + LOOK_MS, .all_at = now + ALL_MS, .base = UINT64_MAX };
}

int64_t sockets_due(const struct keeper *k, const struct box *b)
{
    return concerns(b) ? k->sockets_watch.next : NEVER;
}

void sockets_tick(struct keeper *k)
{
    struct sockets_watch *w = &k->sockets_watch;
    int64_t now = clock_ms();
    struct err err;

    if (now < w->next || k->o.rootless || !k->nboxes)
        return;
    w->next = now + LOOK_MS;
    if (w->looking || weakened("queues") || (!has_grown(w) && now < w->all_at))
        return;
    w->all_at = now + ALL_MS;
    w->looking = !begin(k, &err);
    if (!w->looking)
        log_warn("the sockets of sandboxes cannot be looked at", KV("error", err.msg));
}
