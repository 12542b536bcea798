/* tls_make.h - a private CA and a certificate by it: what a server without a public name needs to
 * speak TLS. Blocks; for command lines. */
#ifndef IO_TLS_MAKE_H
#define IO_TLS_MAKE_H

#include "base/buf.h"
#include "base/err.h"

enum { TLS_CA_DAYS = 3650, TLS_DAYS = 397 }; /* browsers refuse more than 398 */

struct tls_order {
    const char *dir;    /* where the files are, made if it is missing */
    const char *domain; /* the certificate is for it, *.it, localhost, 127.0.0.1 and ::1 */
    bool force;         /* replace the certificate, by the CA that is there */
    bool new_ca;        /* replace the CA too */
    int64_t begins_s;   /* unix; 0: now */
};

struct tls_made {
    char *ca, *ca_key, *chain, *key; /* paths, owned */
    bool kept_ca;
    int64_t expires_s;        /* unix */
    char fingerprint[64 + 1]; /* SHA-256 of the CA's certificate */
};

/* A host name of at least two labels, in small letters; a wildcard below a single label (as in
 * *.localhost) is taken by no client. */
int tls_check_domain(const char *domain, struct err *err);
int tls_make(const struct tls_order *o, struct tls_made *out, struct err *err);
void tls_made_free(struct tls_made *m);

#endif
