/* tls_make.c - see tls_make.h.
 *
 * The CA is bound by name constraints to the names it is made for: who trusts it trusts it for
 * these only, so that a stolen key of it is no key to the rest of the web. Keys are files of mode
 * 0600 from their first byte, renamed into place when they are whole. */
#include "io/tls_make.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/tls_impl.h"

enum { DAY_S = 86400, SKEW_S = 3600 }; /* a client's clock may be behind ours */

static void free_key(EVP_PKEY **k) { EVP_PKEY_free(*k); }
static void free_cert(X509 **x) { X509_free(*x); }
static void free_bio(BIO **b) { BIO_free(*b); }

static int crypto(struct err *err, const char *what)
{
    return err_set(err, ERR_INTERNAL, "%s: %s", what, tls_why());
}

int tls_check_domain(const char *domain, struct err *err)
{
    struct str rest = str_of(domain), label;
    int labels = 0;
    bool ok = rest.n <= 200, more = true;

    while (ok && more) {
        more = str_cut(rest, '.', &label, &rest);
        labels++;
        ok = label.n && label.n <= 63 && label.p[0] != '-' && label.p[label.n - 1] != '-';
        for (size_t i = 0; ok && i < label.n; i++)
            ok = (label.p[i] >= 'a' && label.p[i] <= 'z') ||
                 (label.p[i] >= '0' && label.p[i] <= '9') || label.p[i] == '-';
    }
    if (!ok || (label.p[0] >= '0' && label.p[0] <= '9'))
        return err_set(err, ERR_INVALID,
                       "domain '%.100s': a host's name is needed: labels of a-z 0-9 - with dots "
                       "between them, the last one beginning with a letter",
                       domain);
    if (labels < 2)
        return err_set(err, ERR_INVALID,
                       "domain '%.100s': at least two labels are needed, because no client takes "
                       "a certificate for *.%.100s; cove.%.100s would do",
                       domain, domain, domain);
    return 0;
}

/* ---- certificates ---- */

struct cert_spec {
    const char *name; /* common name */
    EVP_PKEY *key;    /* whose it is */
    X509 *issuer;     /* NULL: itself */
    EVP_PKEY *issuer_key;
    int64_t begins_s;
    int days;
    const struct extension {
        int nid;
        const char *value;
    } * extensions; /* nid 0 ends them */
};

static int set_serial(X509 *x)
{
    unsigned char bytes[16];
    BIGNUM *n;
    int ok;

    if (RAND_bytes(bytes, sizeof(bytes)) != 1)
        return 0;
    bytes[0] = (bytes[0] & 0x7f) | 0x40; /* positive, and always of the same length */
    n = BN_bin2bn(bytes, sizeof(bytes), NULL);
    ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));
    BN_free(n);
    return ok;
}

static int add_extensions(X509 *x, const struct cert_spec *s, struct err *err)
{
    X509V3_CTX ctx;

    X509V3_set_ctx(&ctx, s->issuer ? s->issuer : x, x, NULL, NULL, 0);
    for (const struct extension *e = s->extensions; e->nid; e++) {
        X509_EXTENSION *made = X509V3_EXT_conf_nid(NULL, &ctx, e->nid, e->value);
        int ok = made && X509_add_ext(x, made, -1);

        X509_EXTENSION_free(made);
        if (!ok)
            return crypto(err, OBJ_nid2sn(e->nid));
    }
    return 0;
}

static X509 *sign(const struct cert_spec *s, struct err *err)
{
    AUTO(free_cert) X509 *x = X509_new();
    X509_NAME *subject = x ? X509_get_subject_name(x) : NULL;
    time_t from = (time_t)s->begins_s - SKEW_S, to = (time_t)s->begins_s + (time_t)s->days * DAY_S;

    if (!x || !X509_set_version(x, X509_VERSION_3) || !set_serial(x) ||
        !X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)s->name,
                                    -1, -1, 0) ||
        !X509_set_issuer_name(x, s->issuer ? X509_get_subject_name(s->issuer) : subject) ||
        !ASN1_TIME_set(X509_getm_notBefore(x), from) || !ASN1_TIME_set(X509_getm_notAfter(x), to) ||
        !X509_set_pubkey(x, s->key)) {
        crypto(err, "certificate");
        return NULL;
    }
    if (add_extensions(x, s, err) < 0)
        return NULL;
    if (!X509_sign(x, s->issuer_key, EVP_sha256())) {
        crypto(err, "certificate");
        return NULL;
    }
    return TAKE(x, NULL);
}

/* The name has random letters: a client that trusts two of them must not mix them up. */
static X509 *make_ca(const struct tls_order *o, EVP_PKEY *key, int64_t now_s, struct err *err)
{
    AUTO(buf_free) struct buf names = { 0 };
    const struct extension extensions[] = {
        { NID_basic_constraints, "critical,CA:TRUE,pathlen:0" },
        { NID_key_usage, "critical,keyCertSign,cRLSign" },
        { NID_subject_key_identifier, "hash" },
        { NID_name_constraints, NULL },
        { 0 },
    };
    struct cert_spec s = { .key = key, .issuer_key = key, .begins_s = now_s, .days = TLS_CA_DAYS };
    struct extension filled[ARRAY_LEN(extensions)];
    unsigned char tag[4];
    char name[64];

    if (RAND_bytes(tag, sizeof(tag)) != 1) {
        crypto(err, "random bytes");
        return NULL;
    }
    snprintf(name, sizeof(name), "Cove private CA %02x%02x%02x%02x", tag[0], tag[1], tag[2],
             tag[3]);
    buf_printf(&names,
               "critical,permitted;DNS:%s,permitted;DNS:localhost,"
               "permitted;IP:127.0.0.0/255.0.0.0,"
               "permitted;IP:0:0:0:0:0:0:0:1/ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
               o->domain);
    memcpy(filled, extensions, sizeof(filled));
    filled[3].value = names.data;
    s.name = name;
    s.extensions = filled;
    return sign(&s, err);
}

static X509 *make_leaf(const struct tls_order *o, EVP_PKEY *key, X509 *ca, EVP_PKEY *ca_key,
                       int64_t now_s, struct err *err)
{
    AUTO(buf_free) struct buf names = { 0 };
    struct extension extensions[] = {
        { NID_basic_constraints, "critical,CA:FALSE" },
        { NID_key_usage, "critical,digitalSignature" },
        { NID_ext_key_usage, "serverAuth" },
        { NID_subject_key_identifier, "hash" },
        { NID_authority_key_identifier, "keyid:always" },
        { NID_subject_alt_name, NULL },
        { 0 },
    };
    /* a common name may have 64 characters; nobody looks at it when there are other names */
    struct cert_spec s = { .name = strlen(o->domain) <= 64 ? o->domain : "Cove",
                           .key = key,
                           .issuer = ca,
                           .issuer_key = ca_key,
                           .begins_s = now_s,
                           .days = TLS_DAYS,
                           .extensions = extensions };

    buf_printf(&names, "DNS:%s,DNS:*.%s,DNS:localhost,IP:127.0.0.1,IP:::1", o->domain, o->domain);
    extensions[5].value = names.data;
    return sign(&s, err);
}

/* Would a client that trusts the CA take it? Not when the CA is for another domain. */
static int check_chain(X509 *ca, X509 *leaf, const struct tls_order *o, struct err *err)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    bool ok = store && ctx && X509_STORE_add_cert(store, ca) &&
              X509_STORE_CTX_init(ctx, store, leaf, NULL);
    int r = 0;

    if (ok && o->begins_s)
        X509_STORE_CTX_set_time(ctx, 0, (time_t)o->begins_s);
    if (!ok)
        r = crypto(err, "certificate");
    else if (X509_verify_cert(ctx) != 1)
        r = err_set(err, ERR_CONFLICT,
                    "the CA in %.100s cannot vouch for %.60s (%s): --new-ca makes another", o->dir,
                    o->domain, X509_verify_cert_error_string(X509_STORE_CTX_get_error(ctx)));
    X509_STORE_CTX_free(ctx);
    X509_STORE_free(store);
    return r;
}

/* ---- files ---- */

struct owner {
    uid_t uid;
    gid_t gid;
};

/* Whole or absent, for anyone who looks: written under another name, synced, renamed. */
static int write_file(int dir, const char *name, struct str text, mode_t mode, bool replace,
                      const struct owner *owner, struct err *err)
{
    AUTO(closep) int fd = -1;
    char temporary[64];
    unsigned char tag[8];

    if (RAND_bytes(tag, sizeof(tag)) != 1)
        return crypto(err, "random bytes");
    snprintf(temporary, sizeof(temporary), ".%s.%02x%02x%02x%02x%02x", name, tag[0], tag[1], tag[2],
             tag[3], tag[4]);
    fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return err_sys(err, "create %s", name);
    if (write(fd, text.p, text.n) != (ssize_t)text.n || fchmod(fd, mode) ||
        (owner && geteuid() == 0 && fchown(fd, owner->uid, owner->gid)) || fsync(fd) ||
        renameat2(dir, temporary, dir, name, replace ? 0 : RENAME_NOREPLACE)) {
        err_sys(err, "write %s", name);
        unlinkat(dir, temporary, 0);
        return -1;
    }
    return 0;
}

static int write_pem(int dir, const char *name, X509 *cert, EVP_PKEY *key, bool replace,
                     const struct owner *owner, struct err *err)
{
    AUTO(free_bio) BIO *b = BIO_new(BIO_s_secmem());
    char *text;
    long n;

    if (!b || (cert && !PEM_write_bio_X509(b, cert)) ||
        (key && !PEM_write_bio_PKCS8PrivateKey(b, key, NULL, NULL, 0, NULL, NULL)))
        return crypto(err, name);
    n = BIO_get_mem_data(b, &text);
    return write_file(dir, name, (struct str){ text, (size_t)n }, cert ? 0644 : 0600, replace,
                      owner, err);
}

static BIO *open_pem(int dir, const char *name, struct err *err)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "re");

    if (f)
        return BIO_new_fp(f, BIO_CLOSE);
    err_sys(err, "read %s", name);
    closep(&fd);
    return NULL;
}

static int read_ca(int dir, X509 **cert, EVP_PKEY **key, struct err *err)
{
    AUTO(free_bio) BIO *c = open_pem(dir, "ca.pem", err);
    AUTO(free_bio) BIO *k = c ? open_pem(dir, "ca.key", err) : NULL;

    if (!k)
        return err_in(err, "the CA's files (--new-ca makes another)");
    *cert = PEM_read_bio_X509(c, NULL, NULL, NULL);
    *key = PEM_read_bio_PrivateKey(k, NULL, NULL, NULL);
    if (!*cert || !*key || X509_check_private_key(*cert, *key) != 1)
        return err_set(err, ERR_INVALID,
                       "ca.pem and ca.key are not a certificate and its key: --new-ca makes "
                       "others");
    return 0;
}

static int open_dir(const char *path, struct err *err)
{
    int fd;

    if (mkdir(path, 0755) && errno != EEXIST)
        return err_sys(err, "make directory %.150s", path);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "open directory %.150s", path) : fd;
}

/* Of anything that is there, nothing is touched unless it was asked for. */
static int refuse_existing(int dir, const struct tls_order *o, struct err *err)
{
    static const char *const names[] = { "server.pem", "server.key", "ca.pem", "ca.key" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (faccessat(dir, names[i], F_OK, AT_SYMLINK_NOFOLLOW) && errno == ENOENT)
            continue;
        return err_set(err, ERR_CONFLICT,
                       "%.150s/%s exists: --force makes a new certificate by the same CA, "
                       "--new-ca both anew",
                       o->dir, names[i]);
    }
    return 0;
}

/* ---- all together ---- */

static int fingerprint(X509 *ca, char out[65], struct err *err)
{
    unsigned char md[EVP_MAX_MD_SIZE];
    unsigned int n;

    if (!X509_digest(ca, EVP_sha256(), md, &n) || n != 32)
        return crypto(err, "digest");
    for (unsigned int i = 0; i < n; i++)
        snprintf(out + (size_t)2 * i, 3, "%02x", md[i]);
    return 0;
}

static int get_ca(int dir, const struct tls_order *o, int64_t now_s, X509 **cert, EVP_PKEY **key,
                  struct err *err)
{
    if (o->force && !o->new_ca && !faccessat(dir, "ca.pem", F_OK, 0))
        return read_ca(dir, cert, key, err) < 0 ? -1 : 1;
    *key = EVP_EC_gen("P-256");
    if (!*key)
        return crypto(err, "key");
    *cert = make_ca(o, *key, now_s, err);
    return *cert ? 0 : -1;
}

static char *path_of(const struct tls_order *o, const char *name)
{
    struct buf b = { 0 };

    buf_printf(&b, "%s/%s", o->dir, name);
    return b.data;
}

/* The server's key belongs to whom the data directory belongs to, so that a server which is not
 * root can read it. The CA's key stays its maker's: no server has a use for it. */
static int write_all(int dir, const struct tls_order *o, bool kept, X509 *ca, EVP_PKEY *ca_key,
                     X509 *leaf, EVP_PKEY *key, struct err *err)
{
    bool replace = o->force || o->new_ca;
    struct owner owner;
    struct stat parent;

    if (fstatat(dir, "..", &parent, 0))
        return err_sys(err, "stat %.150s/..", o->dir);
    owner = (struct owner){ parent.st_uid, parent.st_gid };
    if (!kept && (write_pem(dir, "ca.key", NULL, ca_key, replace, NULL, err) < 0 ||
                  write_pem(dir, "ca.pem", ca, NULL, replace, NULL, err) < 0))
        return -1;
    if (write_pem(dir, "server.key", NULL, key, replace, &owner, err) < 0 ||
        write_pem(dir, "server.pem", leaf, NULL, replace, NULL, err) < 0)
        return -1;
    return fsync(dir) ? err_sys(err, "sync %.150s", o->dir) : 0;
}

static int make(const struct tls_order *o, struct tls_made *out, struct err *err)
{
    AUTO(free_cert) X509 *ca = NULL;
    AUTO(free_cert) X509 *leaf = NULL;
    AUTO(free_key) EVP_PKEY *ca_key = NULL;
    AUTO(free_key) EVP_PKEY *key = NULL;
    AUTO(closep) int dir = -1;
    int64_t now_s = o->begins_s ? o->begins_s : clock_wall_s();
    int kept;

    if (tls_check_domain(o->domain, err) < 0 || (dir = open_dir(o->dir, err)) < 0)
        return -1;
    if (!o->force && !o->new_ca && refuse_existing(dir, o, err) < 0)
        return -1;
    kept = get_ca(dir, o, now_s, &ca, &ca_key, err);
    if (kept < 0)
        return err_in(err, "%.100s", o->dir);
    key = EVP_EC_gen("P-256");
    if (!key)
        return crypto(err, "key");
    leaf = make_leaf(o, key, ca, ca_key, now_s, err);
    if (!leaf || check_chain(ca, leaf, o, err) < 0 || fingerprint(ca, out->fingerprint, err) < 0 ||
        write_all(dir, o, kept, ca, ca_key, leaf, key, err) < 0)
        return -1;
    out->ca = path_of(o, "ca.pem");
    out->ca_key = path_of(o, "ca.key");
    out->chain = path_of(o, "server.pem");
    out->key = path_of(o, "server.key");
    out->kept_ca = kept;
    out->expires_s = now_s + (int64_t)TLS_DAYS * DAY_S;
    return 0;
}

void tls_made_free(struct tls_made *m)
{
    free(m->ca);
    free(m->ca_key);
    free(m->chain);
    free(m->key);
}

int tls_make(const struct tls_order *o, struct tls_made *out, struct err *err)
{
    return tls_load(err) ? -1 : make(o, out, err);
}
