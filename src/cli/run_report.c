/* run_report.c - how a run ended: its exit status, a line for people when something of ours or a
 * limit had a part in it, or all of it as JSON. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/run.h"

/* 124 when time was up, beside what the session itself says. */
int run_status(const struct run *r, const struct err *err)
{
    if (r->session.done || r->session.closed || !r->ended)
        return session_status(&r->session, err);
    if (r->reason == ENDED_LIFETIME)
        return SESSION_TIMED_OUT;
    if (r->reason == ENDED_MEMORY)
        return 128 + SIGKILL;
    return session_status(&r->session, err);
}

/* The sandbox before its command, and not because we asked for it. */
static bool ended_early(const struct run *r)
{
    return r->ended && !r->session.done && r->reason != ENDED_BY_REQUEST;
}

/* ", 70 MiB of it in sockets", where that was why. */
static void format_sockets(const struct keep_limit_met *met, char *out, size_t n)
{
    char bytes[32];

    *out = 0;
    if (!met->sockets)
        return;
    limits_format((enum limit_id)met->limit, met->sockets, bytes, sizeof(bytes));
    snprintf(out, n, ", %s of it in sockets", bytes);
}

static void say_limits(const struct run *r)
{
    char is[32], was[32], sockets[64];

    for (enum limit_id id = 0; id < LIMIT_COUNT; id++) {
        if (!r->was_met[id])
            continue;
        limits_format(id, r->met[id].value, is, sizeof(is));
        limits_format(id, r->met[id].use, was, sizeof(was));
        format_sockets(&r->met[id], sockets, sizeof(sockets));
        fprintf(stderr, "cove run: the limit '%s' of %s was reached (use %s%s)\n",
                limit_rows[id].name, is, was, sockets);
    }
}

/* Only those that were asked for: what nobody set nobody misses. `cove doctor` tells of all. */
static void say_unenforced(const struct run *r)
{
    const int64_t asked[LIMIT_COUNT] = { [LIMIT_MEMORY] = r->o->limits.memory,
                                         [LIMIT_CPU] = r->o->limits.cpus,
                                         [LIMIT_PIDS] = r->o->limits.pids,
                                         [LIMIT_IO] = r->o->limits.io_weight,
                                         [LIMIT_DISK] = r->o->limits.disk };

    for (enum limit_id id = 0; id < LIMIT_COUNT; id++)
        if (asked[id] && r->state.unenforced & 1u << id)
            fprintf(stderr,
                    "cove run: the limit '%s' is not enforced here (cove doctor says why)\n",
                    limit_rows[id].name);
}

static void put_met(const struct run *r, struct buf *b)
{
    json_key(b, "limits_met");
    json_open(b, '[');
    for (enum limit_id id = 0; id < LIMIT_COUNT; id++) {
        if (!r->was_met[id])
            continue;
        json_open(b, '{');
        json_kv_str(b, "limit", limit_rows[id].name);
        json_kv_int(b, "value", (int64_t)r->met[id].value);
        json_kv_int(b, "use", (int64_t)r->met[id].use);
        if (r->met[id].sockets)
            json_kv_int(b, "sockets", (int64_t)r->met[id].sockets);
        json_close(b, '}');
    }
    json_close(b, ']');
    json_key(b, "not_enforced");
    json_open(b, '[');
    for (enum limit_id id = 0; id < LIMIT_COUNT; id++)
        if (r->state.unenforced & 1u << id)
            json_put_str(b, str_of(limit_rows[id].name));
    json_close(b, ']');
}

static void put_numbers(const struct run *r, struct buf *b)
{
    static const struct {
        const char *name;
        size_t from, to;
    } times[] = {
        { "create_us", offsetof(struct run, started_us), offsetof(struct run, created_us) },
        { "run_us", offsetof(struct run, created_us), offsetof(struct run, ended_us) },
        { "end_us", offsetof(struct run, ended_us), offsetof(struct run, gone_us) },
    };

    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        int64_t from = *(const int64_t *)(const void *)((const char *)r + times[i].from);
        int64_t to = *(const int64_t *)(const void *)((const char *)r + times[i].to);

        json_kv_int(b, times[i].name, from && to > from ? to - from : 0);
    }
    json_kv_int(b, "memory_peak_bytes", (int64_t)r->state.memory_peak_bytes);
    json_kv_int(b, "cpu_us", (int64_t)r->state.cpu_us);
    json_kv_int(b, "disk_bytes", (int64_t)r->state.disk_bytes);
}

static void print_json(const struct run *r, const struct err *err, int status)
{
    AUTO(buf_free) struct buf b = { 0 };

    json_open(&b, '{');
    json_kv_str(&b, "id", r->id);
    session_put_json(&r->session, err, status, &b);
    if (ended_early(r))
        json_kv_str(&b, "reason", keep_reason_names[r->reason]);
    put_met(r, &b);
    put_numbers(r, &b);
    json_close(&b, '}');
    puts(buf_cstr(&b));
}

void run_report(const struct run *r, const struct err *err, int status)
{
    if (r->o->json) {
        print_json(r, err, status);
        return;
    }
    say_unenforced(r);
    say_limits(r);
    if (err)
        fprintf(stderr, "cove run: %s\n", err->msg);
    else if (ended_early(r) && r->reason != ENDED_LIFETIME && r->reason != ENDED_MEMORY)
        fprintf(stderr, "cove run: the sandbox ended: %s\n", keep_reason_names[r->reason]);
}
