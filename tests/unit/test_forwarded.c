/* test_forwarded.c - whose request it is, behind proxies that are trusted and others that are not.
 */
#include "io/forwarded.h"

#include "test.h"

static const struct row {
    const char *name, *peer, *lines, *want;
} rows[] = {
    { "a stranger's word is nothing", "198.51.100.7", "X-Forwarded-For: 192.0.2.1\r\n",
      "198.51.100.7" },
    { "a proxy's word is", "10.0.0.1", "X-Forwarded-For: 192.0.2.1\r\n", "192.0.2.1" },
    { "a proxy that says nothing", "10.0.0.1", "X-Other: x\r\n", "10.0.0.1" },
    { "what the client wrote itself stands at the left", "10.0.0.1",
      "X-Forwarded-For: 203.0.113.9, 192.0.2.1\r\n", "192.0.2.1" },
    { "a chain of proxies", "10.0.0.1", "X-Forwarded-For: 203.0.113.9, 192.0.2.1, 10.2.3.4\r\n",
      "192.0.2.1" },
    { "several lines are one list", "10.0.0.1",
      "X-Forwarded-For: 203.0.113.9\r\nX-Other: 1\r\nx-forwarded-for: 192.0.2.1\r\n"
      "X-Forwarded-For: 10.9.9.9\r\n",
      "192.0.2.1" },
    { "all are proxies", "10.0.0.1", "X-Forwarded-For: 10.1.1.1, 10.2.2.2\r\n", "10.1.1.1" },
    { "no address: who said so", "10.0.0.1", "X-Forwarded-For: 192.0.2.1, unknown\r\n",
      "10.0.0.1" },
    { "no address behind a proxy", "10.0.0.1", "X-Forwarded-For: 192.0.2.1, _x, 10.2.2.2\r\n",
      "10.2.2.2" },
    { "nothing between commas", "10.0.0.1", "X-Forwarded-For: 192.0.2.1,,\r\n", "10.0.0.1" },
    { "an empty line", "10.0.0.1", "X-Forwarded-For:\r\n", "10.0.0.1" },
    { "with a port", "10.0.0.1", "X-Forwarded-For: 192.0.2.1:4711\r\n", "192.0.2.1" },
    { "with no port behind the colon", "10.0.0.1", "X-Forwarded-For: 192.0.2.1:\r\n", "10.0.0.1" },
    { "IPv6", "fd00::5", "X-Forwarded-For: 2001:DB8::1\r\n", "2001:db8::1" },
    { "IPv6 in brackets", "fd00::5", "X-Forwarded-For: [2001:db8::1]\r\n", "2001:db8::1" },
    { "IPv6 and a port", "fd00::5", "X-Forwarded-For: [2001:db8::1]:443\r\n", "2001:db8::1" },
    { "IPv6 and no port", "fd00::5", "X-Forwarded-For: [2001:db8::1]x\r\n", "fd00::5" },
    { "an open bracket", "fd00::5", "X-Forwarded-For: [2001:db8::1\r\n", "fd00::5" },
    { "IPv4 in IPv6 is IPv4", "::ffff:10.0.0.1",
      "X-Forwarded-For: ::ffff:10.1.1.1, "
      "::ffff:192.0.2.1\r\n",
      "192.0.2.1" },
    { "a prefix is no address", "10.0.0.1", "X-Forwarded-For: 192.0.2.0/24\r\n", "10.0.0.1" },
    { "a Unix socket's peer", "", "X-Forwarded-For: 192.0.2.1\r\n", "" },
};

TEST_ROWS(the_address_of_who_asks, rows, test_once)
{
    struct netrange_list trusted = { 0 };
    char text[512], out[FORWARDED_ADDRESS];
    struct http_head h;
    struct err err = { 0 };
    int n = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: h\r\n%s\r\n", row->lines);

    CHECK_INT(netrange_list_add(&trusted, STR("10.0.0.0/8,fd00::/8"), &err), 0);
    CHECK_INT(http_parse(text, (size_t)n, HTTP_REQUEST, &h, &err), n);
    forwarded_client(&h, row->peer, &trusted, out);
    CHECK_STR(out, row->want);
    forwarded_client(&h, row->peer, NULL, out);
    CHECK_STR(out, row->peer); /* nobody is trusted */
}

TEST(only_so_many_proxies_are_believed)
{
    struct netrange_list trusted = { 0 };
    char text[4096] = "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.1",
         out[FORWARDED_ADDRESS];
    size_t n = strlen(text);
    struct http_head h;
    struct err err = { 0 };

    for (int i = 0; i < 200; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, ", 10.0.0.%d", 250 - i);
    n += (size_t)snprintf(text + n, sizeof(text) - n, "\r\n\r\n");
    CHECK_INT(netrange_list_add(&trusted, STR("10.0.0.0/8"), &err), 0);
    CHECK_INT(http_parse(text, n, HTTP_REQUEST, &h, &err), (ssize_t)n);
    forwarded_client(&h, "10.9.9.9", &trusted, out);
    CHECK_STR(out, "10.0.0.82"); /* the 32nd from the right */
}
