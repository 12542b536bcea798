/* fuzz_kernel_message.c - a message of a kernel, without a key: its frames of both dialects come
 * out whole, a default frame is JSON again, the v1 frame decodes to the same parts, and what the
 * interpreter makes of it is lines of JSON.
 *
 * Input: parts, each with two bytes of length in front; the first byte is the channel. */
#include "base/mem.h"
#include "fuzz.h"
#include "guest/kernels/interpreter_event.h"
#include "guest/kernels/message.h"
#include "guest/kernels/scan.h"

static void take_parts(struct zmtp_parts *p, const uint8_t *data, size_t size)
{
    zmtp_parts_begin(p);
    while (size >= 2 && p->n < ZMTP_PARTS) {
        size_t n = MIN((size_t)data[0] << 8 | data[1], size - 2);

        buf_add(&p->bytes, data + 2, n);
        zmtp_parts_end(p);
        data += 2 + n;
        size -= 2 + n;
    }
}

static void check_lines(struct str text)
{
    while (text.n) {
        const char *end = memchr(text.p, '\n', text.n);

        MUST(end && scan_valid((struct str){ text.p, (size_t)(end - text.p) }));
        text = (struct str){ end + 1, text.n - (size_t)(end + 1 - text.p) };
    }
}

static void check_v1(struct message *m)
{
    AUTO(freep) struct request *r = xcalloc(1, sizeof(*r));
    struct str frame = message_v1(m);
    struct err err;

    MUST(frame.n > 8);
    if (m->channel == CHANNEL_IOPUB || request_from_v1(r, frame, &err))
        return; /* nobody sends on iopub, nor what is not JSON */
    for (size_t i = 0; i < PART_BUFFERS; i++)
        MUST(str_eq(r->json[i], message_part(m, i)));
    MUST(r->nbuffers == message_buffers(m));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zmtp_parts parts = { 0 };
    struct signer none;
    struct err err = { 0 };
    struct message *m;

    if (!size)
        return 0;
    signer_init(&none, (struct str){ 0 });
    take_parts(&parts, data + 1, size - 1);
    m = message_take(&parts, (enum channel)(data[0] % CHANNELS), &none, &err);
    if (m) {
        AUTO(buf_free) struct buf lines = { 0 };
        bool binary;
        struct str frame = message_default(m, &binary);

        MUST(!frame.p || binary || scan_valid(frame));
        check_v1(m);
        event_write(m, &lines);
        check_lines(buf_str(&lines));
        message_put(m);
    }
    zmtp_parts_free(&parts);
    return 0;
}
