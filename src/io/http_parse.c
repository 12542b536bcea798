/* http_parse.c - the grammar of heads: pure, bytes in and slices out, no allocation.
 *
 * Refused with 400 and a closed connection: bare LF, folded lines, NUL and other controls, a space
 * before the colon, both framings at once, a length given twice. */
#include "base/arena.h"
#include "io/http.h"
#include "io/sock.h"

struct http_limits http_limits = {
    .header_bytes = 32 << 10,
    .header_count = 100,
    .body_bytes = 16 << 20,
    .header_ms = 20000,
    .idle_ms = 600000,
    .body_ms = 60000,
    .write_ms = 60000,
    .reserve = 1024,
};

const struct setting http_settings[] = {
    { "http.header-bytes", &http_limits.header_bytes, 1024, 256 << 10,
      "bytes of one message head" },
    { "http.header-count", &http_limits.header_count, 4, HTTP_FIELDS,
      "fields of one message head" },
    { "http.body-bytes", &http_limits.body_bytes, 0, INT64_MAX,
      "bytes of a body that is held in memory" },
    { "http.header-ms", &http_limits.header_ms, 10, INT32_MAX,
      "time a client may take to send its first byte, and a head" },
    { "http.idle-ms", &http_limits.idle_ms, 10, INT32_MAX,
      "time a kept connection may wait for its next request" },
    { "http.body-ms", &http_limits.body_ms, 10, INT32_MAX,
      "time a sender may pause within a body" },
    { "http.write-ms", &http_limits.write_ms, 10, INT32_MAX,
      "time a reader may take nothing of an answer that has a length" },
    { "http.peer-ms", &sock_peer_ms, 100, INT32_MAX,
      "time a peer may leave what it was sent unanswered before it is taken for dead" },
    { "http.connections", &http_limits.connections, 0, INT32_MAX,
      "connections at once, beyond which an idle one goes; 0: by RLIMIT_NOFILE, up to 16384" },
    { "http.peer-connections", &http_limits.peer_connections, 0, INT32_MAX,
      "those of one address (IPv6: of a /64); 0: three quarters" },
    { "http.reserve", &http_limits.reserve, 0, INT32_MAX,
      "open files that connections leave free, but at most a quarter of RLIMIT_NOFILE" },
    { 0 },
};

enum { TOKEN = 1, TEXT = 2, TARGET = 4 };

static const unsigned char class[256] = {
    ['\t'] = TEXT,
    [' '] = TEXT,
    ['!'] = TOKEN | TEXT | TARGET,
    ['"'] = TEXT | TARGET,
    ['#' ... '\''] = TOKEN | TEXT | TARGET,
    ['(' ... ')'] = TEXT | TARGET,
    ['*' ... '+'] = TOKEN | TEXT | TARGET,
    [','] = TEXT | TARGET,
    ['-' ... '.'] = TOKEN | TEXT | TARGET,
    ['/'] = TEXT | TARGET,
    ['0' ... '9'] = TOKEN | TEXT | TARGET,
    [':' ... '@'] = TEXT | TARGET,
    ['A' ... 'Z'] = TOKEN | TEXT | TARGET,
    ['[' ... ']'] = TEXT | TARGET,
    ['^' ... 'z'] = TOKEN | TEXT | TARGET,
    ['{'] = TEXT | TARGET,
    ['|'] = TOKEN | TEXT | TARGET,
    ['}'] = TEXT | TARGET,
    ['~'] = TOKEN | TEXT | TARGET,
    [128 ... 255] = TEXT,
};

static const char *span(const char *p, const char *end, unsigned char of)
{
    while (p < end && class[(unsigned char)*p] & of)
        p++;
    return p;
}

static int bad(struct err *err, const char *what) { return err_set(err, ERR_INVALID, "%s", what); }

/* Consumes CRLF: 1 done, 0 more bytes needed, -1 something else is there. */
static int end_of_line(const char **p, const char *end, struct err *err)
{
    if (*p == end)
        return 0;
    if (**p != '\r')
        return bad(err, **p == '\n' ? "bare LF in the message head"
                                    : "control character in the message head");
    if (*p + 1 == end)
        return 0;
    if ((*p)[1] != '\n')
        return bad(err, "CR without LF in the message head");
    *p += 2;
    return 1;
}

static int request_line(const char **at, const char *end, struct http_head *h, struct err *err)
{
    const char *p = span(*at, end, TOKEN), *t;

    if (p == end)
        return 0;
    if (p == *at || *p != ' ')
        return bad(err, "bad request line: no method");
    h->method = (struct str){ *at, (size_t)(p - *at) };
    t = ++p;
    p = span(p, end, TARGET);
    if (p == end)
        return 0;
    if (p == t || *p != ' ')
        return bad(err, "bad request line: no target, or a byte that must be escaped");
    h->target = (struct str){ t, (size_t)(p - t) };
    if (end - p < 9)
        return memcmp(p, " HTTP/1.", (size_t)MIN(end - p, 8))
                   ? bad(err, "bad request line: no HTTP/1.1 version")
                   : 0;
    if (memcmp(p, " HTTP/1.", 8) || (p[8] != '0' && p[8] != '1'))
        return bad(err, "bad request line: no HTTP/1.1 version");
    h->minor = p[8] - '0';
    *at = p + 9;
    return end_of_line(at, end, err);
}

static int status_line(const char **at, const char *end, struct http_head *h, struct err *err)
{
    const char *p = *at;

    if (end - p < 13)
        return memcmp(p, "HTTP/1.", (size_t)MIN(end - p, 7)) ? bad(err, "bad status line") : 0;
    if (memcmp(p, "HTTP/1.", 7) || (p[7] != '0' && p[7] != '1') || p[8] != ' ')
        return bad(err, "bad status line");
    for (int i = 9; i < 12; i++)
        if (p[i] < '0' || p[i] > '9')
            return bad(err, "bad status line");
    if (p[12] != ' ' && p[12] != '\r' && p[12] != '\n')
        return bad(err, "bad status line");
    h->minor = p[7] - '0';
    h->status = (p[9] - '0') * 100 + (p[10] - '0') * 10 + p[11] - '0';
    *at = span(p + 12, end, TEXT);
    if (h->status < 100)
        return bad(err, "bad status line");
    return end_of_line(at, end, err);
}

static void connection_field(struct http_head *h, struct str value)
{
    struct str item;

    while (str_next(&value, ',', &item)) {
        if (str_iis(item, "close"))
            h->keep = false;
        else if (str_iis(item, "keep-alive"))
            h->keep |= !h->minor; /* news in HTTP/1.0 only: in 1.1 it must not undo "close" */
        else if (str_iis(item, "upgrade"))
            h->upgrade = true;
    }
}

/* The few fields that decide where a message ends. */
static int framing(struct http_head *h, struct str name, struct str value, struct err *err)
{
    uint64_t n;

    switch (name.n) {
    case 6:
        if (str_iis(name, "expect") && str_iis(value, "100-continue"))
            h->expect = true;
        break;
    case 10:
        if (str_iis(name, "connection"))
            connection_field(h, value);
        break;
    case 14:
        if (!str_iis(name, "content-length"))
            break;
        if (h->length >= 0)
            return bad(err, "Content-Length given twice");
        if (str_u64(value, &n) || n > INT64_MAX)
            return bad(err, "Content-Length is not a number");
        h->length = (int64_t)n;
        break;
    case 17:
        if (!str_iis(name, "transfer-encoding"))
            break;
        if (h->chunked || !str_iis(value, "chunked"))
            return bad(err, "Transfer-Encoding is not 'chunked'");
        h->chunked = true;
        break;
    default: break;
    }
    return 0;
}

/* One field line: 1 read, 0 more needed, -1 bad. */
static int field_line(const char **at, const char *end, struct http_head *h, struct err *err)
{
    const char *p = span(*at, end, TOKEN), *v;
    struct str name, value;
    int r;

    if (p == end)
        return 0;
    if (p == *at || *p != ':')
        return bad(err, **at == ' ' || **at == '\t' ? "folded header line"
                                                    : "bad header line: no name and colon");
    name = (struct str){ *at, (size_t)(p - *at) };
    v = ++p;
    p = span(p, end, TEXT);
    value = str_trim((struct str){ v, (size_t)(p - v) });
    r = end_of_line(&p, end, err);
    if (r <= 0)
        return r;
    if (h->count >= (int)http_limits.header_count)
        return err_set(err, ERR_HEADERS, "more than http.header-count=%lld header fields",
                       (long long)http_limits.header_count);
    h->field[h->count++] = (struct http_field){ name, value };
    *at = p;
    return framing(h, name, value, err) ? -1 : 1;
}

static int field_lines(const char **at, const char *end, struct http_head *h, struct err *err)
{
    int r;

    while (*at < end && **at != '\r') {
        r = field_line(at, end, h, err);
        if (r <= 0)
            return r;
    }
    return end_of_line(at, end, err);
}

static void head_clear(struct http_head *h)
{
    h->method = h->target = (struct str){ 0 };
    h->status = h->minor = h->count = 0;
    h->length = -1;
    h->chunked = h->keep = h->upgrade = h->expect = false;
}

ssize_t http_parse_fields(const char *buf, size_t n, struct http_head *h, struct err *err)
{
    const char *p = buf;
    int r;

    head_clear(h);
    r = field_lines(&p, buf + n, h, err);
    return r <= 0 ? r : p - buf;
}

static int check_head(const struct http_head *h, enum http_kind kind, struct err *err)
{
    int hosts = 0;

    if (h->chunked && h->length >= 0)
        return bad(err, "both Content-Length and Transfer-Encoding");
    if (h->chunked && !h->minor)
        return bad(err, "Transfer-Encoding in HTTP/1.0");
    if (kind == HTTP_RESPONSE)
        return 0;
    for (int i = 0; i < h->count; i++)
        hosts += h->field[i].name.n == 4 && str_iis(h->field[i].name, "host");
    if (hosts > 1) /* in HTTP/1.0 too, which a proxy passes on as 1.1 */
        return bad(err, "Host given twice");
    return hosts || !h->minor ? 0 : bad(err, "no Host header");
}

ssize_t http_parse(const char *buf, size_t n, enum http_kind kind, struct http_head *h,
                   struct err *err)
{
    const char *p = buf, *end = buf + n;
    int r;

    head_clear(h);
    r = kind == HTTP_REQUEST ? request_line(&p, end, h, err) : status_line(&p, end, h, err);
    if (r <= 0)
        return r;
    h->keep = h->minor == 1;
    r = field_lines(&p, end, h, err);
    if (r <= 0)
        return r;
    return check_head(h, kind, err) ? -1 : p - buf;
}

struct str http_get(const struct http_head *h, const char *name)
{
    struct str want = str_of(name);

    for (int i = 0; i < h->count; i++)
        if (str_ieq(h->field[i].name, want))
            return h->field[i].value.p ? h->field[i].value : STR("");
    return (struct str){ NULL, 0 };
}

static void keep_slice(struct str *s, struct arena *a) { s->p = arena_strdup(a, *s); }

void http_head_keep(struct http_head *h, struct arena *a)
{
    keep_slice(&h->method, a);
    keep_slice(&h->target, a);
    for (int i = 0; i < h->count; i++) {
        keep_slice(&h->field[i].name, a);
        keep_slice(&h->field[i].value, a);
    }
}

const char *http_reason(int status)
{
    switch (status) {
    case 100: return "Continue";
    case 101: return "Switching Protocols";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 206: return "Partial Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 303: return "See Other";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 416: return "Range Not Satisfiable";
    case 417: return "Expectation Failed";
    case 421: return "Misdirected Request";
    case 422: return "Unprocessable Content";
    case 426: return "Upgrade Required";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 499: return "Client Closed Request";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 507: return "Insufficient Storage";
    default: return "Status";
    }
}
