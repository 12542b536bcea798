/* limit_args.c - see limit_args.h. */
#include "cli/limit_args.h"

struct limits limit_args_read(const struct limit_args *a)
{
    return (struct limits){
        .memory_bytes = (uint64_t)a->memory,
        .cpu_milli = (uint64_t)a->cpus,
        .pids = (uint64_t)a->pids,
        .io_weight = (uint64_t)a->io_weight,
        .open_files = (uint64_t)a->files,
        .disk_bytes = (uint64_t)a->disk,
        .log_bytes = (uint64_t)a->log,
        .lifetime_ms =
            (uint64_t)MIN(a->timeout, INT64_MAX / 1000) * 1000, /* limits_fill() refuses it */
    };
}
