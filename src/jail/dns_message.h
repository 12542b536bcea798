/* dns_message.h - just enough of DNS to relay it: is this a plain question, is that its answer.
 *
 * Pure functions over bytes. Names are bounded and walked, never decoded; a question has no
 * compression pointers, and what follows it in an answer is the sandbox's business to parse. */
#ifndef JAIL_DNS_MESSAGE_H
#define JAIL_DNS_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "io/sock.h"

enum {
    DNS_HEADER = 12,
    DNS_QUERY_MAX = 1232, /* a question with its options; the size that never fragments */
    DNS_MESSAGE_MAX = 65535,
    DNS_ERROR_MAX = DNS_HEADER + 255 + 4,
    DNS_SERVERS_MAX = 3, /* as many as the C library reads */
};

enum dns_rcode { DNS_OK = 0, DNS_FORMERR = 1, DNS_SERVFAIL = 2, DNS_REFUSED = 5, DNS_SILENT = -1 };

struct dns_query {
    uint16_t id;
    size_t question; /* bytes of the question, which begins behind the header; 0: unreadable */
};

/* DNS_OK: may be relayed. DNS_SILENT: not a question at all, so it gets no answer. Otherwise the
 * code to answer with. */
enum dns_rcode dns_message_check(const unsigned char *p, size_t n, struct dns_query *out);
/* Is it the answer to that query, which was sent with this id? */
bool dns_message_answers(const unsigned char *p, size_t n, uint16_t id, const unsigned char *query,
                         const struct dns_query *q);
/* An answer without records. The length. */
size_t dns_message_error(const unsigned char *query, const struct dns_query *q, enum dns_rcode code,
                         unsigned char out[static DNS_ERROR_MAX]);
void dns_message_set_id(unsigned char *p, uint16_t id);

/* The name servers of a resolv.conf, port 53; none named: the host itself. `own` (an IPv4 address
 * in network order) is left out: it is the relay. */
size_t dns_message_servers(struct str text, uint32_t own, struct addr out[static DNS_SERVERS_MAX]);

#endif
