/* column.h - the columns of a sandbox's row, one table for every SQL store: their names, and what
 * each holds of struct sandbox as the number or text that a database keeps. */
#ifndef STORE_COLUMN_H
#define STORE_COLUMN_H

#include "model/sandbox.h"

enum column_kind {
    COLUMN_INT,
    COLUMN_BOOL,  /* 0 or 1 */
    COLUMN_NAME,  /* an enum, by its name: rows stay true when an enum's order changes */
    COLUMN_CHARS, /* text in an array of the struct */
    COLUMN_TEXT,  /* text in the arena; NULL stays NULL */
    COLUMN_JSON,  /* a map or list, by a field table; NULL when empty */
};

struct column {
    const char *name; /* NULL ends the table */
    enum column_kind kind;
    size_t offset, size;
    const char *const *names; /* NAME: of its enum, */
    size_t nnames;            /* and how many */
    const struct field *json; /* JSON: a table of one field */
    bool fixed;               /* set when the row is made, never after */
};

struct column_value { /* text NULL and not a number: NULL */
    bool is_int;
    int64_t i;
    const char *text;
};

extern const struct column column_sandbox[];

/* What it makes anew lives in the arena, the rest in s. */
struct column_value column_get(const struct column *c, const struct sandbox *s, struct arena *a);
/* ERR_INTERNAL names the column when the value is none that we write. */
int column_set(const struct column *c, struct column_value v, struct sandbox *s, struct err *err);

#endif
