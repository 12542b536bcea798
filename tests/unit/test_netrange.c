/* test_netrange.c - which addresses are of the public internet. */
#include "io/netrange.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include "test.h"

static struct addr addr_of(const char *text)
{
    struct addr a;
    struct err err = { 0 };
    char with_port[80];

    snprintf(with_port, sizeof(with_port), strchr(text, ':') ? "[%s]:80" : "%s:80", text);
    CHECK_INT(addr_parse(str_of(with_port), &a, &err), 0);
    return a;
}

static const char *judge(const char *text, const char *allow)
{
    struct netrange_list list = { .n = 0 };
    struct addr a = addr_of(text);
    struct err err = { 0 };
    const char *what;

    CHECK_INT(netrange_list_add(&list, str_of(allow), &err), 0);
    what = netrange_refuse(&a, &list);
    return what ? what : "public";
}

TEST(hosts_of_the_internet_are_public)
{
    static const char *const texts[] = {
        "1.1.1.1",         "8.8.8.8",         "9.255.255.255",    "11.0.0.0",
        "100.63.255.255",  "100.128.0.0",     "126.255.255.255",  "128.0.0.0",
        "169.253.255.255", "169.255.0.0",     "172.15.255.255",   "172.32.0.0",
        "192.0.1.0",       "192.167.255.255", "192.169.0.0",      "198.17.255.255",
        "198.20.0.0",      "223.255.255.255", "168.63.129.15",    "2606:4700::1111",
        "2a00:1450::1",    "::ffff:8.8.8.8",  "64:ff9b::808:808", "2001:200::1",
        "3ffe::1",
    };

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (strcmp(judge(texts[i], ""), "public"))
            CHECK_STR(texts[i], "public");
}

TEST(all_others_are_refused_and_named)
{
    static const char *const rows[][2] = {
        { "0.0.0.0", "is unspecified" },
        { "0.1.2.3", "is unspecified" },
        { "10.0.0.1", "is private" },
        { "10.255.255.255", "is private" },
        { "100.64.0.1", "is a carrier's own" },
        { "100.100.100.200", "is a carrier's own" },
        { "127.0.0.1", "is this machine" },
        { "127.255.255.254", "is this machine" },
        { "169.254.169.254", "is link-local, as clouds use for metadata" },
        { "172.16.0.1", "is private" },
        { "172.31.255.255", "is private" },
        { "192.0.0.192", "is reserved for protocols" },
        { "192.168.1.1", "is private" },
        { "198.18.0.1", "is for benchmarks" },
        { "168.63.129.16", "is a cloud's metadata" },
        { "224.0.0.1", "is multicast" },
        { "239.255.255.255", "is multicast" },
        { "240.0.0.1", "is reserved" },
        { "255.255.255.255", "is reserved" },
        { "::", "is unspecified" },
        { "::1", "is this machine" },
        { "::7f00:1", "is reserved" },
        { "::ffff:127.0.0.1", "is this machine" },
        { "::ffff:10.0.0.1", "is private" },
        { "::ffff:169.254.169.254", "is link-local, as clouds use for metadata" },
        { "::ffff:0:127.0.0.1", "is reserved" },
        { "64:ff9b::7f00:1", "is this machine" },
        { "64:ff9b::a9fe:a9fe", "is link-local, as clouds use for metadata" },
        { "64:ff9b:1::7f00:1", "is reserved" },
        { "2002:7f00:1::", "is 6to4, which hides an IPv4 address" },
        { "2001:0:7f00:1::", "is reserved for protocols" },
        { "2001:db8::1", "is for documentation" },
        { "2a00::5efe:7f00:1", "is ISATAP, which hides an IPv4 address" },
        { "2a00::200:5efe:808:808", "is ISATAP, which hides an IPv4 address" },
        { "fd00::5efe:808:808", "is private" },
        { "fc00::1", "is private" },
        { "fd00:ec2::254", "is private" },
        { "fe80::1", "is link-local" },
        { "fec0::1", "is private" },
        { "ff02::1", "is multicast" },
        { "100::1", "is reserved" },
        { "4000::1", "is reserved" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        CHECK_STR(judge(rows[i][0], ""), rows[i][1]);
}

TEST(what_the_operator_allows_is_reached_and_nothing_beside_it)
{
    const char *allow = "10.1.0.0/16, fd00:1::/32,127.0.0.1";

    CHECK_STR(judge("10.1.255.255", allow), "public");
    CHECK_STR(judge("10.2.0.0", allow), "is private");
    CHECK_STR(judge("::ffff:10.1.0.1", allow), "public");
    CHECK_STR(judge("64:ff9b::a01:1", allow), "public");
    CHECK_STR(judge("fd00:1:ffff::", allow), "public");
    CHECK_STR(judge("fd00:2::", allow), "is private");
    CHECK_STR(judge("127.0.0.1", allow), "public");
    CHECK_STR(judge("127.0.0.2", allow), "is this machine");
}

TEST(a_slip_in_a_prefix_is_an_error)
{
    static const char *const texts[] = {
        "10.0.0.0/33", "10.0.0.1/8", "10.0.0.0/",    "10.0.0/8", "fd00::/129",    "fd00::1/64",
        "/8",          "x",          "10.0.0.0/8/8", "::/-1",    "10.0.0.0/08000"
    };
    struct netrange_list list = { .n = 0 };

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct err err = { 0 };

        CHECK_INT(netrange_list_add(&list, str_of(texts[i]), &err), -1);
        CHECK_INT(err.code, ERR_INVALID);
        CHECK_INT(list.n, 0);
    }
}

TEST(a_list_has_a_bound)
{
    struct netrange_list list = { .n = 0 };
    struct err err = { 0 };

    for (int i = 0; i < NETRANGE_LIST; i++)
        CHECK_INT(netrange_list_add(&list, STR("10.0.0.0/8"), &err), 0);
    CHECK_INT(netrange_list_add(&list, STR("10.0.0.0/8"), &err), -1);
    CHECK_INT(err.code, ERR_LIMIT);
}

TEST(addresses_of_this_machine_are_its_own)
{
    struct ifaddrs *all;
    struct err err = { 0 };
    struct addr loop = addr_of("127.0.0.1"), other = addr_of("8.8.8.8"),
                six = addr_of("2606:4700::1111");

    CHECK_INT(netrange_own(&loop, NULL, &err), 1);
    CHECK_INT(netrange_own(&other, NULL, &err), 0);
    CHECK_INT(netrange_own(&six, NULL, &err), 0);
    CHECK_INT(getifaddrs(&all), 0);
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct addr a = { 0 };

        if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || i->ifa_addr->sa_family != AF_INET)
            continue;
        a.len = sizeof(struct sockaddr_in);
        memcpy(&a.sa, i->ifa_addr, a.len);
        CHECK_INT(netrange_own(&a, NULL, &err), 1);
    }
    freeifaddrs(all);
}

TEST(an_own_address_that_is_allowed_is_reached)
{
    struct netrange_list list = { .n = 0 };
    struct addr loop = addr_of("127.0.0.1");
    struct err err = { 0 };

    CHECK_INT(netrange_list_add(&list, STR("127.0.0.0/8"), &err), 0);
    CHECK_INT(netrange_own(&loop, &list, &err), 0);
}
