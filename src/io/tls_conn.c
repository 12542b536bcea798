/* tls_conn.c - one TLS connection: the handshake and the layer under a conn.
 *
 * The handshake runs on a worker, step by step: a signature takes up to a millisecond, and how much
 * stack OpenSSL needs for a chain of certificates is its own business. After that reading and
 * writing are short and happen where the caller is; nothing in here waits, so two coroutines may
 * use the two directions of one connection. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "io/tls_impl.h"

/* ---- the layer ---- */

/* What a failed call means, as errno. Only a close_notify is an end: an end without it is a cut,
 * which an attacker can make as well as the peer. */
static ssize_t failed(struct conn *c, SSL *ssl, int r, bool reading)
{
    int e = errno;

    switch (SSL_get_error(ssl, r)) {
    case SSL_ERROR_WANT_READ:
        if (!reading)
            break; /* needs a renegotiation, which we refuse */
        c->turned = false;
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_WANT_WRITE:
        if (reading)
            c->turned = true;
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_ZERO_RETURN: errno = EPIPE; return reading ? 0 : -1;
    case SSL_ERROR_SYSCALL:
        SSL_set_quiet_shutdown(ssl, 1); /* nothing more can be said */
        errno = e ? e : ECONNRESET;
        return -1;
    default: break;
    }
    e = ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING ? ECONNRESET
                                                                               : EPROTO;
    SSL_set_quiet_shutdown(ssl, 1);
    errno = e;
    return -1;
}

static ssize_t layer_read(struct conn *c, void *buf, size_t n)
{
    int r;

    ERR_clear_error();
    errno = 0;
    r = SSL_read(c->layer, buf, (int)MIN(n, (size_t)INT32_MAX));
    if (r <= 0)
        return failed(c, c->layer, r, true);
    c->turned = false;
    return r;
}

static ssize_t layer_write(struct conn *c, const void *p, size_t n)
{
    int r;

    ERR_clear_error();
    errno = 0;
    r = SSL_write(c->layer, p, (int)MIN(n, (size_t)INT32_MAX));
    return r > 0 ? r : failed(c, c->layer, r, false);
}

/* Reads what is no data (tickets, key updates) on the way. */
static ssize_t layer_peek(const struct conn *c)
{
    struct conn scratch = { .turned = c->turned };
    char byte;
    int r;

    ERR_clear_error();
    errno = 0;
    r = SSL_peek(c->layer, &byte, 1);
    return r > 0 ? r : failed(&scratch, c->layer, r, true);
}

static int layer_end(struct conn *c)
{
    int r;

    if (SSL_get_shutdown(c->layer) & SSL_SENT_SHUTDOWN)
        return 0;
    ERR_clear_error();
    r = SSL_shutdown(c->layer);
    if (r >= 0)
        return 0;
    errno = SSL_get_error(c->layer, r) == SSL_ERROR_WANT_WRITE ? EAGAIN : EPIPE;
    return -1;
}

static void layer_finish(struct conn *c)
{
    SSL_free(TAKE(c->layer, NULL));
    ERR_clear_error();
}

static const struct conn_ops layer = {
    .read = layer_read,
    .write = layer_write,
    .peek = layer_peek,
    .end = layer_end,
    .finish = layer_finish,
};

/* ---- the handshake ---- */

struct step {
    SSL *ssl;
    int result, verdict; /* verdict: SSL_get_error() */
    int error;           /* errno */
    char why[160];       /* the queue of errors is the worker's, so it says why */
};

static void step(void *arg)
{
    struct step *s = arg;
    long verified;

    ERR_clear_error();
    errno = 0;
    s->result = SSL_do_handshake(s->ssl);
    s->error = errno;
    s->verdict = SSL_get_error(s->ssl, s->result);
    if (s->result == 1 || s->verdict == SSL_ERROR_WANT_READ || s->verdict == SSL_ERROR_WANT_WRITE)
        return;
    verified = SSL_get_verify_result(s->ssl);
    if (s->verdict == SSL_ERROR_SSL && verified != X509_V_OK)
        snprintf(s->why, sizeof(s->why), "its certificate is refused: %s",
                 X509_verify_cert_error_string(verified));
    else if (s->verdict == SSL_ERROR_SSL)
        snprintf(s->why, sizeof(s->why), "%s", tls_why());
    else
        snprintf(s->why, sizeof(s->why), "%s",
                 s->error ? strerrordesc_np(s->error) : "it closed the connection");
}

static int waited(const char *who, struct err *err)
{
    if (errno == ETIMEDOUT)
        return err_set(err, ERR_TIMEOUT, "TLS with %.100s: no handshake in time", who);
    return err_set(err, ERR_GONE, "cancelled");
}

static int shake(struct conn *c, SSL *ssl, const char *who, int64_t until, struct err *err)
{
    for (;;) {
        struct step s = { .ssl = ssl };

        co_call(step, &s);
        if (s.result == 1)
            return 0;
        if (s.verdict != SSL_ERROR_WANT_READ && s.verdict != SSL_ERROR_WANT_WRITE)
            return err_set(err, ERR_UPSTREAM, "TLS with %.80s: %s", who, s.why);
        if (co_wait(c->fd, s.verdict == SSL_ERROR_WANT_READ ? CO_IN : CO_OUT, until))
            return waited(who, err);
    }
}

int tls_handshake(struct conn *c, SSL *ssl, const char *who, int64_t until, struct err *err)
{
    if (!ssl || !SSL_set_fd(ssl, c->fd) || shake(c, ssl, who, until, err) < 0) {
        if (!ssl)
            err_set(err, ERR_UNAVAILABLE, "TLS: %s", tls_why());
        SSL_free(ssl);
        return -1;
    }
    c->layer = ssl;
    c->ops = &layer;
    return 0;
}

int tls_first_byte(struct conn *c, int64_t until, struct err *err)
{
    enum { HANDSHAKE = 0x16 }; /* the record type every client begins with */
    unsigned char byte;

    for (;;) {
        ssize_t r = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

        if (r == 1)
            break;
        if (r == 0 || (errno != EAGAIN && errno != EINTR))
            return err_set(err, ERR_GONE, "the client left before a handshake");
        if (errno == EAGAIN && co_wait(c->fd, CO_IN, until))
            return waited("the client", err);
    }
    if (byte == HANDSHAKE)
        return 0;
    if (byte >= 'A' && byte <= 'Z') /* a method */
        return err_set(err, ERR_INVALID,
                       "this port speaks TLS: begin the address with https://, not http://");
    return err_set(err, ERR_GONE, "the client does not speak TLS");
}
