/* cgroup_files.h - reading and writing one file of one cgroup; shared by cgroup.c and
 * cgroup_read.c. */
#ifndef JAIL_CGROUP_FILES_H
#define JAIL_CGROUP_FILES_H

#include <stdint.h>

/* dir/name/file, or dir/file without a name. All return -1 with errno. */
int cgroup_write(int dir, const char *name, const char *file, const char *text);
int cgroup_read_number(int dir, const char *name, const char *file, uint64_t *out);
int cgroup_read_key(int dir, const char *name, const char *file, const char *key, uint64_t *out);

#endif
