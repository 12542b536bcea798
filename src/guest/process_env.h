/* process_env.h - what a command is run with: its argument vector, environment and directory. */
#ifndef GUEST_PROCESS_ENV_H
#define GUEST_PROCESS_ENV_H

#include "guest/process.h"

struct process_env {
    struct arena arena;
    char **paths, **argv, **envp;
};

/* Fills env; returns the working directory's descriptor, -1 with err. */
int process_env_build(struct process_env *env, struct guest *g, const struct process_start *start,
                      struct err *err);
void process_env_free(struct process_env *env);
void process_env_describe(struct buf *json, const struct process_config *c);
const char *process_signal_name(int signal); /* Go's words: "killed", "terminated" */

#endif
