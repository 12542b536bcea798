/* setting.h - bounds with a name: the parser, the limits, the help and the error texts all read
 * one table, so they cannot disagree. */
#ifndef BASE_SETTING_H
#define BASE_SETTING_H

#include "base/buf.h"
#include "base/err.h"

struct setting {
    const char *name; /* "http.header-bytes"; NULL ends the table */
    int64_t *value;   /* holds the default until set */
    int64_t min, max;
    const char *help; /* one sentence with its unit; of one that has gone: why it does nothing */
    bool gone;        /* accepted for one more release, with a warning */
    /* Where it is a text and no number: what holds it, of max bytes with the NUL. */
    char *text;
    int (*check)(const char *value, struct err *err);
};

/* "name=value" for one of several tables (the list ends with NULL). */
int setting_set(const struct setting *const *tables, const char *assignment, struct err *err);
void setting_value(const struct setting *s, struct buf *out); /* as it is now */
void setting_print(const struct setting *const *tables, struct buf *out);

#endif
