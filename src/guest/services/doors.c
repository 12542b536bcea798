/* doors.c - see doors.h.
 *
 * One coroutine waits for all doors at once, on an epoll descriptor of their own; a door whose
 * service runs is taken out of it, so that its clients wake nobody here. Each running service has a
 * coroutine that waits for its end. */
#include "guest/services/doors.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "guest/services/door.h"
#include "guest/services/lend.h"
#include "guest/services/refuse.h"
#include "guest/services/service.h"
#include "guest/services/start.h"
#include "guest/session.h"
#include "model/door.h"

enum { DOORS = 8, BACKOFF_MAX_MS = 60000, STEADY_MS = 10000, READY_BYTES = 512, LEND_MS = 10000 };

static const char *const state_names[] = {
    [DOOR_OFF] = "off",
    [DOOR_WAITING] = "waiting",
    [DOOR_STARTING] = "starting",
    [DOOR_RUNNING] = "running",
};

static struct door doors[DOORS];
static size_t ndoors;

/* ---- one service's life ---- */

/* The first line a service says: "ready", or a sentence. false: the sentence is in d->error. */
static bool read_ready(struct door *d, int fd)
{
    char text[READY_BYTES + 1] = "";
    int64_t until = co_in(service_limits.start_ms);
    ssize_t n, have = 0;

    while (have < READY_BYTES && !memchr(text, '\n', (size_t)have)) {
        n = co_read(fd, text + have, (size_t)(READY_BYTES - have), until);
        if (n <= 0)
            break;
        have += n;
    }
    text[have] = 0;
    text[strcspn(text, "\n")] = 0;
    if (!strcmp(text, "ready"))
        return true;
    if (*text)
        snprintf(d->error, sizeof(d->error), "%.*s", (int)sizeof(d->error) - 1, text);
    else if (co_now() >= until)
        snprintf(d->error, sizeof(d->error), "did not start within %lld ms (services.start-ms)",
                 (long long)service_limits.start_ms);
    else
        snprintf(d->error, sizeof(d->error), "ended before it was ready");
    return false;
}

static void note_end(struct door *d)
{
    int status = d->child.status;

    if (WIFSIGNALED(status))
        snprintf(d->error, sizeof(d->error), "was ended by signal %s",
                 sigabbrev_np(WTERMSIG(status)) ? sigabbrev_np(WTERMSIG(status)) : "?");
    else
        snprintf(d->error, sizeof(d->error), "ended with status %d", WEXITSTATUS(status));
}

static void failed(struct door *d)
{
    int64_t pause = service_limits.backoff_ms << MIN(d->failures, (int64_t)8);

    d->failures++;
    d->not_before = co_in(MIN(pause, (int64_t)BACKOFF_MAX_MS));
    log_warn("service failed", KV("service", d->service->name), KV("error", d->error),
             KVI("failures", d->failures));
}

static void kill_service(struct door *d)
{
    if (d->child.reaped)
        return;
    kill(-d->child.pid, SIGKILL);
    session_kill(d->child.pid);
}

static void tell_environment(const struct door *d)
{
    struct err err = { 0 };

    if (d->tell >= 0 && start_tell(door_place.guest, d->tell, &err))
        log_warn("a service keeps its old environment", KV("service", d->service->name),
                 KV("error", err.msg));
}

/* Starts it and waits for its end. true: it went as it should; the exit status says the rest. */
static bool live(struct door *d)
{
    uint64_t environment = door_place.environments;
    unsigned flags = (door_place.inside ? START_SANDBOX : 0) | (d->warm ? START_KEEP : 0);
    struct started started = { .child = &d->child };
    struct err err = { 0 };
    bool ready;

    d->state = DOOR_STARTING;
    d->started_ms = co_now();
    d->starts++;
    if (start_service(door_place.guest, d->service, d->listener, flags, &started, &err)) {
        snprintf(d->error, sizeof(d->error), "%s", err.msg);
        return false;
    }
    d->tell = started.tell;
    if (environment != door_place.environments) /* /init came while it was being started */
        tell_environment(d);
    ready = read_ready(d, started.said);
    co_close(started.said);
    if (ready)
        d->state = DOOR_RUNNING;
    else
        kill_service(d);
    while (child_wait(&d->child, NEVER) && !co_cancelled())
        ;
    child_forget(&d->child);
    closep(&d->tell);
    d->tell = -1;
    if (!ready)
        return d->ending; /* told to end before it could say so: that is no failure of its own */
    if (WIFEXITED(d->child.status) &&
        (!WEXITSTATUS(d->child.status) || WEXITSTATUS(d->child.status) == SERVICE_YIELD))
        return true;
    note_end(d);
    return d->ending;
}

static void run_door(void *arg)
{
    struct door *d = arg;
    bool well, steady;

    if (co_now() < d->not_before && d->unable) {
        refuse_waiting(d->listener, d->service->name, d->error);
        door_arm(d);
        return;
    }
    /* one that started and then died may well live the next time: its clients wait for that */
    if (co_now() < d->not_before)
        co_sleep(MIN(d->not_before, co_in(service_limits.start_ms)));
    well = live(d);
    steady = co_now() - d->started_ms >= STEADY_MS;
    if (well || steady)
        d->failures = 0;
    if (!well) {
        d->unable = d->state == DOOR_STARTING;
        failed(d);
        if (d->unable)
            refuse_waiting(d->listener, d->service->name, d->error);
        else if (d->failures == 1)
            d->not_before = 0; /* the first crash costs nobody who comes next anything */
    }
    d->state = DOOR_OFF;
    if (d->ending || (well && WEXITSTATUS(d->child.status) == SERVICE_YIELD))
        door_let_go(d);
    d->ending = false;
    if (door_listens(d))
        door_arm(d);
}

static void watch(void *arg)
{
    (void)arg;
    for (;;) {
        struct epoll_event ev;
        int n = epoll_wait(door_place.set, &ev, 1, 0);

        if (n > 0) {
            door_disarm(ev.data.ptr);
            if (co_go(run_door, ev.data.ptr, NULL))
                door_arm(ev.data.ptr);
            co_pass();
        } else if (co_wait(door_place.set, CO_IN, NEVER)) {
            return;
        }
    }
}

static struct door *find(const char *name, struct err *err)
{
    for (struct door *d = doors; d < doors + ndoors; d++)
        if (!strcmp(d->service->name, name))
            return d;
    err_set(err, ERR_NOT_FOUND, "there is no service '%.64s'", name);
    return NULL;
}

static void end_running(struct door *d)
{
    int64_t until = co_in(service_limits.stop_ms);

    if (d->state != DOOR_STARTING && d->state != DOOR_RUNNING)
        return;
    d->ending = true;
    while (d->ending && d->tell < 0 && !co_sleep(co_in(1))) /* it is being forked */
        ;
    if (d->ending && d->tell >= 0)
        kill(d->child.pid, SIGTERM);
    while (d->ending && co_now() < until && !co_sleep(co_in(10)))
        ;
    if (d->ending && d->tell >= 0)
        kill_service(d);
    while (d->ending && !co_sleep(co_in(10)))
        ;
}

/* ---- the outside ---- */

void doors_open(struct guest *g, bool sandbox)
{
    struct err err = { 0 };

    door_place =
        (struct door_place){ .guest = g, .inside = sandbox, .set = epoll_create1(EPOLL_CLOEXEC) };
    if (door_place.set < 0)
        return;
    for (const struct service *const *s = services; *s && ndoors < DOORS; s++) {
        struct door *d = &doors[ndoors++];

        *d = (struct door){ .service = *s, .listener = { -1, -1, -1 }, .tell = -1 };
        if (door_wanted(d, map_get(&g->env, DOOR_SERVICES_VARIABLE)) && door_hold(d, &err))
            log_warn("a service's port cannot be had", KV("service", (*s)->name),
                     KV("error", err.msg));
    }
    if (co_go(watch, NULL, NULL))
        abort();
}

static bool moved(const struct door *d)
{
    for (int i = 0; i < SERVICE_PORTS && d->service->ports[i].name; i++)
        if (d->port[i] != door_port(&d->service->ports[i]))
            return true;
    return false;
}

static void begin_warm(struct door *d)
{
    door_disarm(d);
    d->state = DOOR_STARTING;
    if (co_go(run_door, d, NULL))
        door_arm(d);
}

/* What the sandbox was made without nobody inside gets: the router and forwards go by what it was
 * made with, and would let anybody in. */
static bool is_given(const struct door *d)
{
    return !door_place.inside ||
           door_wanted(d, map_get(&door_place.guest->env, DOOR_SERVICES_VARIABLE));
}

/* A service that runs already goes on as it is: its clients are in the middle of something. Unless
 * it was there before them. */
static void configure(const char *list)
{
    struct err err = { 0 };

    for (struct door *d = doors; d < doors + ndoors; d++) {
        bool want = door_wanted(d, list) && is_given(d);

        if (d->early && (!want || moved(d))) {
            d->early = false;
            end_running(d);
        }
        if (d->state == DOOR_WAITING && (!want || moved(d)))
            door_let_go(d);
        if (d->state != DOOR_OFF || !want)
            continue;
        if (door_hold(d, &err))
            log_warn("a service's port cannot be had", KV("service", d->service->name),
                     KV("error", err.msg));
        else if (d->warm)
            begin_warm(d);
    }
}

void doors_configure(void)
{
    if (!door_place.guest)
        return;
    door_place.environments++;
    configure(map_get(&door_place.guest->env, DOOR_SERVICES_VARIABLE));
    for (struct door *d = doors; d < doors + ndoors; d++) {
        d->early = false;
        tell_environment(d);
    }
}

int doors_warm(const char *name, struct err *err)
{
    struct door *d = find(name, err);

    if (!d)
        return -1;
    d->warm = true;
    if (d->state == DOOR_WAITING) {
        d->early = true;
        begin_warm(d);
    }
    return 0;
}

/* ---- lending ---- */

/* One that runs goes on without the port: it cannot be given to it any more. */
static void take_back(void *arg)
{
    struct err err = { 0 };

    (void)arg;
    for (struct door *d = doors; d < doors + ndoors; d++)
        for (int i = 0; i < SERVICE_PORTS; i++) {
            bool idle = d->state == DOOR_OFF || d->state == DOOR_WAITING;

            if (!d->lent[i] || !idle || door_hold_port(d, i, &err))
                continue;
            d->state = DOOR_WAITING;
            d->armed = true;
            door_arm_port(d, i);
            d->error[0] = 0;
        }
}

/* Whoever does not bind it within that time was no server after all. */
static void take_back_later(void *arg)
{
    if (!co_sleep(co_in(LEND_MS)))
        take_back(arg);
}

/* The service's other ports stay. */
static void lend(struct door *d, int i)
{
    epoll_ctl(door_place.set, EPOLL_CTL_DEL, d->listener[i], NULL);
    co_close(TAKE(d->listener[i], -1));
    d->lent[i] = true;
    if (!door_listens(d)) {
        d->state = DOOR_OFF;
        d->armed = false;
    }
    snprintf(d->error, sizeof(d->error), "port %d is lent to a command that named it", d->port[i]);
    if (co_go(take_back_later, NULL, NULL))
        log_warn("no memory to take a port back");
}

void doors_before(const struct process_config *c)
{
    const char *list = map_get(&c->envs, DOOR_SERVICES_VARIABLE);

    if (list && door_place.guest)
        configure(list);
    for (struct door *d = doors; d < doors + ndoors; d++)
        for (int i = 0; i < SERVICE_PORTS; i++)
            if (d->state == DOOR_WAITING && d->listener[i] >= 0 && lend_wanted(c, d->port[i]))
                lend(d, i);
}

static bool any_lent(const struct door *d)
{
    for (int i = 0; i < SERVICE_PORTS; i++)
        if (d->lent[i])
            return true;
    return false;
}

/* In a coroutine: who has just ended must not wait for it. */
void doors_after(void)
{
    for (const struct door *d = doors; d < doors + ndoors; d++)
        if (any_lent(d)) {
            co_go(take_back, NULL, NULL);
            return;
        }
}

int doors_release(const char *name, struct err *err)
{
    struct door *d = find(name, err);

    if (!d)
        return -1;
    if (d->state == DOOR_WAITING)
        door_let_go(d);
    else
        end_running(d);
    return 0;
}

int doors_claim(const char *name, struct err *err)
{
    struct door *d = find(name, err);

    if (!d)
        return -1;
    if (!is_given(d))
        return err_set(err, ERR_CONFLICT, "the sandbox was made without service %s (%s)", name,
                       DOOR_SERVICES_VARIABLE);
    return d->state == DOOR_OFF ? door_hold(d, err) : 0;
}

void doors_stop(void)
{
    for (struct door *d = doors; d < doors + ndoors; d++)
        if (d->tell >= 0)
            kill(d->child.pid, SIGTERM); /* all at once: they share the time they get */
    for (struct door *d = doors; d < doors + ndoors; d++) {
        end_running(d);
        door_let_go(d);
    }
}

size_t doors_held(void)
{
    size_t n = 0;

    for (const struct door *d = doors; d < doors + ndoors; d++)
        n += door_listens(d);
    return n;
}

static void put_ports(const struct door *d, struct buf *json)
{
    json_key(json, "ports");
    json_open(json, '{');
    for (int i = 0; i < SERVICE_PORTS && d->service->ports[i].name; i++)
        json_kv_int(json, d->service->ports[i].name, d->port[i]);
    json_close(json, '}');
}

void doors_put_status(struct buf *json)
{
    json_open(json, '[');
    for (const struct door *d = doors; d < doors + ndoors; d++) {
        bool runs = d->state == DOOR_STARTING || d->state == DOOR_RUNNING;

        json_open(json, '{');
        json_kv_str(json, "name", d->service->name);
        json_kv_str(json, "state", state_names[d->state]);
        put_ports(d, json);
        if (runs && d->child.pid)
            json_kv_int(json, "pid", d->child.pid);
        if (runs)
            json_kv_int(json, "running_ms", co_now() - d->started_ms);
        json_kv_int(json, "starts", d->starts);
        json_kv_int(json, "failures", d->failures);
        json_kv_str(json, "error", d->error[0] ? d->error : NULL);
        json_kv_str(json, "help", d->service->help);
        json_close(json, '}');
    }
    json_close(json, ']');
}

/* ---- routes of the guest ---- */

static int get_services(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };

    (void)body, (void)err;
    doors_put_status(&json);
    call_header(c, "Cache-Control", "no-store");
    return call_reply_json(c, 200, &json);
}

static int change(struct call *c, int (*fn)(const char *, struct err *), struct err *err)
{
    char *name = arena_strdup(&c->arena, c->param[0]);

    return fn(name, err) ? -1 : call_reply(c, 204, NULL, (struct str){ 0 });
}

static int delete_service(struct call *c, void *body, struct err *err)
{
    (void)body;
    return change(c, doors_release, err);
}

static int post_service(struct call *c, void *body, struct err *err)
{
    (void)body;
    return change(c, doors_claim, err);
}

const struct route doors_routes[] = {
    { "GET", "/services", ROUTE_RAW, 0, NULL, 0, get_services, "Services",
      "Each service: whether it waits, runs or failed, on which ports", 0 },
    { "DELETE", "/services/{name}", ROUTE_RAW, 0, NULL, 0, delete_service, "ReleaseService",
      "Ends a service and gives its ports to whoever wants them", 0 },
    { "POST", "/services/{name}", ROUTE_RAW, 0, NULL, 0, post_service, "ClaimService",
      "Listens for a service again", 0 },
    {},
};
