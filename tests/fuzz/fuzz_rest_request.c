/* fuzz_rest_request.c - bodies of POST /execute. Promises: what is wrong is told as JSON with at
 * least one place; what is right has every package in bounds. The first byte chooses the parser. */
#include "base/json.h"
#include "fuzz.h"
#include "guest/services/rest_request.h"

static void must_be_detail(const struct buf *wrong)
{
    struct err err;
    json_t *j = json_read(buf_str(wrong), &err);

    MUST(j && json_array_size(json_object_get(j, "detail")) > 0);
    MUST(json_array_size(json_object_get(json_array_get(json_object_get(j, "detail"), 0), "loc")));
    json_decref(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct code_request rq = { 0 };
    struct buf wrong = { 0 };
    struct arena a = { 0 };
    char *copy;

    /* a parameter with a NUL is refused before it gets there */
    if (!size || (data[0] == 'm' && memchr(data, 0, size)))
        return 0;
    copy = fuzz_copy(data + 1, size - 1);
    if (data[0] == 'm' ? rest_request_mode((struct str){ copy, size - 1 }, &wrong)
                       : rest_request_code((struct str){ copy, size - 1 }, &a, &rq, &wrong))
        must_be_detail(&wrong);
    else
        MUST(!wrong.len && rq.npackages <= REST_PACKAGES && rq.code.n <= size);
    for (size_t i = 0; i < rq.npackages; i++)
        MUST(*rq.packages[i] && strlen(rq.packages[i]) <= REST_PACKAGE_BYTES);
    buf_free(&wrong);
    arena_free(&a);
    free(copy);
    return 0;
}
