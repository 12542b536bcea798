/* tls_impl.h - what tls.c (contexts) and tls_conn.c (connections) know of each other. */
#ifndef IO_TLS_IMPL_H
#define IO_TLS_IMPL_H

#include <openssl/ssl.h>

#include "io/tls.h"

int tls_load(struct err *err);        /* OpenSSL, before the first call of it */
int tls_load_crypto(struct err *err); /* the part of it that knows nothing of connections */
/* Why OpenSSL's last call of this thread failed; the queue is empty afterwards. */
const char *tls_why(void);
/* Shakes hands; on success c has its layer. Owns ssl either way. who: for error texts. */
int tls_handshake(struct conn *c, SSL *ssl, const char *who, int64_t until, struct err *err);
/* Waits for the client's first byte. ERR_INVALID when it is one of plain HTTP. */
int tls_first_byte(struct conn *c, int64_t until, struct err *err);

#endif
