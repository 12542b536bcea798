/* serve.c - `cove serve`: the whole platform on one machine. */
#include "cli/serve.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/config.h"
#include "cli/dirs.h"
#include "cli/network_allow.h"
#include "cli/settings.h"
#include "keep/keeper.h"

static const char *const log_levels[] = { "debug", "info", "warn", "error", "off", NULL };
static const char *const log_formats[] = { "logfmt", "json", NULL };

/* Of names, with a port, and several by comma. */
#define HOST_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:, "

static const char *const schemes[] = { "http", "https", NULL };
static const char *const url_forms[] = { "host", "path", NULL };
static const char *const providers[] = { "local", "e2b", "daytona", NULL };

static const struct args_option serve_options[] = {
    OPTION(struct serve_options, data, "data", ARGS_DIR, .env = "COVE_DATA", .value = "DIR",
           .help = "where everything that lasts is (default /var/lib/cove)"),
    OPTION(struct serve_options, listen, "listen", ARGS_TEXT, .env = "COVE_LISTEN",
           .value = "ADDR:PORT", .def = "127.0.0.1:8000",
           .help = "where the API and the sandboxes' ports are"),
    OPTION(struct serve_options, preview_listen, "preview-listen", ARGS_TEXT,
           .env = "COVE_PREVIEW_LISTEN", .value = "ADDR:PORT",
           .help = "where sandboxes' ports are by path, for browsers without wildcard names; "
                   "`none`: nowhere (default: the next port)"),
    OPTION(struct serve_options, domain, "domain", ARGS_TEXT, .env = "COVE_DOMAIN", .value = "NAME",
           .help = "sandboxes' ports are at {port}-{id}.NAME (default localhost:PORT)"),
    OPTION(struct serve_options, hosts, "host", ARGS_TEXT, .env = "COVE_HOSTS", .value = "NAME",
           .flags = ARGS_REPEAT,
           .help = "names that clients have for this server beside its addresses, its own name and "
                   "--domain: those and all below them; any other is answered with 421"),
    OPTION(struct serve_options, scheme, "scheme", ARGS_CHOICE, .env = "COVE_SCHEME",
           .value = "SCHEME", .choices = schemes,
           .help = "of the URLs of sandboxes' ports, where a proxy adds TLS (default: as served)"),
    OPTION(struct serve_options, by_path, "urls", ARGS_CHOICE, .env = "COVE_URLS", .value = "FORM",
           .def = "host", .choices = url_forms,
           .help = "of the control-plane contract: by host name, or by path on --preview-listen"),
    OPTION(struct serve_options, mcp_port, "mcp-port", ARGS_COUNT, .env = "SANDBOX_MCP_SERVER_PORT",
           .value = "PORT", .min = 1, .max = 65535, .def = "6060",
           .help = "of the MCP server inside, for mcp_url"),
    OPTION(struct serve_options, code_port, "code-port", ARGS_COUNT,
           .env = "SANDBOX_CODE_SERVER_PORT", .value = "PORT", .min = 1, .max = 65535,
           .def = "9000", .help = "of the editor inside, for vscode_url"),
    OPTION(struct serve_options, provider, "provider", ARGS_CHOICE, .env = "SANDBOX_PROVIDER",
           .value = "NAME", .def = "local", .choices = providers,
           .help = "where machines come from: nothing else chooses it, no key in the environment"),
    OPTION(struct serve_options, template, "template", ARGS_TEXT, .env = "E2B_TEMPLATE_ID",
           .value = "NAME",
           .help = "one more name of the default template, until one of that name is added"),
    OPTION(struct serve_options, tls_cert, "tls-cert", ARGS_FILE, .env = "COVE_TLS_CERT",
           .value = "FILE", .help = "certificate chain; `cove tls init` makes one"),
    OPTION(struct serve_options, tls_key, "tls-key", ARGS_FILE, .env = "COVE_TLS_KEY",
           .value = "FILE", .help = "its private key"),
    OPTION(struct serve_options, run_dir, "run-dir", ARGS_DIR, .env = "COVE_RUN_DIR",
           .value = "DIR", .help = "where what ends with the machine is (default /run/cove)"),
    OPTION(struct serve_options, user, "user", ARGS_TEXT, .env = "COVE_USER", .value = "NAME",
           .help = "who the unprivileged part runs as (default cove, else an id that nobody has)"),
    OPTION(struct serve_options, allow_mounts, "allow-mount", ARGS_DIR, .env = "COVE_ALLOW_MOUNT",
           .value = "DIR[:group]", .flags = ARGS_REPEAT,
           .help = "host directories that sandboxes may be shown; none without it. With :group "
                   "what belongs to one of the machine's own groups (below 1000) can be written, "
                   "too"),
    OPTION(struct serve_options, forward_ports, "forward-ports", ARGS_TEXT,
           .env = "COVE_FORWARD_PORTS", .value = "A-B",
           .help = "ports of this machine that every user may name for forwards; without it only "
                   "admins name them, and others get free ones"),
    OPTION(struct serve_options, trusted_proxies, "trusted-proxy", ARGS_TEXT,
           .env = "COVE_TRUSTED_PROXY", .value = "PREFIX", .flags = ARGS_REPEAT,
           .help =
               "addresses of proxies whose X-Forwarded-For is believed: 127.0.0.1, 10.1.0.0/16"),
    NETWORK_ALLOW_OPTION(struct serve_options),
    OPTION(struct serve_options, fetch_allow, "fetch-allow", ARGS_TEXT, .env = "COVE_FETCH_ALLOW",
           .value = "PREFIX", .flags = ARGS_REPEAT,
           .help = "addresses that files may be fetched from and sent to beside the public "
                   "internet: 10.1.0.0/16"),
    OPTION(struct serve_options, fetch_ca, "fetch-ca", ARGS_FILE, .env = "COVE_FETCH_CA",
           .value = "FILE", .help = "certificates to trust there instead of the machine's, PEM"),
    OPTION(struct serve_options, new, "new", ARGS_SWITCH,
           .help = "the database was lost: take the data directory as new, and set aside the "
                   "sandboxes in it (cove orphans)"),
    OPTION(struct serve_options, ephemeral, "ephemeral", ARGS_SWITCH, .env = "COVE_EPHEMERAL",
           .help = "end all sandboxes when the server ends"),
    OPTION(struct serve_options, paused_retention, "paused-retention", ARGS_DURATION,
           .env = "COVE_PAUSED_RETENTION", .value = "TIME",
           .help = "end sandboxes that were paused for so long (default: never)"),
    OPTION(struct serve_options, lifeline, "lifeline", ARGS_COUNT, .value = "FD",
           .help = "end when this descriptor reaches its end of file"),
    OPTION(struct serve_options, set, "set", ARGS_TEXT, .env = "COVE_SET", .value = "NAME=VALUE",
           .flags = ARGS_REPEAT, .help = "change a bound; `cove config` lists them"),
    OPTION(struct serve_options, config, "config", ARGS_FILE, .value = "FILE",
           .help = "variables, one NAME=VALUE a line (default COVE_CONFIG, else .env)"),
    OPTION(struct serve_options, log_level, "log-level", ARGS_CHOICE, .env = "COVE_LOG_LEVEL",
           .value = "LEVEL", .def = "info", .choices = log_levels, .help = "what is worth a line"),
    OPTION(struct serve_options, log_format, "log-format", ARGS_CHOICE, .env = "COVE_LOG_FORMAT",
           .value = "FORMAT", .def = "logfmt", .choices = log_formats, .help = "of a line"),
    {}
};

static int configure(struct args *a, struct err *err)
{
    const struct serve_options *o = a->values;
    char retention[64];

    if (config_load(o->config, err) < 0 || args_environment(a, err))
        return -1;
    if (log_set_level(o->log_level) || log_set_format(o->log_format))
        abort(); /* the choices above are not log.c's */
    if (!o->tls_cert != !o->tls_key)
        return err_set(err, ERR_INVALID, "--tls-cert and --tls-key go together");
    if (args_given(a, "lifeline") &&
        (o->lifeline > INT_MAX || fcntl((int)o->lifeline, F_GETFD) < 0))
        return err_set(err, ERR_INVALID, "--lifeline: descriptor %lld is not open",
                       (long long)o->lifeline);
    for (size_t i = 0; i < o->hosts.n; i++)
        if (strspn(o->hosts.items[i], HOST_CHARS) != strlen(o->hosts.items[i]))
            return err_set(err, ERR_INVALID, "--host: '%.64s' is no name: cove.example",
                           o->hosts.items[i]);
    for (size_t i = 0; i < o->set.n; i++)
        if (setting_set(settings_of_serve, o->set.items[i], err))
            return -1;
    if (network_allow(&o->network_allow, err))
        return -1;
    if (o->paused_retention) {
        snprintf(retention, sizeof(retention), "control.paused-retention-s=%lld",
                 (long long)o->paused_retention);
        if (setting_set(settings_of_serve, retention, err))
            return err_in(err, "--paused-retention");
    }
    return 0;
}

/* The processes of ours have other working directories. */
static char *absolute(const char *given, char *def)
{
    AUTO(freep) char *here = NULL;
    struct buf b = { 0 };

    if (!given)
        return def;
    free(def);
    if (given[0] == '/')
        return xstrdup(given);
    here = getcwd(NULL, 0);
    buf_printf(&b, "%s/%s", here ? here : "", given);
    return b.data;
}

/* Nothing but what we are told of: a descriptor that the caller forgot to close would live as long
 * as the last sandbox. The lifeline moves up, as it may be any of 0 to 2, which stay taken. */
static int sort_descriptors(struct serve *s, bool lifeline, struct err *err)
{
    enum { LIFELINE = STDERR_FILENO + 1 };
    int given = (int)s->o->lifeline, fd;

    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd < LIFELINE)
        ;
    if (fd < 0)
        return err_sys(err, "open /dev/null");
    if (lifeline) {
        int up = fcntl(given, F_DUPFD_CLOEXEC, LIFELINE + 1);

        if (up < 0 || dup3(up, LIFELINE, O_CLOEXEC) < 0)
            return err_sys(err, "--lifeline %d", given);
        s->lifeline = LIFELINE;
    }
    if (dup2(fd, STDIN_FILENO) < 0 || close_range(LIFELINE + lifeline, ~0U, 0))
        return err_sys(err, "close what the caller left open");
    return 0;
}

static void forget(struct serve *s)
{
    char *const owned[] = { s->data_dir, s->run_dir,     s->place,     s->state_dir,
                            s->url,      s->preview_url, s->domain,    s->tls_chain,
                            s->tls_key,  s->shown_chain, s->shown_key, s->fetch_ca };

    for (size_t i = 0; i < ARRAY_LEN(owned); i++)
        free(owned[i]);
    if (s->token_secret)
        explicit_bzero(s->token_secret, strlen(s->token_secret));
    free(s->token_secret);
    explicit_bzero(s->key, sizeof(s->key));
    explicit_bzero(s->password, sizeof(s->password));
}

static int read_prefixes(const struct args_list *from, const char *option, struct netrange_list *to,
                         struct err *err)
{
    for (size_t i = 0; i < from->n; i++)
        if (netrange_list_add(to, str_of(from->items[i]), err))
            return err_in(err, "%s", option);
    return 0;
}

static int read_forward_ports(struct serve *s, struct err *err)
{
    struct str from, to;
    uint64_t a, b;

    if (!s->o->forward_ports)
        return 0;
    str_cut(str_of(s->o->forward_ports), '-', &from, &to);
    if (str_u64(from, &a) || str_u64(to, &b) || !a || a > b || b > UINT16_MAX)
        return err_set(err, ERR_INVALID,
                       "--forward-ports: '%.40s' is no range of ports (write 20000-20999)",
                       s->o->forward_ports);
    s->forward_min = (int64_t)a;
    s->forward_max = (int64_t)b;
    return 0;
}

static int read_network(struct serve *s, struct err *err)
{
    if (read_prefixes(&s->o->fetch_allow, "--fetch-allow", &s->fetch_allow, err) ||
        read_prefixes(&s->o->trusted_proxies, "--trusted-proxy", &s->proxies, err) ||
        read_forward_ports(s, err))
        return -1;
    if (s->fetch_ca && access(s->fetch_ca, R_OK))
        return err_sys(err, "--fetch-ca %.150s", s->fetch_ca);
    return 0;
}

static int run_serve(struct args *a)
{
    struct serve s = { .o = a->values,
                       .listener = -1,
                       .preview = -1,
                       .lock = -1,
                       .lifeline = -1,
                       .keeper_line = { -1, -1 } };
    struct err err = { 0 };
    int status;

    if (configure(a, &err))
        return args_fail(a, 2, &err);
    if (sort_descriptors(&s, args_given(a, "lifeline"), &err))
        return args_fail(a, 1, &err);
    s.root = geteuid() == 0;
    s.terminal = isatty(STDOUT_FILENO);
    s.data_dir = absolute(s.o->data, dirs_data());
    s.run_dir = absolute(s.o->run_dir, dirs_run());
    s.tls_chain = absolute(s.o->tls_cert, NULL);
    s.tls_key = absolute(s.o->tls_key, NULL);
    s.fetch_ca = absolute(s.o->fetch_ca, NULL);
    adopt_boot(s.boot);
    status = read_network(&s, &err) ? args_fail(a, 2, &err) : 0;
    if (!status)
        status = serve_setup(&s, &err) ? args_fail(a, 1, &err) : serve_monitor(&s);
    forget(&s);
    return status;
}

static const struct args_exit serve_exits[] = {
    { "0", "it was told to end, and sandboxes go on (with --ephemeral: have ended)" },
    { "1", "it could not start, and a line on standard error says why" },
    { "2", "the command line, or a variable, is wrong" },
    {}
};

const struct command command_serve = {
    .name = "serve",
    .help = "the whole platform: API, sandboxes, their ports",
    .about =
        "Serves E2B's API, Cove's own at /v1 and the ports of sandboxes on one address. The "
        "first start makes an administrator and keeps its key and password in the data "
        "directory (admin.key, admin.password; on a terminal it prints them, once; COVE_API_KEY and COVE_ADMIN_PASSWORD set them instead).\n\n"
        "Sandboxes go on when the server ends or is killed: the next start adopts them.",
    .options = serve_options,
    .size = sizeof(struct serve_options),
    .exits = serve_exits,
    .run = run_serve,
};
