/* dns_message.c - see dns_message.h. */
#include "jail/dns_message.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <net/if.h>
#include <netinet/in.h>

#include "base/util.h"

enum {
    NAME_MAX_BYTES = 255,
    LABEL_MAX = 63,
    TYPE_OPT = 41,
    TYPE_IXFR = 251,
    TYPE_AXFR = 252,
    CLASS_IN = 1,
    FLAG_ANSWER = 0x8000,
    FLAG_RECURSE = 0x0100,
    FLAG_RECURSED = 0x0080,
    OPCODE = 0x7800,
    OPT_FIXED = 11, /* root name, type, size, extended flags, length */
};

/* Where the 16-bit words of the header are. */
enum { AT_ID = 0, AT_FLAGS = 2, AT_QUESTIONS = 4, AT_ANSWERS = 6, AT_AUTHORITY = 8, AT_EXTRA = 10 };

static unsigned get16(const unsigned char *p) { return (unsigned)p[0] << 8 | p[1]; }

static void put16(unsigned char *p, unsigned v)
{
    p[0] = (unsigned char)(v >> 8);
    p[1] = (unsigned char)v;
}

void dns_message_set_id(unsigned char *p, uint16_t id) { put16(p + AT_ID, id); }

/* The length of a name with its root label, 0 when it is not one. */
static size_t name_length(const unsigned char *p, size_t n)
{
    size_t at = 0;

    while (at < n && at < NAME_MAX_BYTES) {
        if (!p[at])
            return at + 1;
        if (p[at] > LABEL_MAX) /* a pointer, or a kind of label nobody uses */
            return 0;
        at += 1 + (size_t)p[at];
    }
    return 0;
}

static size_t question_length(const unsigned char *p, size_t n)
{
    size_t name = n > DNS_HEADER ? name_length(p + DNS_HEADER, n - DNS_HEADER) : 0;

    return name && n - DNS_HEADER - name >= 4 ? name + 4 : 0;
}

/* Behind the question: nothing, or one OPT record, and then nothing. */
static bool tail_is_plain(const unsigned char *p, size_t n, unsigned extra)
{
    if (!extra)
        return n == 0;
    return extra == 1 && n >= OPT_FIXED && p[0] == 0 && get16(p + 1) == TYPE_OPT &&
           get16(p + 9) == n - OPT_FIXED;
}

enum dns_rcode dns_message_check(const unsigned char *p, size_t n, struct dns_query *out)
{
    const unsigned char *fixed;
    size_t end;

    *out = (struct dns_query){ 0 };
    if (n < DNS_HEADER || get16(p + AT_FLAGS) & FLAG_ANSWER)
        return DNS_SILENT;
    out->id = (uint16_t)get16(p + AT_ID);
    if (get16(p + AT_FLAGS) & OPCODE)
        return DNS_REFUSED;
    if (n > DNS_QUERY_MAX || get16(p + AT_QUESTIONS) != 1 || get16(p + AT_ANSWERS) ||
        get16(p + AT_AUTHORITY))
        return DNS_FORMERR;
    out->question = question_length(p, n);
    end = DNS_HEADER + out->question;
    if (!out->question || !tail_is_plain(p + end, n - end, get16(p + AT_EXTRA)))
        return DNS_FORMERR;
    fixed = p + end - 4;
    if (get16(fixed) == TYPE_AXFR || get16(fixed) == TYPE_IXFR || get16(fixed + 2) != CLASS_IN)
        return DNS_REFUSED;
    return DNS_OK;
}

/* Servers may change the case of letters; lengths of labels are below 'A', so they are compared. */
static bool same_question(const unsigned char *a, const unsigned char *b, size_t n)
{
    for (size_t i = 0; i + 4 < n; i++)
        if (tolower(a[i]) != tolower(b[i]))
            return false;
    return !memcmp(a + n - 4, b + n - 4, 4);
}

bool dns_message_answers(const unsigned char *p, size_t n, uint16_t id, const unsigned char *query,
                         const struct dns_query *q)
{
    if (n < DNS_HEADER || get16(p + AT_ID) != id ||
        (get16(p + AT_FLAGS) & (FLAG_ANSWER | OPCODE)) != FLAG_ANSWER)
        return false;
    if (!get16(p + AT_QUESTIONS)) /* some refuse without repeating what */
        return n == DNS_HEADER && get16(p + AT_FLAGS) & 0xf;
    return get16(p + AT_QUESTIONS) == 1 && n - DNS_HEADER >= q->question &&
           same_question(p + DNS_HEADER, query + DNS_HEADER, q->question);
}

size_t dns_message_error(const unsigned char *query, const struct dns_query *q, enum dns_rcode code,
                         unsigned char out[static DNS_ERROR_MAX])
{
    memset(out, 0, DNS_HEADER);
    put16(out + AT_ID, q->id);
    put16(out + AT_FLAGS, FLAG_ANSWER | FLAG_RECURSED | (unsigned)code |
                              (get16(query + AT_FLAGS) & (OPCODE | FLAG_RECURSE)));
    put16(out + AT_QUESTIONS, q->question ? 1 : 0);
    memcpy(out + DNS_HEADER, query + DNS_HEADER, q->question);
    return DNS_HEADER + q->question;
}

/* ---- resolv.conf ---- */

static bool parse_server(struct str text, struct addr *out)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&out->sa;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&out->sa;
    struct str address, scope = { 0 };
    char host[INET6_ADDRSTRLEN], name[IFNAMSIZ];

    str_cut(text, '%', &address, &scope);
    memset(out, 0, sizeof(*out));
    if (address.n >= sizeof(host) || scope.n >= sizeof(name))
        return false;
    snprintf(host, sizeof(host), "%.*s", STR_ARG(address));
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(53);
        out->len = sizeof(*v4);
        return true;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) != 1)
        return false;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(53);
    if (scope.n) {
        snprintf(name, sizeof(name), "%.*s", STR_ARG(scope));
        v6->sin6_scope_id = if_nametoindex(name);
    }
    out->len = sizeof(*v6);
    return true;
}

static bool is_own(const struct addr *a, uint32_t own)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)&a->sa;

    return v4->sin_family == AF_INET && v4->sin_addr.s_addr == own;
}

size_t dns_message_servers(struct str text, uint32_t own, struct addr out[static DNS_SERVERS_MAX])
{
    struct str line, word = STR("nameserver");
    size_t count = 0;

    while (count < DNS_SERVERS_MAX && str_next(&text, '\n', &line)) {
        struct str value;
        size_t end = 0;

        if (!str_starts(line, word.p) || line.n == word.n || !strchr(" \t", line.p[word.n]))
            continue;
        value = str_trim((struct str){ line.p + word.n, line.n - word.n });
        while (end < value.n && !strchr(" \t#;\r", value.p[end]))
            end++;
        value.n = end;
        if (parse_server(value, &out[count]) && !is_own(&out[count], own))
            count++;
    }
    if (!count)
        count = parse_server(STR("127.0.0.1"), &out[0]);
    return count;
}
