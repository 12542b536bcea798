/* rmtree.h - removing a tree that somebody else filled, as deep as they liked, without following a
 * link of it. */
#ifndef JAIL_RMTREE_H
#define JAIL_RMTREE_H

/* Removes `name` in the directory `dir`, whatever it is; what is not there is no error. Never
 * leaves the file system it began on (EXDEV). Takes four descriptors. -1 with errno. */
int rmtree(int dir, const char *name);

/* The same where an ordinary user's sandbox may have left files of that user's subordinate ids,
 * which only root of a user namespace with those ids may touch. Not for a process with threads: it
 * clones. */
int rmtree_foreign(int dir, const char *name);

#endif
