/* box_use.c - what a sandbox was given, what it uses of that, and which limits it has met. */
#include <string.h>

#include "base/clock.h"
#include "keep/box_parts.h"
#include "keep/keeper.h"

uint32_t box_unenforced(const struct keeper *k)
{
    static const struct {
        enum limit_id limit;
        enum cgroup_controller controller;
    } rows[] = { { LIMIT_MEMORY, CGROUP_MEMORY },
                 { LIMIT_CPU, CGROUP_CPU },
                 { LIMIT_PIDS, CGROUP_PIDS },
                 { LIMIT_IO, CGROUP_IO } };
    uint32_t bits = volume_quota_enforced(k->volume) ? 0 : 1u << LIMIT_DISK;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!cgroups_enforce(&k->cgroups, rows[i].controller))
            bits |= 1u << rows[i].limit;
    return bits;
}

/* What it was given; box_measure() adds what it uses. */
void box_state(const struct box *b, struct keep_state *out)
{
    *out = (struct keep_state){
        .limits = b->order.limits,
        .left_ms = b->frozen              ? b->left
                   : b->deadline == NEVER ? INT64_MAX
                                          : b->deadline - clock_ms(),
        .pid = b->jail.pid,
        .frozen = b->frozen,
        .asleep = b->phase == PHASE_ASLEEP,
        .fresh = b->fresh,
        .network = b->order.network,
        .unenforced = box_unenforced(b->keeper),
    };
    memcpy(out->template, b->order.template, sizeof(out->template));
    memcpy(out->unreadable, b->unreadable, sizeof(out->unreadable));
    out->flags = b->order.flags;
    out->mark = b->order.mark;
    out->astray = b->astray;
}

static void check_disk(struct box *b, uint64_t used)
{
    uint64_t full = b->order.limits.disk_bytes;

    /* a write is refused when it would not fit: the last few blocks stay unused */
    if (!b->disk_met && used + full / 64 + (64 << 10) >= full) {
        keeper_event_limit(b, LIMIT_DISK, full, used);
        b->disk_met = true;
    } else if (b->disk_met && used < full / 2)
        b->disk_met = false;
}

/* Processes learn of a limit by a signal or an error number; who runs the sandbox learns which
 * limit it was, its value and the use at that moment. */
void box_measure(struct box *b, struct keep_state *out)
{
    struct cgroup_usage u = { 0 };
    struct layer_usage disk = { 0 };
    struct err err;

    box_state(b, out);
    if (b->cgroup_made)
        cgroup_usage(&b->keeper->cgroups, b->name, &u);
    if (b->layer >= 0 && layer_usage(b->keeper->volume, b->family, &disk, &err))
        disk.used = 0;
    out->memory_bytes = u.memory_bytes;
    out->memory_peak_bytes = MAX(u.memory_peak_bytes, b->overrun_bytes);
    out->socket_bytes = b->socket_bytes;
    out->oom_kills = u.oom_kills;
    out->cpu_us = u.cpu_us;
    out->pids = u.pids;
    out->disk_bytes = disk.used;
    if (u.oom_kills > b->oom_kills)
        keeper_event_limit(b, LIMIT_MEMORY, b->order.limits.memory_bytes, u.memory_peak_bytes);
    if (u.pids_refused > b->pids_refused)
        keeper_event_limit(b, LIMIT_PIDS, b->order.limits.pids, MAX(u.pids, b->order.limits.pids));
    b->oom_kills = u.oom_kills;
    b->pids_refused = u.pids_refused;
    check_disk(b, disk.used);
}

void box_examine(struct box *b, struct keep_state *out)
{
    box_measure(b, out);
    if (b->cgroup_made)
        out->memory_cache_bytes = cgroup_cache_bytes(&b->keeper->cgroups, b->name);
    if (b->slot)
        net_slot_traffic(&b->slot->net, &out->net_rx_bytes, &out->net_tx_bytes);
    out->outdated = source_outdated(b);
    out->stopped = box_is_stopped(b);
}
