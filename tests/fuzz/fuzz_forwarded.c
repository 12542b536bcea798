/* fuzz_forwarded.c - X-Forwarded-For: the first line is the peer, the second the trusted prefixes,
 * the rest a request. Promises: it ends with an address or with the peer as it was; of a peer that
 * is not trusted nothing else is believed; what comes out is trusted only where all are. */
#include "fuzz.h"
#include "io/forwarded.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size), peer[FORWARDED_ADDRESS], out[FORWARDED_ADDRESS];
    static struct http_head h;
    struct netrange_list trusted = { 0 };
    struct str line, rest = { copy, size };
    struct netrange one;
    struct err err = { 0 };

    str_cut(rest, '\n', &line, &rest);
    snprintf(peer, sizeof(peer), "%.*s", STR_ARG(line));
    str_cut(rest, '\n', &line, &rest);
    (void)!netrange_list_add(&trusted, line, &err);
    if (rest.p && http_parse(rest.p, rest.n, HTTP_REQUEST, &h, &err) > 0) {
        memset(out, 'x', sizeof(out));
        forwarded_client(&h, peer, &trusted, out);
        MUST(memchr(out, 0, sizeof(out)));
        MUST(!strcmp(out, peer) || !netrange_parse(str_of(out), &one, &err));
        MUST(forwarded_trusts(&trusted, peer) || !strcmp(out, peer));
        forwarded_client(&h, peer, NULL, out);
        MUST(!strcmp(out, peer));
    }
    free(copy);
    return 0;
}
