/* tls.h - TLS under a connection, for servers and clients, on coroutines.
 *
 * A context makes a conn_guard, which httpd and client_to take: they know nothing of TLS, so that
 * what has no use for it (the guest, the zygote) does not link it. TLS 1.2 and 1.3, HTTP/1.1 only.
 *
 *   AUTO(tls_closep) struct tls_context *t = NULL;
 *   if (tls_server("server.pem", "server.key", &t, err) < 0) ...
 *   struct httpd d = { ..., .tls = tls_guard(t) };
 *
 *   if (tls_client(NULL, &t, err) < 0) ...
 *   struct client_to to = { .addr = &a, .key = "example.org:443", .tls = tls_guard(t),
 *                           .tls_name = "example.org" };
 */
#ifndef IO_TLS_H
#define IO_TLS_H

#include "io/conn.h"

struct tls_context;

/* Certificate chain (the server's own first) and its key, PEM. Reads the files, so it blocks. When
 * they change, the next handshakes look at them again (at most every two seconds) and use the new
 * ones, if this process may read them and they fit each other. */
int tls_server(const char *chain_file, const char *key_file, struct tls_context **out,
               struct err *err);
/* Trusts what ca_file has (PEM); NULL: the machine's store, or what SSL_CERT_FILE names. */
int tls_client(const char *ca_file, struct tls_context **out, struct err *err);
/* Reads a server's files again if they have changed, as SIGHUP asks: 1 they are in use now, 0 they
 * have not, -1 with err, and the former ones stay. In a coroutine: parks. */
int tls_reload(struct tls_context *t, struct err *err);
void tls_closep(struct tls_context **t); /* connections that were made with it live on */

struct conn_guard *tls_guard(struct tls_context *t); /* valid as long as t */

#endif
