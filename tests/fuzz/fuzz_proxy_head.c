/* fuzz_proxy_head.c - the heads that the proxy writes from heads that strangers wrote. The first
 * byte is flags, then a request's head, then an answer's. Promises: what comes out is one head that
 * our own parser takes whole, with one framing, that of what was read; no field of one connection,
 * of ours or of the router's is passed on. */
#include "io/proxy_head.h"

#include "fuzz.h"

enum { DROPS = 1, TRUSTS = 2, HOST = 4, EXTRA = 8 };

static struct call call;
static struct exchange x;
static struct http_head out;
static struct conn conn = { .fd = -1, .peer_known = true, .peer = "192.0.2.1" };

static bool drop(const struct http_field *f, bool answer)
{
    return str_iis(f->name, answer ? "set-cookie" : "x-api-key");
}

static const char *const hop[] = { "keep-alive", "proxy-connection", "proxy-authorization",
                                   "proxy-authenticate" };

static void check_no_hop(void)
{
    for (size_t i = 0; i < ARRAY_LEN(hop); i++)
        MUST(!http_get(&out, hop[i]).p);
}

static void check_request(struct proxy *p, int flags)
{
    struct err err = { 0 };
    ssize_t n;

    proxy_head_request(p, &call);
    http_limits.header_count = HTTP_FIELDS; /* a few of ours come on top */
    n = http_parse(call.scratch.data, call.scratch.len, HTTP_REQUEST, &out, &err);
    if (n < 0 && call.head.count > HTTP_FIELDS - 8)
        return;
    MUST(n == (ssize_t)call.scratch.len);
    check_no_hop();
    MUST(out.minor == 1 && out.chunked == call.head.chunked && out.length == call.head.length);
    MUST(!(flags & DROPS) || !http_get(&out, "x-api-key").p);
    MUST(str_eq(out.method, call.head.method) && str_eq(out.target, call.head.target));
    MUST(http_get(&out, "x-forwarded-for").p && http_get(&out, "x-forwarded-proto").p);
    if (flags & HOST)
        MUST(str_is(http_get(&out, "host"), "inside"));
    if (flags & EXTRA)
        MUST(http_get(&out, "x-extra").p);
    MUST(!out.upgrade || proxy_head_upgrades(&call.head));
}

static void check_answer(struct proxy *p, int flags)
{
    struct err err = { 0 };
    ssize_t n;

    if (x.head.status < 200 && x.head.status != 101) {
        proxy_head_interim(p, &call, &x);
    } else {
        http_body_init(&x.body, &conn, &x.head, HTTP_RESPONSE);
        x.to_the_end = !x.body.done && !x.body.chunked && x.body.left < 0;
        call.chunked = call.close = false;
        proxy_head_answer(p, &call, &x);
        MUST(call.status == x.head.status);
    }
    n = http_parse(call.scratch.data, call.scratch.len, HTTP_RESPONSE, &out, &err);
    if (n < 0 && x.head.count > HTTP_FIELDS - 8)
        return;
    MUST(n == (ssize_t)call.scratch.len && out.status == x.head.status);
    check_no_hop();
    MUST(!(out.chunked && out.length >= 0));
    MUST(!(flags & DROPS) || !http_get(&out, "set-cookie").p);
    if (x.head.status >= 200 && call.chunked)
        MUST(out.chunked);
}

static void check_trailers(const struct proxy *by, int flags, const char *p, size_t n)
{
    struct buf raw = { 0 }, written = { 0 };
    struct err err = { 0 };

    buf_add(&raw, p, n);
    if (!proxy_head_trailers(by, true, &raw, &written, &err)) {
        buf_add(&written, "\r\n", 2);
        MUST(http_parse_fields(written.data, written.len, &out, &err) == (ssize_t)written.len);
        MUST(!http_get(&out, "content-length").p && !http_get(&out, "transfer-encoding").p);
        MUST(!(flags & DROPS) || !http_get(&out, "set-cookie").p);
    }
    buf_free(&raw);
    buf_free(&written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int flags = size ? data[0] : 0;
    struct proxy p = { .trust = flags & TRUSTS };
    struct err err = { 0 };
    ssize_t n;
    char *copy;

    if (!size)
        return 0;
    p.drop = flags & DROPS ? drop : NULL;
    p.host = flags & HOST ? STR("inside") : (struct str){ 0 };
    p.extra = flags & EXTRA ? STR("X-Extra: 1\r\n") : (struct str){ 0 };
    copy = fuzz_copy(data + 1, size - 1);
    call.conn = &conn;
    http_limits.header_count = HTTP_FIELDS;
    n = http_parse(copy, size - 1, HTTP_REQUEST, &call.head, &err);
    if (n > 0) {
        http_body_init(&call.body, &conn, &call.head, HTTP_REQUEST);
        check_request(&p, flags);
        if (http_parse(copy + n, size - 1 - (size_t)n, HTTP_RESPONSE, &x.head, &err) > 0)
            check_answer(&p, flags);
    } else {
        check_trailers(&p, flags, copy, size - 1);
    }
    buf_free(&call.scratch);
    free(copy);
    return 0;
}
