/* httpfile.h - answering with a file: ranges, conditions, sendfile. */
#ifndef IO_HTTPFILE_H
#define IO_HTTPFILE_H

#include <sys/stat.h>

#include "io/httpd.h"

struct http_range {
    int64_t first, length;
};

/* Pure: one range of a Range value for a file of this size. 1 it holds, 0 send the whole file
 * (absent, malformed, or more than one range), -1 it lies outside: 416. */
int http_parse_range(struct str value, int64_t size, struct http_range *out);
const char *http_type_of(const char *name); /* Content-Type by extension */

/* Sends an open regular file; st is its fstat. Headers may have been added with call_header(). */
int call_send_file(struct call *c, int fd, const struct stat *st, const char *type,
                   struct err *err);

#endif
