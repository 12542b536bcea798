/* limit_args.h - the limits of a sandbox as options read them; `cove run` and `cove template add`
 * have the same ones. */
#ifndef CLI_LIMIT_ARGS_H
#define CLI_LIMIT_ARGS_H

#include "model/limits.h"

struct limit_args { /* 0: not given; timeout in seconds */
    int64_t memory, cpus, disk, pids, files, io_weight, log, timeout;
};

struct limits limit_args_read(const struct limit_args *a);

#endif
