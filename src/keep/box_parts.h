/* box_parts.h - pieces of a sandbox's life that box.c and box_end.c put together. */
#ifndef KEEP_BOX_PARTS_H
#define KEEP_BOX_PARTS_H

#include "keep/keeper.h"

struct box_mounts { /* host directories, opened where the operator allows */
    struct jail_mount *list;
    size_t n;
};

bool box_path_allowed(const struct box *b, const char *host_path);
int box_open_mounts(const struct box *b, struct box_mounts *m, struct err *err);
void mounts_close(struct box_mounts *m);

/* The guest's listening socket, made outside, so that nothing inside can take its name. */
int box_listen(struct box *b, struct err *err);
void box_sweep_sockets(const struct keeper *k); /* names that nobody listens to */
int box_dial_guest(const struct box *b, struct err *err);

/* Pid 1 was stopped. Signals from inside its namespace do not do that to it. */
bool box_is_stopped(const struct box *b);

void box_fail(struct box *b, const struct err *err); /* it could not be built: undone, and told */
void box_on_report(struct source *s);                /* the word of a pid 1 that is being built */
void box_on_ended(struct source *s);

#endif
