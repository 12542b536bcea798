/* fuzz_kernel_request.c - a WebSocket frame of a client, as each of the three kinds: what is
 * accepted lies inside the frame and its parts are JSON objects. And JSON: what the scanner accepts
 * jansson accepts too, but for the numbers that only Python knows. */
#include "base/json.h"
#include "base/mem.h"
#include "fuzz.h"
#include "guest/kernels/message.h"
#include "guest/kernels/scan.h"

typedef int decode_fn(struct request *r, struct str frame, struct err *err);

static bool inside(struct str part, struct str frame)
{
    return str_is(part, "{}") || !part.n ||
           (part.p >= frame.p && part.p + part.n <= frame.p + frame.n);
}

static void decode(decode_fn *fn, struct str frame)
{
    AUTO(freep) struct request *r = xcalloc(1, sizeof(*r));
    struct err err;

    if (fn(r, frame, &err))
        return;
    MUST(r->channel < CHANNEL_IOPUB && r->nbuffers <= REQUEST_BUFFERS);
    for (size_t i = 0; i < PART_BUFFERS; i++)
        MUST(inside(r->json[i], frame) && scan_valid(r->json[i]) && r->json[i].p[0] == '{');
    for (size_t i = 0; i < r->nbuffers; i++)
        MUST(inside(r->buffers[i], frame));
}

static void compare(struct str text)
{
    static const char *const names[] = { "a", "header", NULL };
    AUTO(arena_free) struct arena a = { 0 };
    struct str found[2];
    json_error_t why;
    json_t *j;

    if (!scan_valid(text))
        return;
    scan_object(text, names, found);
    scan_string(&a, text);
    if (memmem(text.p, text.n, "NaN", 3) || memmem(text.p, text.n, "Infinity", 8) ||
        memmem(text.p, text.n, "\\u", 2))
        return;
    j = json_loadb(text.p, text.n, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &why);
    MUST(j || json_error_code(&why) == json_error_numeric_overflow ||
         json_error_code(&why) == json_error_stack_overflow);
    json_decref(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(freep) char *p = fuzz_copy(data, size);
    struct str frame = { p, size };

    decode(request_from_v1, frame);
    decode(request_from_text, frame);
    decode(request_from_binary, frame);
    compare(frame);
    return 0;
}
