/* environment.c - see environment.h. In the memfd: "NAME=value" and a NUL, again and again. */
#include "guest/services/environment.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "io/co.h"
#include "io/fdpass.h"

extern char **environ;

enum { BYTES_MAX = 64 << 20 };

struct environment {
    unsigned refs;
    size_t n;
    char **items; /* "NAME=value"; owned, in one piece with their row */
};

static struct environment *current; /* a reference of our own; NULL: not asked for since a change */
static void (*on_change)(void);

/* ---- sending ---- */

int environment_send(int sock, char *const *envp, struct err *err)
{
    AUTO(closep) int fd = memfd_create("environment", MFD_CLOEXEC);
    AUTO(buf_free) struct buf b = { 0 };

    for (; *envp; envp++)
        buf_add(&b, *envp, strlen(*envp) + 1);
    if (fd < 0 || write(fd, b.data, b.len) != (ssize_t)b.len)
        return err_sys(err, "memfd for an environment of %zu bytes", b.len);
    if (fdpass_send(sock, "e", 1, &fd, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
        return err_sys(err, "tell a service its environment");
    return 0;
}

/* ---- taking ---- */

bool environment_next(struct str *rest, struct str *name, struct str *value)
{
    struct str item;

    /* the last one must have its NUL too: without it, it was cut */
    while (rest->n && str_cut(*rest, 0, &item, rest))
        if (str_cut(item, '=', name, value) && name->n)
            return true;
    return false;
}

static void apply(struct str text)
{
    struct str name, value;

    clearenv();
    while (environment_next(&text, &name, &value)) {
        AUTO(freep) char *copy = xstrndup(name.p, name.n);

        setenv(copy, value.p, 1); /* copies: what getenv() gave before stays readable */
    }
    environment_put(TAKE(current, NULL));
    if (on_change)
        on_change();
}

static void take(int fd)
{
    off_t size = lseek(fd, 0, SEEK_END);
    AUTO(freep) char *text = NULL;

    if (size < 0 || size > BYTES_MAX)
        return;
    text = xmalloc((size_t)size + 1);
    if (pread(fd, text, (size_t)size, 0) == (ssize_t)size)
        apply((struct str){ text, (size_t)size });
}

void environment_refresh(void)
{
    char kind;
    int fd = -1;
    size_t nfds = 1;

    while (fdpass_recv(ENVIRONMENT_SOCKET, &kind, 1, &fd, &nfds, MSG_DONTWAIT) == 1) {
        if (nfds)
            take(fd);
        else
            log_warn("a new environment is lost: too many open files");
        closep(&fd);
        fd = -1;
        nfds = 1;
    }
}

/* Without requests too: a full socket would keep the keeper from telling the last one. */
static void watch(void *arg)
{
    char end;

    (void)arg;
    while (!co_wait(ENVIRONMENT_SOCKET, CO_IN, NEVER)) {
        environment_refresh();
        if (!recv(ENVIRONMENT_SOCKET, &end, 1, MSG_PEEK | MSG_DONTWAIT))
            return;
    }
}

void environment_watch(void (*changed)(void))
{
    int kind;
    socklen_t n = sizeof(kind);

    on_change = changed;
    if (getsockopt(ENVIRONMENT_SOCKET, SOL_SOCKET, SO_TYPE, &kind, &n))
        return; /* started by hand: nobody will tell */
    if (co_go(watch, NULL, NULL))
        log_warn("no memory to watch for a new environment");
}

/* ---- comparing ---- */

struct environment *environment_now(void)
{
    size_t n = 0;

    if (!current) {
        while (environ && environ[n])
            n++;
        current = xcalloc(1, sizeof(*current));
        current->refs = 1;
        current->items = xcalloc(n + 1, sizeof(*current->items));
        for (; current->n < n; current->n++)
            current->items[current->n] = xstrdup(environ[current->n]);
    }
    current->refs++;
    return current;
}

void environment_put(struct environment *e)
{
    if (!e || --e->refs)
        return;
    for (size_t i = 0; i < e->n; i++)
        free(e->items[i]);
    free(e->items);
    free(e);
}

static const char *find(const struct environment *e, const char *item)
{
    size_t len = strcspn(item, "=");

    for (size_t i = 0; i < e->n; i++)
        if (!strncmp(e->items[i], item, len) && e->items[i][len] == '=')
            return e->items[i];
    return NULL;
}

/* Items of x that y has not, or (other) has with another value. */
static void collect(const struct environment *x, const struct environment *y, bool other,
                    struct arena *a, struct map *out)
{
    out->items = arena_alloc(a, sizeof(*out->items) * (x->n + 1));
    for (size_t i = 0; i < x->n; i++) {
        const char *have = find(y, x->items[i]), *eq = strchr(x->items[i], '=');

        if (eq && (!have || (other && strcmp(have, x->items[i]) != 0)))
            out->items[out->n++] = (struct map_item){
                arena_strdup(a, (struct str){ x->items[i], (size_t)(eq - x->items[i]) }),
                arena_strdup(a, str_of(eq + 1))
            };
    }
}

bool environment_differs(const struct environment *from, struct arena *a, struct map *set,
                         struct map *gone)
{
    struct environment *now = environment_now();

    *set = *gone = (struct map){ 0 };
    if (from && from != now) {
        collect(now, from, true, a, set);
        collect(from, now, false, a, gone);
    }
    environment_put(now);
    return set->n || gone->n;
}
