/* fuzz_dns.c - the DNS messages of sandboxes and of name servers: what is relayed is a plain
 * question within bounds, an error is an answer to it, and only the same question comes back as its
 * answer.
 *
 * Input: a byte that chooses (bit 0: the rest is a resolv.conf), then the bytes. */
#include "base/mem.h"
#include "fuzz.h"
#include "jail/dns_message.h"

static void servers(const char *p, size_t n)
{
    struct addr out[DNS_SERVERS_MAX];
    size_t count = dns_message_servers((struct str){ p, n }, 0x0100c90a, out);

    MUST(count >= 1 && count <= DNS_SERVERS_MAX);
    for (size_t i = 0; i < count; i++)
        MUST(out[i].sa.ss_family == AF_INET || out[i].sa.ss_family == AF_INET6);
}

static void messages(const unsigned char *p, size_t n)
{
    unsigned char out[DNS_ERROR_MAX];
    struct dns_query q, again;
    enum dns_rcode code = dns_message_check(p, n, &q);
    size_t length;

    if (code == DNS_SILENT)
        return;
    MUST(q.question <= 255 + 4 && DNS_HEADER + q.question <= n);
    length = dns_message_error(p, &q, DNS_SERVFAIL, out);
    MUST(length == DNS_HEADER + q.question && length <= sizeof(out));
    MUST(dns_message_check(out, length, &again) == DNS_SILENT); /* it is an answer */
    if (code != DNS_OK)
        return;
    MUST(n <= DNS_QUERY_MAX && q.question >= 5);
    MUST(dns_message_answers(out, length, q.id, p, &q));
    MUST(!dns_message_answers(p, n, q.id, p, &q));
    out[DNS_HEADER + q.question - 1] ^= 1; /* another class */
    MUST(!dns_message_answers(out, length, q.id, p, &q));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(freep) char *copy = NULL;

    if (!size)
        return 0;
    copy = fuzz_copy(data + 1, size - 1);
    if (data[0] & 1)
        servers(copy, size - 1);
    else
        messages((const unsigned char *)copy, size - 1);
    return 0;
}
