/* tls.c - see tls.h. Contexts: what we accept, whom we trust, files that change.
 *
 * A context's SSL_CTX is replaced as a whole when the files have changed; connections hold a
 * reference to the one they began with. */
#include "io/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "io/tls_impl.h"

enum { CHECK_MS = 2000 };

struct stamp { /* tells one version of a file from the next */
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
};

enum { CHAIN, KEY, FILES };

struct tls_context {
    struct conn_guard guard;
    SSL_CTX *ctx;
    char *file[FILES]; /* a server's; NULL for a client */
    struct stamp seen[FILES];
    int64_t check_at;
    bool checking;
};

const char *tls_why(void)
{
    unsigned long e = ERR_peek_error();
    const char *text = e ? ERR_reason_error_string(e) : NULL;

    ERR_clear_error();
    return text ? text : "unknown reason";
}

/* ---- what both sides have in common ---- */

/* Of TLS 1.2 only what has forward secrecy and an authenticated cipher; 1.3 has nothing else. */
#define CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"

static SSL_CTX *new_ctx(const SSL_METHOD *method, struct err *err)
{
    SSL_CTX *x = SSL_CTX_new(method);
    char groups[] = "X25519:P-256:P-384"; /* an array: OpenSSL's macro casts const away */

    if (!x || !SSL_CTX_set_min_proto_version(x, TLS1_2_VERSION) ||
        !SSL_CTX_set_cipher_list(x, CIPHERS) || !SSL_CTX_set1_groups_list(x, groups)) {
        err_set(err, ERR_INTERNAL, "TLS: %s", tls_why());
        SSL_CTX_free(x);
        return NULL;
    }
    SSL_CTX_set_options(x, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    /* Writes may be continued from another place with other bounds, as conn.c does; idle
     * connections keep no record buffers. */
    SSL_CTX_set_mode(x, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(x, 1);                          /* one read for a record, not two */
    SSL_CTX_set_session_cache_mode(x, SSL_SESS_CACHE_OFF); /* tickets need no memory of ours */
    return x;
}

static void free_ctx(SSL_CTX **x) { SSL_CTX_free(*x); }

static struct tls_context *new_context(SSL_CTX *x)
{
    struct tls_context *t = xcalloc(1, sizeof(*t));

    t->ctx = x;
    return t;
}

void tls_closep(struct tls_context **t)
{
    if (!*t)
        return;
    SSL_CTX_free((*t)->ctx);
    for (int i = 0; i < FILES; i++)
        free((*t)->file[i]);
    free(*t);
    *t = NULL;
}

struct conn_guard *tls_guard(struct tls_context *t) { return &t->guard; }

/* ---- servers ---- */

static const unsigned char http11[] = "\x08http/1.1"; /* as ALPN writes it */

/* A client that offers protocols, but none of ours, would misunderstand every answer. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *n,
                           const unsigned char *offered, unsigned int offered_n, void *arg)
{
    unsigned char *chosen;

    (void)ssl, (void)arg;
    if (SSL_select_next_proto(&chosen, n, http11, sizeof(http11) - 1, offered, offered_n) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* A key under a passphrase would be asked for on the terminal, in the middle of the loop. */
static int no_passphrase(char *buf, int n, int writing, void *arg)
{
    (void)buf, (void)n, (void)writing, (void)arg;
    return -1;
}

static const char *const file_kind[FILES] = { "certificate", "key" };

/* Opened once before OpenSSL does it, whose error would not say why. */
static int look(const char *const file[FILES], struct stamp out[FILES], struct err *err)
{
    for (int i = 0; i < FILES; i++) {
        AUTO(closep) int fd = open(file[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        struct stat st;

        if (fd < 0 || fstat(fd, &st))
            return err_sys(err, "TLS %s %.150s", file_kind[i], file[i]);
        if (!S_ISREG(st.st_mode))
            return err_set(err, ERR_INVALID, "TLS %s %.150s: not a file", file_kind[i], file[i]);
        out[i] = (struct stamp){ st.st_dev, st.st_ino, st.st_size, st.st_mtim };
    }
    return 0;
}

static bool same_stamp(const struct stamp *a, const struct stamp *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec;
}

static SSL_CTX *load(const char *const file[FILES], struct err *err)
{
    AUTO(free_ctx) SSL_CTX *x = new_ctx(TLS_server_method(), err);

    if (!x)
        return NULL;
    SSL_CTX_set_default_passwd_cb(x, no_passphrase);
    SSL_CTX_set_num_tickets(x, 1); /* our clients keep connections, not sessions */
    SSL_CTX_set_alpn_select_cb(x, choose_protocol, NULL);
    if (SSL_CTX_use_certificate_chain_file(x, file[CHAIN]) != 1) {
        err_set(err, ERR_INVALID, "TLS certificate %.120s: %s (PEM is needed)", file[CHAIN],
                tls_why());
        return NULL;
    }
    if (SSL_CTX_use_PrivateKey_file(x, file[KEY], SSL_FILETYPE_PEM) != 1) {
        err_set(err, ERR_INVALID,
                "TLS key %.120s: %s (PEM without a passphrase is needed, of the certificate)",
                file[KEY], tls_why());
        return NULL;
    }
    return TAKE(x, NULL);
}

struct loading {
    struct tls_context *t;
    struct stamp seen[FILES];
    SSL_CTX *ctx; /* out: NULL with result 0 when nothing has changed */
    int result;
    struct err err;
};

static void load_changed(void *arg)
{
    struct loading *l = arg;
    const char *const file[FILES] = { l->t->file[CHAIN], l->t->file[KEY] };

    l->result = look(file, l->seen, &l->err);
    if (l->result || (same_stamp(&l->seen[CHAIN], &l->t->seen[CHAIN]) &&
                      same_stamp(&l->seen[KEY], &l->t->seen[KEY])))
        return;
    l->ctx = load(file, &l->err);
    l->result = l->ctx ? 0 : -1;
}

/* Files that do not fit are remembered too: they are tried again once one of them changes, as it
 * does when certificate and key are replaced one after the other. */
int tls_reload(struct tls_context *t, struct err *err)
{
    struct loading l = { .t = t };

    while (t->checking)
        co_pass();
    t->checking = true;
    co_call(load_changed, &l);
    t->checking = false;
    t->check_at = co_in(CHECK_MS);
    if (l.ctx || l.result)
        memcpy(t->seen, l.seen, sizeof(t->seen));
    if (l.result) {
        *err = l.err;
        return err_in(err, "the former certificate stays in use");
    }
    if (!l.ctx)
        return 0;
    SSL_CTX_free(t->ctx);
    t->ctx = l.ctx;
    return 1;
}

static void keep_fresh(struct tls_context *t)
{
    struct err err = { 0 };
    int r;

    if (t->checking || co_now() < t->check_at)
        return;
    r = tls_reload(t, &err);
    if (r > 0)
        log_info("TLS certificate replaced", KV("file", t->file[CHAIN]));
    else if (r < 0)
        log_warn("TLS certificate not replaced", KV("error", err.msg));
}

static int begin_server(struct conn_guard *g, struct conn *c, const char *name, int64_t until,
                        struct err *err)
{
    struct tls_context *t = CONTAINER_OF(g, struct tls_context, guard);
    SSL *ssl;

    (void)name;
    if (tls_first_byte(c, until, err) < 0)
        return -1;
    keep_fresh(t);
    ssl = SSL_new(t->ctx);
    if (ssl)
        SSL_set_accept_state(ssl);
    return tls_handshake(c, ssl, "the client", until, err);
}

int tls_server(const char *chain_file, const char *key_file, struct tls_context **out,
               struct err *err)
{
    const char *const file[FILES] = { chain_file, key_file };
    struct stamp seen[FILES];
    struct tls_context *t;
    SSL_CTX *x;

    if (tls_load(err) || look(file, seen, err) < 0 || !(x = load(file, err)))
        return -1;
    t = new_context(x);
    t->guard.begin = begin_server;
    memcpy(t->seen, seen, sizeof(seen));
    for (int i = 0; i < FILES; i++)
        t->file[i] = xstrdup(file[i]);
    *out = t;
    return 0;
}

/* ---- clients ---- */

/* An address has no name to send, and is compared with the certificate's addresses. */
static int expect_name(SSL *ssl, const char *name)
{
    X509_VERIFY_PARAM *p = SSL_get0_param(ssl);

    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (X509_VERIFY_PARAM_set1_ip_asc(p, name))
        return 0;
    ERR_clear_error();
    return SSL_set_tlsext_host_name(ssl, (void *)(uintptr_t)name) && SSL_set1_host(ssl, name) ? 0
                                                                                              : -1;
}

static int begin_client(struct conn_guard *g, struct conn *c, const char *name, int64_t until,
                        struct err *err)
{
    struct tls_context *t = CONTAINER_OF(g, struct tls_context, guard);
    SSL *ssl;

    if (!name || !name[0])
        return err_set(err, ERR_INVALID, "TLS: no name to compare the certificate with");
    ssl = SSL_new(t->ctx);
    if (ssl && expect_name(ssl, name) < 0) {
        SSL_free(ssl);
        return err_set(err, ERR_INVALID, "TLS: '%.100s' is not a host's name", name);
    }
    if (ssl)
        SSL_set_connect_state(ssl);
    return tls_handshake(c, ssl, name, until, err);
}

static int trust(SSL_CTX *x, const char *ca_file, struct err *err)
{
    if (!ca_file)
        return SSL_CTX_set_default_verify_paths(x)
                   ? 0
                   : err_set(err, ERR_INTERNAL, "TLS: no trusted certificates: %s", tls_why());
    if (access(ca_file, R_OK))
        return err_sys(err, "TLS certificates %.150s", ca_file);
    if (!SSL_CTX_load_verify_file(x, ca_file))
        return err_set(err, ERR_INVALID, "TLS certificates %.150s: %s (PEM is needed)", ca_file,
                       tls_why());
    return 0;
}

static int make_client(const char *ca_file, struct tls_context **out, struct err *err)
{
    AUTO(free_ctx) SSL_CTX *x = new_ctx(TLS_client_method(), err);

    if (!x || trust(x, ca_file, err) < 0)
        return -1;
    SSL_CTX_set_verify(x, SSL_VERIFY_PEER, NULL);
    if (SSL_CTX_set_alpn_protos(x, http11, sizeof(http11) - 1)) /* 0 is success here */
        return err_set(err, ERR_INTERNAL, "TLS: %s", tls_why());
    *out = new_context(TAKE(x, NULL));
    (*out)->guard.begin = begin_client;
    return 0;
}

int tls_client(const char *ca_file, struct tls_context **out, struct err *err)
{
    return tls_load(err) ? -1 : make_client(ca_file, out, err);
}
