/* kernel.c - what a kernel says, and what that tells about it; see kernel.h. */
#include "guest/kernels/kernel.h"

#include <time.h>

#include "base/json.h"
#include "base/mem.h"
#include "guest/kernels/scan.h"

static const char *const state_names[] = {
    [KERNEL_STARTING] = "starting",
    [KERNEL_IDLE] = "idle",
    [KERNEL_BUSY] = "busy",
    [KERNEL_RESTARTING] = "restarting",
    [KERNEL_AUTORESTARTING] = "autorestarting",
    [KERNEL_DEAD] = "dead",
};

const char *kernel_state_name(enum kernel_state s) { return state_names[s]; }

static int64_t wall_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- life ---- */

struct kernel *kernel_get(struct kernel *k)
{
    k->refs++;
    return k;
}

void kernel_put(struct kernel *k)
{
    if (!k || --k->refs)
        return;
    for (size_t i = 0; i < k->env.n; i++) {
        free(k->env.items[i].key);
        free(k->env.items[i].value);
    }
    free(k->env.items);
    free(k->cwd);
    free(k->reason);
    engine_put(k->engine);
    kernelspec_put(k->spec);
    free(k);
}

void kernel_putp(struct kernel **k) { kernel_put(*k); }

static void touch(struct kernel *k)
{
    k->active_us = wall_us();
    k->active_at = co_now();
}

void kernel_set_state(struct kernel *k, enum kernel_state s)
{
    k->state = s;
    touch(k);
    kernels_touch();
    co_cond_wake(&k->changed);
}

void kernel_write(const struct kernel *k, struct buf *json)
{
    AUTO(buf_free) struct buf at = { 0 };

    message_put_time(&at, k->active_us);
    json_open(json, '{');
    json_kv_str(json, "id", k->id);
    json_kv_str(json, "name", k->spec->name);
    json_kv_str(json, "last_activity", buf_cstr(&at));
    json_kv_str(json, "execution_state", state_names[k->state]);
    json_kv_int(json, "connections", k->connections);
    json_kv_str(json, "reason", k->reason);
    json_close(json, '}');
}

/* ---- listeners ---- */

void kernel_listen(struct kernel *k, struct listener *l) { list_push(&k->listeners, &l->node); }

void kernel_unlisten(struct kernel *k, struct listener *l)
{
    list_remove(&l->node);
    co_cond_wake(&k->drained);
}

static void deliver(struct kernel *k, struct message *m)
{
    struct listener *l;

    list_each(l, &k->listeners, node)
        l->deliver(l, m);
}

/* Kernels that we forked wait when they are not read. Others drop what they say, so they are read
 * on until it cannot be afforded any more. */
static bool any_full(const struct kernel *k)
{
    bool waits = k->engine && k->engine->forked;
    size_t max = (size_t)(waits ? kernels_limits.queue_bytes : kernels_limits.message_bytes);
    struct listener *l;

    list_each(l, &k->listeners, node)
        if (l->queued > max)
            return true;
    return false;
}

void kernel_say(struct kernel *k, const char *state)
{
    AUTO(buf_free) struct buf content = { 0 };
    struct message *m;

    json_open(&content, '{');
    json_kv_str(&content, "execution_state", state);
    json_close(&content, '}');
    m = message_make(CHANNEL_IOPUB, "status", buf_str(&content));
    deliver(k, m);
    message_put(m);
}

/* ---- state, by what passes ---- */

/* What does not count as use: asking about a kernel, and answers in general. The list is
 * jupyter_server's. */
static bool tracked(struct str type)
{
    static const char *const untracked[] = {
        "comm_info_request",
        "comm_info_reply",
        "kernel_info_request",
        "kernel_info_reply",
        "shutdown_request",
        "shutdown_reply",
        "interrupt_request",
        "interrupt_reply",
        "debug_request",
        "debug_reply",
        "stream",
        "display_data",
        "execute_input",
        "update_display_data",
        "execute_result",
        "error",
        "status",
        "clear_output",
        "debug_event",
        "input_request",
        "input_reply",
        "",
        NULL,
    };

    for (const char *const *u = untracked; *u; u++)
        if (str_is(type, *u))
            return false;
    return true;
}

static void follow_status(struct kernel *k, const struct message *m, bool counts)
{
    struct str state = scan_plain(scan_get(message_part(m, PART_CONTENT), "execution_state"));

    if (!state.p || k->state == KERNEL_RESTARTING || k->state == KERNEL_DEAD)
        return;
    if (counts && str_is(state, "busy"))
        kernel_set_state(k, KERNEL_BUSY);
    else if (counts && str_is(state, "idle"))
        kernel_set_state(k, KERNEL_IDLE);
    else if (k->state == KERNEL_STARTING && !str_is(state, "starting"))
        kernel_set_state(k, KERNEL_IDLE);
}

static void follow(struct kernel *k, const struct message *m)
{
    bool counts = tracked(message_parent(m, "msg_type"));

    if (counts || k->state == KERNEL_BUSY)
        touch(k);
    if (str_is(message_type(m), "status"))
        follow_status(k, m, counts);
}

void kernel_heard(struct kernel *k, struct message *m)
{
    follow(k, m);
    kernel_get(k);
    deliver(k, m);
    while (any_full(k) && !co_cond_wait(&k->drained, NEVER))
        ;
    kernel_put(k);
}
