/* test_dns_message.c - which questions are relayed, which answers belong to them. */
#include "jail/dns_message.h"

#include <arpa/inet.h>

#include "test.h"

struct message {
    unsigned char p[1500];
    size_t n;
};

static void put(struct message *m, const void *p, size_t n)
{
    memcpy(m->p + m->n, p, n);
    m->n += n;
}

#define PUT(m, literal) put((m), literal, sizeof(literal) - 1)

/* id 0x1234, recursion wanted, one question for www.example.org */
static struct message question(unsigned type, unsigned class)
{
    struct message m = { .n = 0 };
    unsigned char end[4] = { 0, (unsigned char)type, 0, (unsigned char)class };

    PUT(&m, "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00");
    PUT(&m, "\3www\7example\3org\0");
    put(&m, end, 4);
    return m;
}

static enum dns_rcode check(const struct message *m, struct dns_query *q)
{
    return dns_message_check(m->p, m->n, q);
}

TEST(a_plain_question_is_relayed)
{
    struct message m = question(1, 1);
    struct dns_query q;

    CHECK_INT(check(&m, &q), DNS_OK);
    CHECK_INT(q.id, 0x1234);
    CHECK_INT(q.question, m.n - DNS_HEADER);
}

TEST(one_options_record_may_follow)
{
    struct message m = question(28, 1);
    struct dns_query q;

    m.p[11] = 1;
    PUT(&m, "\0\0\x29\x04\xd0\0\0\0\0\0\4\0\x0a\0\0");
    CHECK_INT(check(&m, &q), DNS_OK);
    m.n--;
    CHECK_INT(check(&m, &q), DNS_FORMERR); /* shorter than it says */
    m.n += 2;
    CHECK_INT(check(&m, &q), DNS_FORMERR); /* something behind it */
    m.n--;
    m.p[11] = 2;
    CHECK_INT(check(&m, &q), DNS_FORMERR);
    m.p[11] = 0;
    CHECK_INT(check(&m, &q), DNS_FORMERR);
    m.p[11] = 1;
    m.p[m.n - 13] = 1; /* an A record instead of options */
    CHECK_INT(check(&m, &q), DNS_FORMERR);
}

TEST(what_is_no_question_gets_no_answer)
{
    struct message m = question(1, 1);
    struct dns_query q;

    for (size_t n = 0; n < DNS_HEADER; n++)
        CHECK_INT(dns_message_check(m.p, n, &q), DNS_SILENT);
    m.p[2] |= 0x80;
    CHECK_INT(check(&m, &q), DNS_SILENT);
}

TEST(transfers_other_classes_and_other_operations_are_refused)
{
    struct message axfr = question(252, 1), ixfr = question(251, 1), chaos = question(16, 3),
                   update = question(6, 1);
    struct dns_query q;

    CHECK_INT(check(&axfr, &q), DNS_REFUSED);
    CHECK_INT(check(&ixfr, &q), DNS_REFUSED);
    CHECK_INT(check(&chaos, &q), DNS_REFUSED);
    update.p[2] = 5 << 3;
    CHECK_INT(check(&update, &q), DNS_REFUSED);
    CHECK_INT(q.question, 0);
}

TEST(counts_and_names_out_of_bounds_are_format_errors)
{
    struct dns_query q;
    struct message m;

    for (int at = 5; at <= 9; at += 2) {
        m = question(1, 1);
        m.p[at] = 2;
        CHECK_INT(check(&m, &q), DNS_FORMERR);
    }
    m = question(1, 1);
    for (size_t n = DNS_HEADER; n < m.n; n++)
        CHECK_INT(dns_message_check(m.p, n, &q), DNS_FORMERR);
    m.p[DNS_HEADER] = 0xc0; /* a pointer: a question has nothing to point at */
    CHECK_INT(check(&m, &q), DNS_FORMERR);
    m.p[DNS_HEADER] = 64;
    CHECK_INT(check(&m, &q), DNS_FORMERR);
}

/* A name of `bytes` bytes, its root label among them. */
static struct message long_name(size_t bytes)
{
    struct message m = { .n = 0 };

    PUT(&m, "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00");
    for (bytes--; bytes;) {
        size_t label = bytes > 64 ? 63 : bytes - 1;

        if (bytes - label - 1 == 1) /* no room for a label of one byte less than one */
            label--;
        m.p[m.n++] = (unsigned char)label;
        memset(m.p + m.n, 'a', label);
        m.n += label;
        bytes -= label + 1;
    }
    PUT(&m, "\0\0\1\0\1");
    return m;
}

TEST(a_name_has_at_most_255_bytes)
{
    struct message good = long_name(255), bad = long_name(256);
    struct dns_query q;

    CHECK_INT(check(&good, &q), DNS_OK);
    CHECK_INT(q.question, 255 + 4);
    CHECK_INT(check(&bad, &q), DNS_FORMERR);
}

TEST(a_message_longer_than_a_question_can_be_is_a_format_error)
{
    struct message m = question(1, 1);
    struct dns_query q;

    CHECK_INT(dns_message_check(m.p, DNS_QUERY_MAX + 1, &q), DNS_FORMERR);
}

TEST(an_answer_has_the_id_and_the_question)
{
    struct message m = question(1, 1), a = m;
    struct dns_query q;

    CHECK_INT(check(&m, &q), DNS_OK);
    CHECK(!dns_message_answers(a.p, a.n, 0x1234, m.p, &q)); /* a question is no answer */
    a.p[2] |= 0x80;
    CHECK(dns_message_answers(a.p, a.n, 0x1234, m.p, &q));
    CHECK(!dns_message_answers(a.p, a.n, 0x1235, m.p, &q));
    CHECK(!dns_message_answers(a.p, a.n - 1, 0x1234, m.p, &q));
    a.p[13] = 'W'; /* the case of letters is the server's to choose */
    CHECK(dns_message_answers(a.p, a.n, 0x1234, m.p, &q));
    a.p[13] = 'x';
    CHECK(!dns_message_answers(a.p, a.n, 0x1234, m.p, &q));
    a.p[13] = 'w';
    a.p[a.n - 3] = 28; /* another type */
    CHECK(!dns_message_answers(a.p, a.n, 0x1234, m.p, &q));
}

TEST(a_bare_header_answers_only_with_an_error)
{
    struct message m = question(1, 1), a = m;
    struct dns_query q;

    CHECK_INT(check(&m, &q), DNS_OK);
    a.n = DNS_HEADER;
    a.p[2] |= 0x80;
    a.p[5] = 0;
    CHECK(!dns_message_answers(a.p, a.n, 0x1234, m.p, &q));
    a.p[3] = DNS_REFUSED;
    CHECK(dns_message_answers(a.p, a.n, 0x1234, m.p, &q));
}

TEST(an_error_repeats_id_and_question)
{
    struct message m = question(252, 1);
    unsigned char out[DNS_ERROR_MAX];
    struct dns_query q;
    size_t n;

    CHECK_INT(check(&m, &q), DNS_REFUSED);
    n = dns_message_error(m.p, &q, DNS_REFUSED, out);
    CHECK_INT(n, m.n);
    CHECK_INT(memcmp(out, "\x12\x34\x81\x85\x00\x01\x00\x00\x00\x00\x00\x00", DNS_HEADER), 0);
    CHECK_INT(memcmp(out + DNS_HEADER, m.p + DNS_HEADER, n - DNS_HEADER), 0);
    m.p[5] = 2;
    CHECK_INT(check(&m, &q), DNS_FORMERR);
    CHECK_INT(dns_message_error(m.p, &q, DNS_FORMERR, out), DNS_HEADER);
    CHECK_INT(out[5], 0);
}

TEST(name_servers_are_read_from_resolv_conf)
{
    static const struct {
        const char *text;
        size_t count;
        const char *first, *last;
    } some[] = {
        { "", 1, "127.0.0.1:53", "127.0.0.1:53" },
        { "nameserver 127.0.0.53\noptions edns0\nsearch x\n", 1, "127.0.0.53:53", "127.0.0.53:53" },
        { "# nameserver 1.1.1.1\n;nameserver 1.1.1.1\nnameserver\t9.9.9.9 # why\r\n", 1,
          "9.9.9.9:53", "9.9.9.9:53" },
        { "nameserver 1.1.1.1\nnameserver ::1\nnameserver 3.3.3.3\nnameserver 4.4.4.4", 3,
          "1.1.1.1:53", "3.3.3.3:53" },
        { "nameserver 10.201.0.1\nnameserver 8.8.8.8\n", 1, "8.8.8.8:53", "8.8.8.8:53" },
        { "nameserver\nnameserver nonsense\nnameservers 1.1.1.1\n", 1, "127.0.0.1:53",
          "127.0.0.1:53" },
        { "nameserver fe80::1%lo\n", 1, "[fe80::1]:53", "[fe80::1]:53" },
    };
    struct addr out[DNS_SERVERS_MAX];
    char text[64];

    for (size_t i = 0; i < ARRAY_LEN(some); i++) {
        CHECK_INT(dns_message_servers(str_of(some[i].text), htonl(0x0ac90001), out), some[i].count);
        addr_print(&out[0], text, sizeof(text));
        CHECK_STR(text, some[i].first);
        addr_print(&out[some[i].count - 1], text, sizeof(text));
        CHECK_STR(text, some[i].last);
    }
}
