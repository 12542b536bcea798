/* mountinfo.h - the lines of /proc/self/mountinfo. */
#ifndef CLI_MOUNTINFO_H
#define CLI_MOUNTINFO_H

#include <stdbool.h>

struct mountinfo {
    const char *root, *point, *type, *options; /* options: of the file system, not of the mount */
};

/* Takes the line apart in place, with its \040 escapes undone; false: not such a line. */
bool mountinfo_parse(char *line, struct mountinfo *out);
/* Calls fn for every mount of this process until it returns false. -1 with errno. */
int mountinfo_each(bool (*fn)(const struct mountinfo *m, void *arg), void *arg);
/* One of the comma-separated options, exactly. */
bool mountinfo_has(const struct mountinfo *m, const char *option);

#endif
