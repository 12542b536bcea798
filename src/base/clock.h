/* clock.h - monotonic time for deadlines, wall time for people. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include "base/buf.h"

#define NEVER INT64_MAX /* a deadline that does not come */

int64_t clock_ms(void);     /* monotonic */
int64_t clock_us(void);     /* monotonic */
int64_t clock_wall_s(void); /* unix seconds */
int64_t clock_wall_ms(void);
void clock_skip(int64_t ms); /* for tests: all of these go forward at once */
void clock_rfc3339(struct buf *out, int64_t sec,
                   int32_t nsec);  /* "2026-01-02T03:04:05.000000006Z" */
const char *clock_http_date(void); /* now, as HTTP wants it; made once a second per thread */
void clock_http_date_of(int64_t sec, char out[static 32]);
int64_t clock_parse_http_date(struct str s); /* IMF-fixdate only; -1 when it is not one */

#endif
