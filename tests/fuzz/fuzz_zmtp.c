/* fuzz_zmtp.c - what a kernel sends: however the bytes are cut, the same messages come out and the
 * same end is reached, within the bounds; and the handshake's checks stay inside what they were
 * given.
 *
 * Input: one byte that says how to cut, then the peer's bytes. */
#include "base/mem.h"
#include "fuzz.h"
#include "guest/kernels/zmtp.h"

enum { BOUND = 1000 };

static bool run(const uint8_t *data, size_t size, size_t step, struct buf *seen)
{
    struct zmtp_parser in = { .max = BOUND };
    AUTO(freep) char *p = fuzz_copy(data, size);
    enum zmtp_event event;
    struct err err;
    bool good = true;

    for (size_t at = 0; at < size && good;) {
        ssize_t r = zmtp_feed(&in, p + at, MIN(size - at, step), &event, &err);

        good = r >= 0;
        if (!good)
            break;
        MUST(r > 0);
        at += (size_t)r;
        if (event == ZMTP_COMMAND)
            buf_printf(seen, "<command %zu>", in.text.len);
        if (event != ZMTP_MESSAGE)
            continue;
        MUST(in.parts.n >= 1 && in.parts.n <= ZMTP_PARTS);
        MUST(in.parts.bytes.len - ZMTP_ROOM <= BOUND);
        for (size_t i = 0; i < in.parts.n; i++) {
            struct str part = zmtp_part(&in.parts, i);

            buf_printf(seen, "<%zu>", part.n);
            buf_add_str(seen, part);
        }
    }
    zmtp_parser_free(&in);
    return good;
}

static void handshake(const uint8_t *data, size_t size)
{
    AUTO(freep) char *p = fuzz_copy(data, size);
    struct err err;

    if (size >= ZMTP_GREETING)
        (void)zmtp_check_greeting((const unsigned char *)p, &err);
    (void)zmtp_check_ready((struct str){ p, size }, "ROUTER,PUB", &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(buf_free) struct buf whole = { 0 }, cut = { 0 };
    size_t step;

    if (!size)
        return 0;
    step = 1 + data[0] % 31;
    data++, size--;
    handshake(data, size);
    MUST(run(data, size, SIZE_MAX, &whole) == run(data, size, step, &cut));
    MUST(str_eq(buf_str(&whole), buf_str(&cut)));
    return 0;
}
