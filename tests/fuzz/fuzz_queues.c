/* fuzz_queues.c - the kernel's words of its memory, of ping sockets and of its protocols. Promises:
 * they end, what is left is not more than there is, and no line has more in it than its two numbers
 * can say. */
#include "fuzz.h"
#include "jail/queues.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);
    struct str text = { copy, size }, line;
    uint64_t bytes, netlink, all;

    if (!queues_kernel_bytes(text, &bytes))
        MUST(!(bytes & 1023));
    queues_protocols(text, &netlink, &all);
    MUST(netlink <= all);
    while (str_next(&text, '\n', &line))
        MUST(queues_ping_line(line) <= 2 * (uint64_t)UINT32_MAX);
    free(copy);
    return 0;
}
