/* columns.h - columns for people: as wide as their widest cell, one line a row. */
#ifndef CLI_COLUMNS_H
#define CLI_COLUMNS_H

#include "base/arena.h"
#include "base/buf.h"

enum { COLUMNS_MAX = 12 };

struct columns {
    const char *const *heads; /* ends with NULL; borrowed */
    size_t columns, rows;
    struct arena text;
    char **cells; /* rows * columns */
    size_t cap;
};

void columns_init(struct columns *t, const char *const *heads);
/* One cell for each column, in order; NULL is "-". Control characters become '?': a cell may hold
 * what a stranger wrote, and a terminal obeys. */
void columns_row(struct columns *t, const char *const *cells);
void columns_write(const struct columns *t, bool colours, struct buf *out);
void columns_print(const struct columns *t); /* to standard output, colours if that is a terminal */
void columns_finish(struct columns *t);

/* "3s", "12m", "5h", "2d": the largest unit that is not zero. */
void columns_span(int64_t seconds, char *out, size_t n);
/* Seconds since 1970 from RFC 3339 in UTC; -1: it is none. */
int64_t columns_time(const char *rfc3339);
/* As columns_row() does it, for text that goes out by itself. */
void columns_clean(char *text);

#endif
