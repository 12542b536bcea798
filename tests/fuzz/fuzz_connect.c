/* fuzz_connect.c - Connect envelopes: a body of them read through a call agrees with a walk over
 * the bytes by hand; and the time-out header. The first byte chooses the bound on an envelope. */
#include "fuzz.h"
#include "io/connect.h"

static struct call call;
static struct httpd server;

static void start_call(struct conn *c, const uint8_t *p, size_t n)
{
    conn_init(c, -1); /* reading beyond the buffer fails */
    c->nowait = true;
    if (n) {
        c->in = malloc(n);
        MUST(c->in);
        memcpy(c->in, p, n);
        c->cap = c->len = n;
    }
    call.server = &server;
    call.conn = c;
    call.head.minor = 1;
    call.head.length = (int64_t)n;
    call.head.count = 0;
    http_body_init(&call.body, c, &call.head, HTTP_REQUEST);
}

static void read_envelopes(const uint8_t *p, size_t n)
{
    uint32_t max = (uint32_t)http_limits.body_bytes;
    struct buf out = { 0 };
    struct conn c;

    start_call(&c, p, n);
    for (;;) {
        struct connect_frame f = { 0 };
        struct err err = { 0 }, by_hand = { 0 };
        int r = connect_read(&call, &out, &err), want;

        MUST((r < 0) == (err.code != ERR_NONE));
        if (!n) {
            MUST(r == 0);
            break;
        }
        want = connect_decode_header(p, n, max, &f, &by_hand);
        if (want <= 0 || f.size > n - CONNECT_HEADER) {
            MUST(r < 0);
            break;
        }
        MUST(r == !(f.flags & CONNECT_END));
        MUST(out.len == f.size && (!f.size || !memcmp(out.data, p + CONNECT_HEADER, f.size)));
        p += CONNECT_HEADER + f.size;
        n -= CONNECT_HEADER + f.size;
        if (!r)
            break;
    }
    buf_free(&out);
    http_body_finish(&call.body);
    conn_finish(&c);
}

static void check_header(const uint8_t *p, size_t n, uint32_t max)
{
    unsigned char again[CONNECT_HEADER];
    struct connect_frame f = { 0 };
    struct err err = { 0 };
    int r = connect_decode_header(p, n, max, &f, &err);

    MUST(n >= CONNECT_HEADER || r == 0);
    MUST((r < 0) == (err.code != ERR_NONE));
    if (r <= 0)
        return;
    MUST(f.size <= max && !(f.flags & ~(unsigned)CONNECT_END));
    connect_encode_header(again, f.flags, f.size);
    MUST(!memcmp(again, p, sizeof(again)));
}

static void check_timeout(const uint8_t *p, size_t n)
{
    static struct http_head h;
    struct err err = { 0 };
    int64_t ms = 5;
    char *value = fuzz_copy(p, n);

    h.count = 1;
    h.field[0] = (struct http_field){ STR("Connect-Timeout-Ms"), { value, n } };
    if (connect_timeout(&h, &ms, &err))
        MUST(err.code == ERR_INVALID);
    else
        MUST(ms >= 0 && ms <= 9999999999 && n <= 10);
    free(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy;

    if (!size)
        return 0;
    http_limits.body_bytes = data[0] & 1 ? 64 : 16 << 20;
    copy = fuzz_copy(data + 1, size - 1);
    check_header((uint8_t *)copy, size - 1, data[0]);
    free(copy);
    read_envelopes(data + 1, size - 1);
    check_timeout(data + 1, size - 1);
    return 0;
}
