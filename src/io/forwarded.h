/* forwarded.h - where a request comes from, when proxies of the operator's pass it on.
 *
 * Anybody can write X-Forwarded-For. Each proxy adds the address of who asked it at the right, so
 * what those write that we trust is read from there, up to the first address that is not one of
 * theirs. No I/O. */
#ifndef IO_FORWARDED_H
#define IO_FORWARDED_H

#include "io/http.h"
#include "io/netrange.h"

enum { FORWARDED_ADDRESS = 46, FORWARDED_HOPS = 32 };

/* Into out: the rightmost address that is not in trusted, or peer itself where that is not; where
 * all of them are, the leftmost. What is no address ends the list: then the one that wrote it. */
void forwarded_client(const struct http_head *h, const char *peer,
                      const struct netrange_list *trusted /* NULL: none */,
                      char out[static FORWARDED_ADDRESS]);

/* Is that address one of them? */
bool forwarded_trusts(const struct netrange_list *trusted, const char *address);

/* Has some proxy, ours or not, passed this request on, as far as it says so? */
bool forwarded_any(const struct http_head *h);

#endif
