/* limits.c - see limits.h. */
#include "model/limits.h"

#include <assert.h>
#include <stdio.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* The memory bound's floor is what our guest, a shell and the kernel's share for them need. */
const struct limit_row limit_rows[LIMIT_COUNT] = {
    [LIMIT_MEMORY] = { "memory", UNIT_BYTES, 2 * GIB, 16 * MIB, 1024 * GIB * 16,
                       "memory, caches of its own files and kernel memory included" },
    [LIMIT_CPU] = { "cpus", UNIT_MILLI, 2000, 10, 1024000, "cores' worth of processor time" },
    [LIMIT_PIDS] = { "pids", UNIT_COUNT, 1024, 8, 1 << 22, "processes and threads" },
    [LIMIT_IO] = { "io-weight", UNIT_COUNT, 100, 1, 10000, "share of disk time against others" },
    [LIMIT_FILES] = { "files", UNIT_COUNT, 4096, 64, 1 << 20, "open files per process" },
    [LIMIT_DISK] = { "disk", UNIT_BYTES, 10 * GIB, MIB, 1024 * GIB * 64,
                     "bytes on disk that differ from the template" },
    [LIMIT_LOG] = { "log", UNIT_BYTES, MIB, 128 << 10, GIB,
                    "output kept per command for a reader that comes later" },
    [LIMIT_LIFETIME] = { "timeout", UNIT_MS, UINT64_C(86400000), 1, UINT64_C(31536000000),
                         "time until the sandbox is ended" },
};

/* The struct is the table's columns in order; this holds the two together. */
static_assert(sizeof(struct limits) == LIMIT_COUNT * sizeof(uint64_t), "a row per field");
static_assert(offsetof(struct limits, lifetime_ms) == LIMIT_LIFETIME * sizeof(uint64_t), "order");
static_assert(offsetof(struct limits, open_files) == LIMIT_FILES * sizeof(uint64_t), "order");

uint64_t *limits_field(struct limits *l, enum limit_id id) { return (uint64_t *)(void *)l + id; }

uint64_t limits_get(const struct limits *l, enum limit_id id)
{
    return ((const uint64_t *)(const void *)l)[id];
}

void limits_format(enum limit_id id, uint64_t value, char *out, size_t n)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
    unsigned long long v = value, whole = v;
    size_t u = 0;

    switch (limit_rows[id].unit) {
    case UNIT_BYTES:
        while (whole >= 1024 && u + 1 < ARRAY_LEN(units)) {
            whole /= 1024;
            u++;
        }
        if (u && v % (1ULL << (10 * u)))
            snprintf(out, n, "%.1f %s", (double)v / (double)(1ULL << (10 * u)), units[u]);
        else
            snprintf(out, n, "%llu %s", whole, units[u]);
        return;
    case UNIT_MILLI: snprintf(out, n, "%g", (double)v / 1000); return;
    case UNIT_MS: snprintf(out, n, "%g s", (double)v / 1000); return;
    case UNIT_COUNT: break;
    }
    snprintf(out, n, "%llu", v);
}

int limits_fill(struct limits *l, const struct limits *def, struct err *err)
{
    for (enum limit_id id = 0; id < LIMIT_COUNT; id++) {
        const struct limit_row *row = &limit_rows[id];
        uint64_t *v = limits_field(l, id), preset = def ? limits_get(def, id) : 0;
        char has[32], low[32], high[32];

        if (!*v)
            *v = preset ? preset : row->def;
        if (*v >= row->min && *v <= row->max)
            continue;
        limits_format(id, *v, has, sizeof(has));
        limits_format(id, row->min, low, sizeof(low));
        limits_format(id, row->max, high, sizeof(high));
        return err_set(err, ERR_INVALID, "limit '%s' is %s; it must be between %s and %s",
                       row->name, has, low, high);
    }
    return 0;
}
