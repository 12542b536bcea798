/* files.h - what /files and /files/compose share. */
#ifndef GUEST_FILES_H
#define GUEST_FILES_H

#include <sys/stat.h>

#include "guest/guest.h"

enum { FILES_COPY = 512 << 10 };

struct files_opening {
    int root, fd;
    const char *path;
    struct stat st;
};

int files_open(struct files_opening *o, struct err *err); /* a regular file. Blocks: for workers */
void files_put_written(struct buf *json, const char *path, const struct map *metadata);

extern const struct field files_compose_fields[];
int files_compose(struct call *c, void *body, struct err *err);

#endif
