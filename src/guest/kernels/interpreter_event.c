/* interpreter_event.c - see interpreter_event.h. Values are pasted as the kernel wrote them, once
 * they have been seen to be JSON; only the text of a result is looked into. */
#include "guest/kernels/interpreter_event.h"

#include "base/json.h"
#include "guest/kernels/scan.h"

static const struct {
    const char *mime, *key;
} formats[] = {
    { "text/plain", "text" },        { "text/html", "html" },
    { "text/markdown", "markdown" }, { "image/svg+xml", "svg" },
    { "image/png", "png" },          { "image/jpeg", "jpeg" },
    { "application/pdf", "pdf" },    { "text/latex", "latex" },
    { "application/json", "json" },  { "application/javascript", "javascript" },
    { "e2b/data", "data" },          { "e2b/chart", "chart" },
};

static void begin(struct buf *out, const char *type)
{
    json_open(out, '{');
    json_kv_str(out, "type", type);
}

static void end(struct buf *out)
{
    json_close(out, '}');
    buf_putc(out, '\n');
}

static void put_raw(struct buf *out, const char *key, struct str value)
{
    json_key(out, key);
    json_put_raw(out, value.p ? value : STR("null"));
}

void event_simple(struct buf *out, const char *type)
{
    begin(out, type);
    end(out);
}

void event_error(struct buf *out, const char *name, const char *value, const char *traceback)
{
    begin(out, "error");
    json_kv_str(out, "name", name);
    json_kv_str(out, "value", value);
    json_kv_str(out, "traceback", traceback);
    end(out);
}

/* ---- results ---- */

/* 'abc' is what Python shows for a string whose text is abc. */
static void put_text(struct buf *out, struct str raw, struct arena *a)
{
    char *text = scan_string(a, raw);
    struct str s = str_of(text);

    if (!text) {
        put_raw(out, "text", raw);
        return;
    }
    if (s.n >= 2 && (s.p[0] == '\'' || s.p[0] == '"') && s.p[s.n - 1] == s.p[0])
        s = (struct str){ s.p + 1, s.n - 2 };
    json_key(out, "text");
    json_put_str(out, s);
}

static bool put_format(struct buf *out, struct str key, struct str value, struct arena *a)
{
    struct str mime = scan_plain(key);

    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (str_is(mime, formats[i].mime)) {
            if (i == 0)
                put_text(out, value, a);
            else
                put_raw(out, formats[i].key, value);
            return true;
        }
    return false;
}

static void put_result(struct buf *out, struct str content, bool main)
{
    struct str data = scan_get(content, "data"), rest = data, key, value;
    AUTO(buf_free) struct buf extra = { 0 };
    AUTO(arena_free) struct arena a = { 0 };

    begin(out, "result");
    while (scan_next(&rest, &key, &value))
        if (!put_format(out, key, value, &a)) {
            buf_puts(&extra, extra.len ? "," : "{");
            buf_add_str(&extra, key);
            buf_putc(&extra, ':');
            buf_add_str(&extra, value);
        }
    if (extra.len) {
        buf_putc(&extra, '}');
        put_raw(out, "extra", buf_str(&extra));
    }
    json_kv_bool(out, "is_main_result", main);
    end(out);
}

/* ---- the rest ---- */

static void put_stream(struct buf *out, struct str header, struct str content)
{
    struct str name = scan_plain(scan_get(content, "name"));

    begin(out, str_is(name, "stderr") ? "stderr" : "stdout");
    put_raw(out, "text", scan_get(content, "text"));
    put_raw(out, "timestamp", scan_get(header, "date"));
    end(out);
}

/* The lines of a traceback become one text. */
static void put_error(struct buf *out, struct str content)
{
    struct str lines = scan_get(content, "traceback"), line;
    AUTO(buf_free) struct buf text = { 0 };
    AUTO(arena_free) struct arena a = { 0 };

    while (scan_item(&lines, &line)) {
        char *s = scan_string(&a, line);

        if (text.len)
            buf_putc(&text, '\n');
        buf_puts(&text, s ? s : "");
    }
    begin(out, "error");
    put_raw(out, "name", scan_get(content, "ename"));
    put_raw(out, "value", scan_get(content, "evalue"));
    json_key(out, "traceback");
    json_put_str(out, buf_str(&text));
    end(out);
}

enum event_kind event_write(const struct message *m, struct buf *out)
{
    struct str type = message_type(m), header = message_part(m, PART_HEADER),
               content = message_part(m, PART_CONTENT);

    if (!scan_valid(header) || !scan_valid(content))
        return EVENT_NONE;
    if (str_is(type, "status"))
        return str_is(scan_plain(scan_get(content, "execution_state")), "idle") ? EVENT_IDLE
                                                                                : EVENT_NONE;
    if (str_is(type, "stream")) {
        put_stream(out, header, content);
    } else if (str_is(type, "execute_result") || str_is(type, "display_data")) {
        put_result(out, content, str_is(type, "execute_result"));
    } else if (str_is(type, "error")) {
        put_error(out, content);
    } else if (str_is(type, "execute_input")) {
        begin(out, "number_of_executions");
        put_raw(out, "execution_count", scan_get(content, "execution_count"));
        end(out);
    } else {
        return EVENT_NONE;
    }
    return EVENT_LINE;
}
