/* clock.c - see clock.h. */
#include "base/clock.h"

static const char days[] = "SunMonTueWedThuFriSat";
static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

static struct timespec now(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return t;
}

int64_t clock_ms(void)
{
    struct timespec t = now(CLOCK_MONOTONIC);

    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

int64_t clock_us(void)
{
    struct timespec t = now(CLOCK_MONOTONIC);

    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

int64_t clock_wall_s(void) { return now(CLOCK_REALTIME_COARSE).tv_sec; }

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
    struct tm tm = { 0 };
    char text[32], month[4], out[32];
    const char *at;

    if (s.n != 29)
        return -1;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    if (sscanf(text + 5, "%2d %3s %4d %2d:%2d:%2d GMT", &tm.tm_mday, month, &tm.tm_year,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec) != 6)
        return -1;
    at = strlen(month) == 3 ? strstr(months, month) : NULL;
    if (!at || (at - months) % 3)
        return -1;
    tm.tm_mon = (int)(at - months) / 3;
    tm.tm_year -= 1900;
    int64_t sec = timegm(&tm);
    clock_http_date_of(sec, out); /* a date that does not print back as itself was not one */
    return memcmp(out, text, 29) ? -1 : sec;
}
