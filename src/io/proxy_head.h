/* proxy_head.h - the heads that a proxy writes: pure rewriting, no waiting. Each goes into the
 * call's scratch buffer. */
#ifndef IO_PROXY_HEAD_H
#define IO_PROXY_HEAD_H

#include "io/proxy.h"

void proxy_head_request(const struct proxy *p, struct call *c);
/* Decides the answer's framing too: c->status, c->chunked and c->close. */
void proxy_head_answer(const struct proxy *p, struct call *c, const struct exchange *x);
void proxy_head_interim(const struct proxy *p, struct call *c, const struct exchange *x); /* 1xx */
/* Does the client ask for an upgrade that may be passed on? */
bool proxy_head_upgrades(const struct http_head *h);
/* Checks raw trailer lines and writes those that may be passed on. */
int proxy_head_trailers(const struct proxy *p, bool answer, struct buf *raw, struct buf *out,
                        struct err *err);

#endif
