/* help.h - the tables as text for people. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "base/buf.h"
#include "cli/args.h"

bool help_colours(void); /* standard output is a terminal, and NO_COLOR is not set */
void help_print(const struct command *c, const char *path); /* to standard output */
void help_write(struct buf *b, const struct command *c, const char *path, bool colours);

/* For the man page as well: "[options] FILE [ARG...]". */
void help_usage_tail(struct buf *b, const struct command *c);
/* The help of an option with its bounds: "memory it may use (at least 16M, default 512M)". */
void help_option_text(struct buf *b, const struct args_option *o);

#endif
