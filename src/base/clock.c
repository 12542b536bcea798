/* clock.c - see clock.h. */
#include "base/clock.h"

#include <stdatomic.h>

static const char days[] = "SunMonTueWedThuFriSat";
static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

static _Atomic int64_t skipped_ms; /* stays 0 outside of tests */

void clock_skip(int64_t ms) { atomic_fetch_add_explicit(&skipped_ms, ms, memory_order_relaxed); }

static int64_t in_us(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000 +
           atomic_load_explicit(&skipped_ms, memory_order_relaxed) * 1000;
}

int64_t clock_us(void) { return in_us(CLOCK_MONOTONIC); }
int64_t clock_ms(void) { return clock_us() / 1000; }
int64_t clock_wall_s(void) { return in_us(CLOCK_REALTIME_COARSE) / 1000000; }
int64_t clock_wall_ms(void) { return in_us(CLOCK_REALTIME) / 1000; }

void clock_rfc3339(struct buf *out, int64_t sec, int32_t nsec)
{
    time_t t = (time_t)sec;
    struct tm tm;

    if (!gmtime_r(&t, &tm))
        memset(&tm, 0, sizeof(tm));
    buf_printf(out, "%04d-%02d-%02dT%02d:%02d:%02d", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
               tm.tm_hour, tm.tm_min, tm.tm_sec);
    if (nsec)
        buf_printf(out, ".%09d", nsec);
    buf_putc(out, 'Z');
}

void clock_http_date_of(int64_t sec, char out[static 32])
{
    time_t t = (time_t)sec;
    struct tm tm;

    if (!gmtime_r(&t, &tm))
        memset(&tm, 0, sizeof(tm));
    snprintf(out, 32, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", days + (size_t)tm.tm_wday * 3,
             tm.tm_mday, months + (size_t)tm.tm_mon * 3, (tm.tm_year + 1900) % 10000, tm.tm_hour,
             tm.tm_min, tm.tm_sec);
}

const char *clock_http_date(void)
{
    static _Thread_local char text[32];
    static _Thread_local int64_t made_s = -1;
    int64_t s = clock_wall_s();

    if (s != made_s) {
        clock_http_date_of(s, text);
        made_s = s;
    }
    return text;
}

int64_t clock_parse_http_date(struct str s)
{
    /* "Sun, 06 Nov 1994 08:49:37 GMT": where the numbers stand */
    static const struct {
        unsigned char at, n;
    } part[] = { { 5, 2 }, { 12, 4 }, { 17, 2 }, { 20, 2 }, { 23, 2 } };
    uint64_t v[ARRAY_LEN(part)];
    struct tm tm = { 0 };
    char out[32];
    int64_t sec;

    if (s.n != 29)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(part); i++)
        if (str_u64((struct str){ s.p + part[i].at, part[i].n }, &v[i]))
            return -1;
    for (tm.tm_mon = 0; tm.tm_mon < 12; tm.tm_mon++)
        if (!memcmp(s.p + 8, months + (size_t)tm.tm_mon * 3, 3))
            break;
    tm.tm_mday = (int)v[0];
    tm.tm_year = (int)v[1] - 1900;
    tm.tm_hour = (int)v[2];
    tm.tm_min = (int)v[3];
    tm.tm_sec = (int)v[4];
    sec = timegm(&tm);
    clock_http_date_of(sec, out); /* a date that does not print back as itself was not one */
    return memcmp(out, s.p, 29) ? -1 : sec;
}
