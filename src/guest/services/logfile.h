/* logfile.h - the log of a service in the shared directory: bounded, the part before kept once. */
#ifndef GUEST_SERVICES_LOGFILE_H
#define GUEST_SERVICES_LOGFILE_H

#include "base/err.h"
#include "base/str.h"

struct logfile;

/* `name` without a slash, beneath dir; a link of that name is refused. Files that are too large
 * become `name`.1. */
struct logfile *logfile_open(int dir, const char *name, struct err *err);
void logfile_write(struct logfile *l, struct str text); /* bounded by services.log-bytes */
void logfile_close(struct logfile *l);                  /* NULL is harmless */

/* Lines of log.h go there too from now on; NULL: nowhere. */
void logfile_take_log(struct logfile *l);
void logfile_raw(struct str text); /* text as it is, to where those lines go */

#endif
