/* tls.c - `cove tls init`: a private CA and a certificate by it, for servers that no public CA
 * knows. Works on the data directory itself; no server has to run. */
#include <errno.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/dirs.h"
#include "io/tls_make.h"

struct tls_options {
    const char *data, *domain;
    bool json, force, new_ca;
};

static void print_json(const struct tls_options *o, const struct tls_made *m)
{
    AUTO(buf_free) struct buf b = { 0 }, at = { 0 };

    clock_rfc3339(&at, m->expires_s, 0);
    json_open(&b, '{');
    json_kv_str(&b, "domain", o->domain);
    json_kv_str(&b, "ca", m->ca);
    json_kv_str(&b, "ca_key", m->ca_key);
    json_kv_bool(&b, "ca_kept", m->kept_ca);
    json_kv_str(&b, "ca_sha256", m->fingerprint);
    json_kv_str(&b, "certificate", m->chain);
    json_kv_str(&b, "key", m->key);
    json_kv_str(&b, "expires", buf_cstr(&at));
    json_close(&b, '}');
    buf_putc(&b, '\n');
    fwrite(b.data, 1, b.len, stdout);
}

static void print_text(const struct tls_options *o, const struct tls_made *m)
{
    AUTO(buf_free) struct buf at = { 0 };

    clock_rfc3339(&at, m->expires_s, 0);
    printf("CA           %s%s\n"
           "             SHA-256 %s\n"
           "certificate  %s\n"
           "             for %s, *.%s, localhost, 127.0.0.1, ::1 until %s\n"
           "key          %s\n\n",
           m->ca, m->kept_ca ? " (kept: clients that trust it go on)" : "", m->fingerprint,
           m->chain, o->domain, o->domain, buf_cstr(&at), m->key);
    printf("The server:  cove serve --domain %s --tls-cert %s --tls-key %s\n"
           "             (:PORT behind the name unless it listens on 443)\n"
           "Clients:     SSL_CERT_FILE=%s        (Python, curl, cove)\n"
           "             NODE_EXTRA_CA_CERTS=%s  (Node)\n",
           o->domain, m->chain, m->key, m->ca, m->ca);
}

static int run_init(struct args *a)
{
    const struct tls_options *o = a->values;
    AUTO(freep) char *data = NULL;
    AUTO(buf_free) struct buf dir = { 0 };
    AUTO(tls_made_free) struct tls_made made = { 0 };
    struct tls_order order = { .domain = o->domain, .force = o->force, .new_ca = o->new_ca };
    struct err err = { 0 };

    if (args_environment(a, &err) < 0 || tls_check_domain(o->domain, &err) < 0)
        return args_fail(a, args_usage_status(a), &err);
    data = o->data ? xstrdup(o->data) : dirs_data();
    if (mkdir(data, 0755) && errno != EEXIST) { /* a server may be started later */
        err_sys(&err, "make directory %.150s", data);
        return args_fail(a, 1, &err);
    }
    buf_printf(&dir, "%s/tls", data);
    order.dir = dir.data;
    if (tls_make(&order, &made, &err) < 0)
        return args_fail(a, 1, &err);
    if (o->json)
        print_json(o, &made);
    else
        print_text(o, &made);
    return 0;
}

static const struct args_option init_options[] = {
    OPTION(struct tls_options, data, "data", ARGS_DIR, .value = "DIR", .env = "COVE_DATA",
           .help = "the server's data directory; the files are in DIR/tls"),
    OPTION(struct tls_options, domain, "domain", ARGS_TEXT, .value = "NAME",
           .def = "cove.localhost",
           .help = "the server's name; sandboxes' ports are at names below it"),
    OPTION(struct tls_options, force, "force", ARGS_SWITCH,
           .help = "replace the certificate; the CA stays, so that clients go on trusting it"),
    OPTION(struct tls_options, new_ca, "new-ca", ARGS_SWITCH,
           .help = "replace the CA too; clients have to be given the new one"),
    OPTION(struct tls_options, json, "json", ARGS_SWITCH, .help = "print the result as JSON"),
    {}
};

static const struct command command_init = {
    .name = "init",
    .help = "make a private CA and a certificate by it",
    .about = "The certificate is for the domain, all names directly below it, localhost, 127.0.0.1 "
             "and ::1, and lasts 397 days; --force makes the next one, which a running server "
             "takes over by itself. The CA lasts ten years and can vouch for these names only. "
             "Give its ca.pem to clients, and ca.key to nobody.",
    .options = init_options,
    .size = sizeof(struct tls_options),
    .run = run_init,
};

static const struct command *const subs[] = { &command_init, NULL };

const struct command command_tls = {
    .name = "tls",
    .help = "make what a server needs for https",
    .subs = subs,
};
