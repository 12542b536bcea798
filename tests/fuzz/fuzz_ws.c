/* fuzz_ws.c - the WebSocket decoder: however the bytes are cut, the same messages come out, the
 * same end is reached, and text is UTF-8.
 *
 * Input: one byte of choices (bit 0: our role, the rest: how to cut), then the peer's bytes. */
#include "base/mem.h"
#include "fuzz.h"
#include "io/ws.h"

enum { BOUND = 1000 };

struct outcome {
    struct buf seen; /* messages and control frames, each with its opcode in front */
    int code;        /* of the end; 0: open */
};

struct assembly {
    struct ws_parser in;
    struct buf message;
};

static void piece(struct assembly *a, const struct ws_message *m, struct buf *seen)
{
    if (m->op > WS_BINARY) {
        MUST(m->data.n <= WS_CONTROL_MAX);
        buf_printf(seen, "<%d>", (int)m->op);
        buf_add_str(seen, m->data);
        return;
    }
    buf_add_str(&a->message, m->data);
    MUST(a->message.len <= BOUND);
    if (!m->end)
        return;
    MUST(m->op != WS_TEXT || utf8_valid(buf_str(&a->message)));
    buf_printf(seen, "<%d>", (int)m->op);
    buf_add_str(seen, buf_str(&a->message));
    a->message.len = 0;
}

static void run(enum ws_role role, const uint8_t *data, size_t size, size_t step,
                struct outcome *out)
{
    struct assembly a = { .in = { .role = role, .max = BOUND } };
    AUTO(freep) char *p = fuzz_copy(data, size);
    struct ws_message m;
    struct err err;

    for (size_t at = 0; at < size && !out->code;) {
        ssize_t r = ws_feed(&a.in, p + at, MIN(size - at, step), &m, &err);

        if (r < 0) {
            MUST(ws_code_valid(a.in.code));
            out->code = (int)a.in.code;
            break;
        }
        MUST(r > 0);
        at += (size_t)r;
        if (m.op)
            piece(&a, &m, &out->seen);
        if (m.op == WS_CLOSE)
            out->code = (int)a.in.code;
    }
    buf_free(&a.message);
}

static void headers(const uint8_t *data, size_t size)
{
    unsigned char b[WS_HEADER_MAX];
    struct ws_frame f;
    int n = ws_decode_header(data, size, &f);

    MUST(n <= WS_HEADER_MAX);
    if (n > 0)
        MUST(ws_encode_header(b, &f) == (size_t)n && !memcmp(b, data, (size_t)n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome whole = { 0 }, cut = { 0 };
    enum ws_role role;
    size_t step;

    if (!size)
        return 0;
    role = data[0] & 1 ? WS_CLIENT : WS_SERVER;
    step = 1 + (data[0] >> 1) % 31;
    data++, size--;
    headers(data, size);
    run(role, data, size, SIZE_MAX, &whole);
    run(role, data, size, step, &cut);
    MUST(whole.code == cut.code && str_eq(buf_str(&whole.seen), buf_str(&cut.seen)));
    buf_free(&whole.seen);
    buf_free(&cut.seen);
    return 0;
}
