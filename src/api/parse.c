/* parse.c - see parse.h. */
#include "api/parse.h"

#include <time.h>

#include "model/sandbox.h"

/* ---- metadata ---- */

static int one_pair(struct arena *a, struct str pair, struct map_item *out)
{
    struct str key, value;

    if (!str_cut(pair, '=', &key, &value) || !key.n)
        return -1;
    if (str_percent_decode(a, key, true, &key) || str_percent_decode(a, value, true, &value))
        return -1;
    if (!utf8_valid(key) || !utf8_valid(value))
        return -1;
    out->key = arena_strdup(a, key);
    out->value = arena_strdup(a, value);
    return 0;
}

int parse_metadata(struct arena *a, struct str text, bool twice, struct map *out, struct err *err)
{
    struct str rest = text, pair;

    *out = (struct map){ 0 };
    /* As E2B's server does it: the whole first, then the parts. An escaped '&' is still escaped
     * after the first step, so nothing is cut that should not be. */
    if (twice && str_percent_decode(a, text, true, &rest))
        return err_set(err, ERR_INVALID, "query parameter 'metadata' has a bad %% escape");
    out->items = arena_alloc(a, sizeof(*out->items) * PARSE_PAIRS_MAX);
    while (rest.n) {
        str_cut(rest, '&', &pair, &rest);
        if (!pair.n)
            continue;
        if (out->n == PARSE_PAIRS_MAX)
            return err_set(err, ERR_INVALID, "query parameter 'metadata' has over %d pairs",
                           PARSE_PAIRS_MAX);
        if (one_pair(a, pair, &out->items[out->n++]))
            return err_set(err, ERR_INVALID,
                           "query parameter 'metadata' must be name=value pairs, percent-encoded "
                           "and joined by '&'");
    }
    return 0;
}

/* ---- time ---- */

struct at {
    struct str rest;
    bool ok;
};

static int number(struct at *t, size_t digits, int max)
{
    int v = 0;

    if (t->rest.n < digits)
        t->ok = false;
    for (size_t i = 0; t->ok && i < digits; i++) {
        char ch = t->rest.p[i];

        t->ok = ch >= '0' && ch <= '9';
        v = v * 10 + (ch - '0');
    }
    if (!t->ok || v > max) {
        t->ok = false;
        return 0;
    }
    t->rest.p += digits;
    t->rest.n -= digits;
    return v;
}

static bool skip(struct at *t, const char *any_of)
{
    if (!t->rest.n || !strchr(any_of, t->rest.p[0]))
        return false;
    t->rest.p++;
    t->rest.n--;
    return true;
}

static void need(struct at *t, const char *any_of) { t->ok = t->ok && skip(t, any_of); }

static int fraction_ms(struct at *t)
{
    int ms = 0, unit = 100;

    if (!t->ok || !skip(t, "."))
        return 0;
    t->ok = t->rest.n && t->rest.p[0] >= '0' && t->rest.p[0] <= '9';
    while (t->rest.n && t->rest.p[0] >= '0' && t->rest.p[0] <= '9') {
        ms += unit * (t->rest.p[0] - '0');
        unit /= 10;
        t->rest.p++;
        t->rest.n--;
    }
    return ms;
}

static int offset_s(struct at *t)
{
    int sign, s;

    if (!t->ok || skip(t, "Zz"))
        return 0;
    sign = t->rest.n && t->rest.p[0] == '-' ? -1 : 1;
    need(t, "+-");
    s = number(t, 2, 23) * 3600;
    need(t, ":");
    return sign * (s + number(t, 2, 59) * 60);
}

int parse_time(struct str text, int64_t *unix_ms, struct err *err)
{
    struct at t = { text, true };
    struct tm tm = { 0 }, back;
    int64_t s;
    int ms;

    tm.tm_year = number(&t, 4, 9999) - 1900;
    need(&t, "-");
    tm.tm_mon = number(&t, 2, 12) - 1;
    need(&t, "-");
    tm.tm_mday = number(&t, 2, 31);
    need(&t, "Tt ");
    tm.tm_hour = number(&t, 2, 23);
    need(&t, ":");
    tm.tm_min = number(&t, 2, 59);
    need(&t, ":");
    tm.tm_sec = number(&t, 2, 60);
    back = tm;
    ms = fraction_ms(&t);
    s = timegm(&back);
    s -= offset_s(&t);
    /* timegm() takes the 31st of February for one of March: what comes back must be what went in,
     * but for a leap second, which becomes the next minute. */
    if (!t.ok || t.rest.n || tm.tm_mon < 0 || tm.tm_mday < 1 ||
        (back.tm_mday != tm.tm_mday && tm.tm_sec < 60))
        return err_set(err, ERR_INVALID, "'%.*s' is not a time like 2026-01-31T12:00:00Z",
                       (int)MIN(text.n, (size_t)40), text.p);
    *unix_ms = s * 1000 + ms;
    return 0;
}

/* ---- cursors and keys ---- */

bool parse_cursor(struct str text)
{
    struct str at, id;
    uint64_t ms;

    return str_cut(text, '.', &at, &id) && at.n <= 15 && !str_u64(at, &ms) && id.n == SANDBOX_ID &&
           sandbox_id_valid(id);
}

bool parse_idempotency_key(struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        char ch = text.p[i];

        if (!(ch >= 'a' && ch <= 'z') && !(ch >= '0' && ch <= '9') && ch != '-')
            return false;
    }
    return text.n >= 1 && text.n <= 255;
}
