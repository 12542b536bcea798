/* statedir.h - where the keeper's files are: a directory with one file for each sandbox, and the
 * number of the schema that they have.
 *
 * <parent>/<name> is a link to <name>-3, so that release 46eceed, which knows no schema but follows
 * no link, stops there before it takes what it cannot read for nobody's. From schema 3 on the
 * number in <dir>/schema decides, and the link stays as it is.
 *
 * <dir>/schema, in the data and the run directory, is a number in decimal: the newest schema that
 * a keeper used there. Who knows only older ones leaves everything as it is. */
#ifndef KEEP_STATEDIR_H
#define KEEP_STATEDIR_H

#include "keep/boxfile.h"

int schema_check(const char *dir, struct err *err); /* -1: it is newer than ours, or unreadable */
int schema_raise(const char *dir, struct err *err); /* it is ours from now on */

/* Makes it, or brings it from the form of release 46eceed. A descriptor. */
int statedir_open(const char *parent, const char *name, struct err *err);

/* IN_PLACE: whole or as before when we are killed; costs least. WHOLE: also when the machine stops
 * and the disk is written in any order. LASTING: and on disk but for its name. */
enum statedir_how { STATE_IN_PLACE, STATE_WHOLE, STATE_LASTING };
int statedir_write(int dir, const char *id, struct str bytes, enum statedir_how how,
                   struct err *err);
/* The same in three steps, so that somebody else can wait for the disk (fsync) between the first
 * two: a file without a name, which goes with the last descriptor of it, and its name. */
int statedir_draft(int dir, struct str bytes, struct err *err);
int statedir_place(int dir, int draft, const char *id, struct err *err);
int statedir_read(int dir, const char *id, struct buf *out, struct err *err); /* ERR_NOT_FOUND */

/* A damaged file gets a second name, <id>.damaged, which nobody of us removes. */
void statedir_set_aside(int dir, const char *id);

#endif
