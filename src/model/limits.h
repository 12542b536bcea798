/* limits.h - what one sandbox may use. One table holds names, units, defaults and bounds; the
 * command line, the keeper's records, templates and error texts read it. */
#ifndef MODEL_LIMITS_H
#define MODEL_LIMITS_H

#include <stdint.h>

#include "base/err.h"

struct limits { /* every field 64 bits wide: a record on the wire; 0 in a request: the default */
    uint64_t memory_bytes;
    uint64_t cpu_milli; /* thousandths of a core */
    uint64_t pids;
    uint64_t io_weight;
    uint64_t open_files;
    uint64_t disk_bytes;
    uint64_t log_bytes; /* output kept for a reader that comes later */
    uint64_t lifetime_ms;
};

enum limit_id {
    LIMIT_MEMORY,
    LIMIT_CPU,
    LIMIT_PIDS,
    LIMIT_IO,
    LIMIT_FILES,
    LIMIT_DISK,
    LIMIT_LOG,
    LIMIT_LIFETIME,
    LIMIT_COUNT,
    LIMIT_NONE = LIMIT_COUNT
};

enum limit_unit { UNIT_BYTES, UNIT_MILLI, UNIT_COUNT, UNIT_MS };

struct limit_row {
    const char *name; /* "memory" */
    enum limit_unit unit;
    uint64_t def, min, max;
    const char *help;
};
extern const struct limit_row limit_rows[LIMIT_COUNT];

uint64_t *limits_field(struct limits *l, enum limit_id id);
uint64_t limits_get(const struct limits *l, enum limit_id id);
/* Zeroes become `def`s fields (NULL: the table's defaults); what is out of bounds is refused by
 * name. */
int limits_fill(struct limits *l, const struct limits *def, struct err *err);
void limits_format(enum limit_id id, uint64_t value, char *out, size_t n); /* "512 MiB", "1.5" */

#endif
