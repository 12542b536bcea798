/* box_parts.h - pieces of a sandbox's life that box.c and box_end.c put together. */
#ifndef KEEP_BOX_PARTS_H
#define KEEP_BOX_PARTS_H

#include "keep/keeper.h"

/* opening.c: host directories, opened where the operator allows, by a child */
bool box_path_allowed(const struct box *b, const char *host_path);
bool opening_needed(const struct box *b);
int opening_begin(struct box *b, struct err *err); /* tells box_opened() then, or at its time */
void opening_forget(struct box *b);                /* stops it, and closes what was opened */

/* The guest's listening socket, made outside, so that nothing inside can take its name. */
int box_listen(struct box *b, struct err *err);
void box_sweep_sockets(const struct keeper *k); /* names that nobody listens to */
int box_dial_guest(const struct box *b, struct err *err);

/* Pid 1 was stopped. Signals from inside its namespace do not do that to it. */
bool box_is_stopped(const struct box *b);

void box_opened(struct box *b, const struct err *err); /* err NULL: all of them */
void box_fail(struct box *b, const struct err *err);   /* it could not be built: undone, and told */
void box_on_report(struct source *s);                  /* the word of a pid 1 that is being built */
void box_on_ended(struct source *s);

#endif
