/* log.c - see log.h. A line is one write(2), so lines of several threads never mix. */
#include "base/log.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"

enum log_level log_level = LOG_INFO;
enum log_format log_format = LOG_LOGFMT;
void (*log_sink)(struct str line);

static const char *const levels[] = { "debug", "info", "warn", "error", "off" };
static const char *const formats[] = { "logfmt", "json" };

static int find(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(names[i], name))
            return (int)i;
    return -1;
}

int log_set_level(const char *name)
{
    int i = find(levels, ARRAY_LEN(levels), name);

    if (i >= 0)
        log_level = (enum log_level)i;
    return i < 0 ? -1 : 0;
}

int log_set_format(const char *name)
{
    int i = find(formats, ARRAY_LEN(formats), name);

    if (i >= 0)
        log_format = (enum log_format)i;
    return i < 0 ? -1 : 0;
}

static bool is_bare(const char *s) /* needs no quotes in logfmt */
{
    if (!*s)
        return false;
    for (; *s; s++)
        if (*s <= ' ' || *s == '"' || *s == '=' || *s == '\\' || *s > '~')
            return false;
    return true;
}

static void put_logfmt(struct buf *b, const char *key, const char *text)
{
    AUTO(buf_free) struct buf quoted = { 0 };

    buf_printf(b, "%s%s=", b->len ? " " : "", key);
    if (is_bare(text)) {
        buf_puts(b, text);
        return;
    }
    json_put_str(&quoted, str_of(text));
    buf_add_str(b, buf_str(&quoted));
}

void log_render(struct buf *out, enum log_level level, const char *msg, const struct log_kv *kv)
{
    AUTO(buf_free) struct buf time = { 0 };
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    clock_rfc3339(&time, t.tv_sec, (int32_t)(t.tv_nsec / 1000000 * 1000000));
    if (log_format == LOG_JSON) {
        json_open(out, '{');
        json_kv_str(out, "time", buf_cstr(&time));
        json_kv_str(out, "level", levels[level]);
        json_kv_str(out, "msg", msg);
        for (; kv->key; kv++)
            if (kv->is_number)
                json_kv_int(out, kv->key, kv->number);
            else
                json_kv_str(out, kv->key, kv->text ? kv->text : "");
        json_close(out, '}');
    } else {
        put_logfmt(out, "time", buf_cstr(&time));
        put_logfmt(out, "level", levels[level]);
        put_logfmt(out, "msg", msg);
        for (; kv->key; kv++)
            if (kv->is_number)
                buf_printf(out, " %s=%lld", kv->key, (long long)kv->number);
            else
                put_logfmt(out, kv->key, kv->text ? kv->text : "");
    }
    buf_putc(out, '\n');
}

void log_write(enum log_level level, const char *msg, const struct log_kv *kv)
{
    AUTO(buf_free) struct buf line = { 0 };

    log_render(&line, level, msg, kv);
    if (log_sink)
        log_sink(buf_str(&line));
    else if (write(STDERR_FILENO, line.data, line.len) < 0)
        return; /* nobody reads the log: there is nobody to tell */
}
