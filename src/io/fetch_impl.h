/* fetch_impl.h - what fetch.c (requests, redirects) and fetch_dial.c (names, addresses) share. */
#ifndef IO_FETCH_IMPL_H
#define IO_FETCH_IMPL_H

#include "io/client.h"
#include "io/fetch.h"
#include "io/tls.h"
#include "io/url.h"

struct fetch {
    struct client client;    /* keeps nothing: a connection is of one address that was checked */
    struct tls_context *tls; /* NULL until it is needed */
    char *ca_file;
    struct netrange_list allow;
    fetch_resolve *resolve;
    void *resolve_arg;
    int64_t running, resolving; /* now */
    struct co_cond resolved;
};

struct fetch_place { /* the addresses of a URL's host that may be connected to */
    struct addr at[FETCH_ADDRS];
    int n;
};

/* Looks the host up once, and refuses it when any of its addresses is not to be reached. */
int fetch_find(struct fetch *f, const struct url *u, int64_t until, struct fetch_place *out,
               struct err *err);
int fetch_dial(void *place, int64_t until, struct err *err); /* a client_dial */
int fetch_system_resolve(void *arg, const char *name, uint16_t port, struct addr *out, int max,
                         struct err *err);

#endif
