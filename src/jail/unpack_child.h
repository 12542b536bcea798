/* unpack_child.h - the half of the unpacker that touches the archive, and how it reports. */
#ifndef JAIL_UNPACK_CHILD_H
#define JAIL_UNPACK_CHILD_H

#include "jail/unpack.h"
#include "jail/unpack_archive.h"
#include "jail/unpack_ns.h"

enum report_kind { REPORT_PROGRESS = 1, REPORT_DONE, REPORT_FAILED };

/* One write to the pipe, so whole. The parent believes none of it further than it must. */
struct unpack_report {
    uint32_t kind;
    uint32_t code; /* enum err_code of REPORT_FAILED */
    struct unpack_stats stats;
    char text[sizeof(((struct err *)0)->msg)];
};

struct unpack_bounds {
    int64_t entries, bytes, memory_bytes, seconds;
};

struct unpack_job {
    const struct unpack_archive *lib; /* loaded before: inside there is no file to load it from */
    struct unpack_ns *ns;
    struct unpack_bounds bounds;
    int input;   /* the archive's bytes */
    int report;  /* struct unpack_report */
    bool layer;  /* of a sandbox: as it was, or not at all */
    bool squash; /* all files are the caller's */
};

/* In the child that unpack_ns_clone() made. */
_Noreturn void unpack_child_main(const struct unpack_job *job);

#endif
