/* fetch.h - files from and to URLs that strangers name: http and https, GET and PUT.
 *
 * A client may name any URL, and we stand where it does not: beside the machine's own services, its
 * private network, its cloud's metadata. So a name is looked up once, every address it has must be
 * one of the public internet (netrange.h) and none of this machine, and exactly the address that
 * was checked is connected to; each redirect starts again from there. Proxies that the environment
 * names are not used: they would look the name up themselves.
 *
 * Neither the path nor the query of a URL appears in an error or a log (they carry signatures),
 * only "https://host:port".
 *
 * ERR_INVALID the URL, or one that a redirect names; ERR_DENIED its address, a downgrade;
 * ERR_NOT_FOUND no such host; ERR_TOO_LARGE, ERR_TIMEOUT, ERR_LIMIT name the setting;
 * ERR_UPSTREAM the server's answer or failure; ERR_GONE the caller was cancelled. What a sink or
 * source set stays as it is. All of it parks. */
#ifndef IO_FETCH_H
#define IO_FETCH_H

#include "base/setting.h"
#include "io/netrange.h"
#include "io/sock.h"

struct fetch_limits {
    int64_t max_bytes, total_ms, redirects, at_once, resolving, resolve_ms, expect_ms;
};
extern struct fetch_limits fetch_limits;
extern const struct setting fetch_settings[];

enum { FETCH_ADDRS = 16 };

/* All addresses of a name, with this port; more than fit are left out. On a worker thread: may
 * block, must not park. How many, 0: none, -1 with err. */
typedef int fetch_resolve(void *arg, const char *name, uint16_t port, struct addr *out, int max,
                          struct err *err);

struct fetch_options {
    const char *ca_file;               /* PEM to trust instead of the machine's store; NULL */
    const struct netrange_list *allow; /* to be reached though not public; copied; NULL: none */
    fetch_resolve *resolve;            /* NULL: the machine's resolver */
    void *resolve_arg;
};

struct fetch;

/* Costs nothing yet: OpenSSL and the certificates are loaded with the first https URL. */
struct fetch *fetch_new(const struct fetch_options *o);
/* Nothing may be under way. In a coroutine, or after the last one has ended. */
void fetch_closep(struct fetch **f);

struct fetch_bounds { /* 0: fetch.max-bytes, fetch.total-ms */
    int64_t max_bytes, total_ms;
};

struct fetch_result {
    int status;    /* of the last answer: 2xx */
    int64_t bytes; /* of the body that came or went */
    int redirects;
};

/* Takes the next bytes; may park. -1 with err ends it. */
typedef int fetch_sink(void *arg, const void *p, size_t n, struct err *err);

/* Called only once a 2xx answer has begun; a failure may come after some bytes. */
int fetch_get(struct fetch *f, struct str url, const struct fetch_bounds *b, fetch_sink *sink,
              void *arg, struct fetch_result *out, struct err *err);

struct fetch_source {
    int64_t length; /* known ahead: signed URLs do not take chunks */
    /* From the first byte on, maybe once more after a redirect; NULL: cannot be read twice. */
    int (*begin)(void *arg, struct err *err);
    ssize_t (*read)(void *arg, void *buf, size_t n, struct err *err); /* may park; 0: no more */
    void *arg;
    struct str headers; /* "Name: value\r\n" lines; neither Host nor framing */
};

/* 2xx is success. Of redirects only 307 and 308 are followed, and the body goes to the last. */
int fetch_put(struct fetch *f, struct str url, const struct fetch_bounds *b,
              const struct fetch_source *from, struct fetch_result *out, struct err *err);

#endif
