/* tls_lib.c - the functions of OpenSSL that we call; see base/lazy.h. */
#include "io/tls_impl.h"

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/lazy.h"

#define SSL_FUNCTIONS(X)                                                                           \
    X(SSL_CTX_ctrl)                                                                                \
    X(SSL_CTX_free)                                                                                \
    X(SSL_CTX_load_verify_file)                                                                    \
    X(SSL_CTX_new)                                                                                 \
    X(SSL_CTX_set_alpn_protos)                                                                     \
    X(SSL_CTX_set_alpn_select_cb)                                                                  \
    X(SSL_CTX_set_cipher_list)                                                                     \
    X(SSL_CTX_set_default_passwd_cb)                                                               \
    X(SSL_CTX_set_default_verify_paths)                                                            \
    X(SSL_CTX_set_num_tickets)                                                                     \
    X(SSL_CTX_set_options)                                                                         \
    X(SSL_CTX_set_verify)                                                                          \
    X(SSL_CTX_use_PrivateKey_file)                                                                 \
    X(SSL_CTX_use_certificate_chain_file)                                                          \
    X(SSL_ctrl)                                                                                    \
    X(SSL_do_handshake)                                                                            \
    X(SSL_free)                                                                                    \
    X(SSL_get0_param)                                                                              \
    X(SSL_get_error)                                                                               \
    X(SSL_get_shutdown)                                                                            \
    X(SSL_get_verify_result)                                                                       \
    X(SSL_new)                                                                                     \
    X(SSL_peek)                                                                                    \
    X(SSL_read)                                                                                    \
    X(SSL_select_next_proto)                                                                       \
    X(SSL_set1_host)                                                                               \
    X(SSL_set_accept_state)                                                                        \
    X(SSL_set_connect_state)                                                                       \
    X(SSL_set_fd)                                                                                  \
    X(SSL_set_hostflags)                                                                           \
    X(SSL_set_quiet_shutdown)                                                                      \
    X(SSL_shutdown)                                                                                \
    X(SSL_write)                                                                                   \
    X(TLS_client_method)                                                                           \
    X(TLS_server_method)

#define CRYPTO_FUNCTIONS(X)                                                                        \
    X(ASN1_TIME_set)                                                                               \
    X(BIO_ctrl)                                                                                    \
    X(BIO_free)                                                                                    \
    X(BIO_new)                                                                                     \
    X(BIO_new_fp)                                                                                  \
    X(BIO_s_secmem)                                                                                \
    X(BN_bin2bn)                                                                                   \
    X(BN_free)                                                                                     \
    X(BN_to_ASN1_INTEGER)                                                                          \
    X(ERR_clear_error)                                                                             \
    X(ERR_peek_error)                                                                              \
    X(ERR_reason_error_string)                                                                     \
    X(EVP_PKEY_Q_keygen)                                                                           \
    X(EVP_PKEY_free)                                                                               \
    X(EVP_Q_mac)                                                                                   \
    X(EVP_sha256)                                                                                  \
    X(OBJ_nid2sn)                                                                                  \
    X(PEM_read_bio_PrivateKey)                                                                     \
    X(PEM_read_bio_X509)                                                                           \
    X(PEM_write_bio_PKCS8PrivateKey)                                                               \
    X(PEM_write_bio_X509)                                                                          \
    X(RAND_bytes)                                                                                  \
    X(X509V3_EXT_conf_nid)                                                                         \
    X(X509V3_set_ctx)                                                                              \
    X(X509_EXTENSION_free)                                                                         \
    X(X509_NAME_add_entry_by_txt)                                                                  \
    X(X509_STORE_CTX_free)                                                                         \
    X(X509_STORE_CTX_get_error)                                                                    \
    X(X509_STORE_CTX_init)                                                                         \
    X(X509_STORE_CTX_new)                                                                          \
    X(X509_STORE_CTX_set_time)                                                                     \
    X(X509_STORE_add_cert)                                                                         \
    X(X509_STORE_free)                                                                             \
    X(X509_STORE_new)                                                                              \
    X(X509_VERIFY_PARAM_set1_ip_asc)                                                               \
    X(X509_add_ext)                                                                                \
    X(X509_check_private_key)                                                                      \
    X(X509_digest)                                                                                 \
    X(X509_free)                                                                                   \
    X(X509_get_serialNumber)                                                                       \
    X(X509_get_subject_name)                                                                       \
    X(X509_getm_notAfter)                                                                          \
    X(X509_getm_notBefore)                                                                         \
    X(X509_new)                                                                                    \
    X(X509_set_issuer_name)                                                                        \
    X(X509_set_pubkey)                                                                             \
    X(X509_set_version)                                                                            \
    X(X509_sign)                                                                                   \
    X(X509_verify_cert)                                                                            \
    X(X509_verify_cert_error_string)

LAZY_LIBRARY(lazy_crypto, "libcrypto.so.3", "libssl3", CRYPTO_FUNCTIONS)
LAZY_LIBRARY(lazy_ssl, "libssl.so.3", "libssl3", SSL_FUNCTIONS)

int tls_load_crypto(struct err *err) { return lazy_load(&lazy_crypto, err); }

int tls_load(struct err *err)
{
    return lazy_load(&lazy_crypto, err) || lazy_load(&lazy_ssl, err) ? -1 : 0;
}
