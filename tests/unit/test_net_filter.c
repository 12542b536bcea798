/* test_net_filter.c - the packet filter of sandboxes and the judge of URLs refuse the same: one
 * list, read back from the filter's text. */
#include "jail/net_filter.h"

#include <arpa/inet.h>

#include "base/mem.h"
#include "io/netrange.h"
#include "test.h"

enum { PREFIXES = 512, RANDOM = 20000 };

struct set {
    struct netrange item[PREFIXES];
    size_t n;
};

static struct set deny4, deny6;
static char text[256 << 10];
static struct err err;

/* What the filter's text puts into a set. */
static void read_set(const char *name, struct set *out)
{
    char begin[64];
    const char *at;
    struct str list, item;

    snprintf(begin, sizeof(begin), "add element inet cove0 %s { ", name);
    at = strstr(text, begin);
    CHECK(at != NULL);
    list = (struct str){ at + strlen(begin), strcspn(at + strlen(begin), "}") };
    out->n = 0;
    while (str_next(&list, ',', &item)) {
        CHECK(out->n < PREFIXES);
        CHECK_INT(netrange_parse(item, &out->item[out->n++], &err), 0);
    }
}

static void load(void)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct net_plan p;

    CHECK_INT(net_plan_init(&p, NULL, &err), 0);
    net_filter_text(&p, true, &b);
    CHECK(b.len < sizeof(text));
    memcpy(text, buf_cstr(&b), b.len + 1);
    read_set("deny4", &deny4);
    read_set("deny6", &deny6);
}

static bool is_v4(const unsigned char a[16])
{
    return !memcmp(a, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
}

/* As the two rules do. */
static bool filter_refuses(const unsigned char a[16])
{
    const struct set *s = is_v4(a) ? &deny4 : &deny6;
    static const unsigned char mask[] = { 0xfd, 0xff, 0xff, 0xff }, value[] = { 0, 0, 0x5e, 0xfe };
    bool isatap = !is_v4(a);

    for (size_t i = 0; i < sizeof(mask); i++)
        isatap = isatap && (a[8 + i] & mask[i]) == value[i];
    for (size_t i = 0; i < s->n; i++)
        if (netrange_has(&s->item[i], a))
            return true;
    return isatap;
}

static bool judge_refuses(const unsigned char a[16])
{
    struct addr to = { .len = 0 };

    if (is_v4(a)) {
        struct sockaddr_in *in = (struct sockaddr_in *)(void *)&to.sa;

        in->sin_family = AF_INET;
        memcpy(&in->sin_addr, a + 12, 4);
    } else {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)&to.sa;

        in6->sin6_family = AF_INET6;
        memcpy(&in6->sin6_addr, a, 16);
    }
    return netrange_refuse(&to, NULL) != NULL;
}

static void compare(const unsigned char a[16])
{
    char shown[INET6_ADDRSTRLEN];

    if (filter_refuses(a) == judge_refuses(a))
        return;
    inet_ntop(AF_INET6, a, shown, sizeof(shown));
    test_fail(__FILE__, __LINE__, "%s: the filter %s it, the judge does not", shown,
              filter_refuses(a) ? "refuses" : "lets through");
}

/* One address further, or back. */
static void step(unsigned char a[16], int by)
{
    for (int i = 15; i >= 0; i--) {
        a[i] = (unsigned char)(a[i] + by);
        if (a[i] != (by > 0 ? 0 : 255))
            return;
    }
}

static void compare_edges(const struct set *s)
{
    for (size_t i = 0; i < s->n; i++) {
        unsigned char first[16], last[16];

        memcpy(first, s->item[i].addr, 16);
        memcpy(last, first, 16);
        for (unsigned bit = s->item[i].bits; bit < 128; bit++)
            last[bit / 8] |= (unsigned char)(0x80 >> bit % 8);
        compare(first);
        compare(last);
        step(first, -1);
        step(last, 1);
        compare(first);
        compare(last);
    }
}

TEST(they_agree_at_every_edge)
{
    load();
    CHECK(deny4.n >= 16);
    compare_edges(&deny4);
    compare_edges(&deny6);
}

TEST(they_agree_about_whatever_address)
{
    uint32_t seed = 1;

    load();
    for (size_t i = 0; i < RANDOM; i++) {
        unsigned char a[16];

        for (size_t k = 0; k < sizeof(a); k++) {
            seed = seed * 1664525 + 1013904223;
            a[k] = (unsigned char)(seed >> 24);
        }
        if (i % 3 == 0) /* IPv4 */
            memcpy(a, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
        if (i % 3 == 1) /* ... in NAT64 */
            memcpy(a, "\0\x64\xff\x9b\0\0\0\0\0\0\0", 12);
        compare(a);
    }
}

struct sample {
    const char *address;
    bool refused;
};

/* Not made from the list: what it must say. */
static const struct sample samples[] = {
    { "1.1.1.1", false },
    { "192.0.2.1", true },
    { "198.51.100.1", true },
    { "203.0.113.1", true },
    { "192.88.99.1", true },
    { "10.1.2.3", true },
    { "168.63.129.16", true },
    { "168.63.129.17", false },
    { "100.127.255.255", true },
    { "2606:4700::1111", false },
    { "64:ff9b::808:808", false },
    { "64:ff9b::a00:1", true },
    { "64:ff9b::a9fe:a9fe", true },
    { "64:ff9b:1::808:808", true },
    { "64:ff9a:ffff::1", true },
    { "2001::1", true },
    { "2001:db8::1", true },
    { "2002:808:808::1", true },
    { "3fff::1", true },
    { "2a00::5efe:808:808", true },
    { "2a00::200:5efe:808:808", true },
    { "2a00::100:5efe:808:808", false },
    { "::1", true },
    { "fd00::1", true },
    { "ff02::1", true },
};

TEST_ROWS(both_know_what_is_of_the_internet, samples, test_once)
{
    unsigned char a[16] = { [10] = 0xff, [11] = 0xff };

    load();
    if (inet_pton(AF_INET, row->address, a + 12) != 1)
        CHECK_INT(inet_pton(AF_INET6, row->address, a), 1);
    CHECK_INT(filter_refuses(a), row->refused);
    CHECK_INT(judge_refuses(a), row->refused);
}

/* The control: without one of the list's rows it is seen. */
TEST(a_difference_would_be_seen)
{
    unsigned char a[16] = { [10] = 0xff, [11] = 0xff, 203, 0, 113, 9 };

    load();
    CHECK(filter_refuses(a));
    for (size_t i = 0; i < deny4.n; i++)
        if (netrange_has(&deny4.item[i], a))
            deny4.item[i] = deny4.item[--deny4.n];
    CHECK(!filter_refuses(a) && judge_refuses(a));
}
