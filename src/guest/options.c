/* options.c - see options.h. */
#include "guest/options.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "guest/path.h"
#include "guest/services/service.h"
#include "guest/user.h"
#include "io/openapi.h"
#include "io/sock.h"
#include "io/spawn.h"

enum option_id {
    LISTEN = 1,
    LISTEN_FD,
    ROOT,
    USER,
    WORKDIR,
    TOKEN_FILE,
    INIT,
    READY_FD,
    OOM_FD,
    STRICT,
    SERVICES,
    WARM,
    SET,
    LOG_LEVEL,
    LOG_FORMAT,
    OPENAPI,
    VERSION,
    HELP
};

static const struct row {
    enum option_id id;
    const char *name, *value, *help; /* value NULL: a switch */
} rows[] = {
    { LISTEN, "listen", "ADDR", "serve on ADDR:PORT or unix:PATH (default 127.0.0.1:49983)" },
    { LISTEN_FD, "listen-fd", "N", "serve on an inherited listening socket" },
    { ROOT, "root", "DIR", "resolve all paths inside DIR, and run commands there" },
    { USER, "user", "NAME", "default user (default: 'user' where it exists, else our own)" },
    { WORKDIR, "workdir", "DIR", "default directory of commands (default: the user's home)" },
    { TOKEN_FILE, "token-file", "FILE", "require the access token that FILE holds" },
    { INIT, "init", NULL, "adopt and reap orphans (implied as pid 1)" },
    { READY_FD, "ready-fd", "N", "write a byte to N when serving" },
    { OOM_FD, "oom-fd", "N", "our own oom_score_adj, opened by who started us" },
    { STRICT, "strict", NULL, "commands hold no capability and can gain none" },
    { SERVICES, "services", NULL, "hold the services' ports, start each at its first use" },
    { WARM, "warm", "NAME", "with --services: start this one at once, and keep it" },
    { SET, "set", "NAME=VALUE", "change a limit; the names are below" },
    { LOG_LEVEL, "log-level", "LEVEL", "debug, info, warn, error or off (default info)" },
    { LOG_FORMAT, "log-format", "FORMAT", "logfmt or json (default logfmt)" },
    { OPENAPI, "openapi", NULL, "print the API as OpenAPI 3.1 JSON" },
    { VERSION, "version", NULL, "print the version" },
    { HELP, "help", NULL, "print this" },
};

static const struct setting *const settings[] = { http_settings, guest_settings, service_settings,
                                                  NULL };

static void print_help(void)
{
    AUTO(buf_free) struct buf b = { 0 };

    buf_puts(
        &b,
        "usage: cove-guest [options]\n       cove-guest services [NAME ...]    (cove-guest services --help)\n\n"
        "Serves processes, terminals, files and watches of this machine over E2B's envd\n"
        "protocol. It is pid 1 of every Cove sandbox and runs as an ordinary process too.\n\n");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        buf_printf(&b, "  --%-12s %-11s %s\n", rows[i].name, rows[i].value ? rows[i].value : "",
                   rows[i].help);
    buf_puts(&b, "\nlimits for --set, with their values:\n");
    setting_print(settings, &b);
    fputs(buf_cstr(&b), stdout);
}

static int add_listener(struct options *o, int fd, struct err *err)
{
    if (o->nlisteners == LISTENERS) {
        close(fd);
        return err_set(err, ERR_INVALID, "more than %d listeners", LISTENERS);
    }
    o->listeners[o->nlisteners++] = fd;
    return 0;
}

static int listen_address(struct options *o, const char *text, struct err *err)
{
    struct addr a;
    int fd;

    if (addr_parse(str_of(text), &a, err))
        return -1;
    fd = sock_listen(&a, err);
    return fd < 0 ? -1 : add_listener(o, fd, err);
}

static int inherited_fd(const char *name, const char *text, int *out, struct err *err)
{
    int64_t fd;

    if (str_i64(str_of(text), &fd) || fd < 0 || fd > INT32_MAX || fcntl((int)fd, F_GETFD) < 0)
        return err_set(err, ERR_INVALID, "--%s %s: not an open descriptor", name, text);
    fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    *out = (int)fd;
    return 0;
}

static int listen_inherited(struct options *o, const char *text, struct err *err)
{
    int fd, listening = 0;
    socklen_t n = sizeof(listening);

    if (inherited_fd("listen-fd", text, &fd, err))
        return -1;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) || !listening)
        return err_set(err, ERR_INVALID, "--listen-fd %s: not a listening socket", text);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return add_listener(o, fd, err);
}

static int read_token(struct guest *g, const char *file, struct err *err)
{
    AUTO(closep) int fd = open(file, O_RDONLY | O_CLOEXEC);
    char text[1025];
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (n < 0)
        return err_sys(err, "--token-file %s", file);
    while (n && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    if (!n || memchr(text, 0, (size_t)n))
        return err_set(err, ERR_INVALID, "--token-file %s: holds no token", file);
    g->token = xstrndup(text, (size_t)n);
    return 0;
}

static int open_root(struct guest *g, const char *dir, struct err *err)
{
    g->root = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (g->root < 0)
        return err_sys(err, "--root %s", dir);
    g->chrooted = strcmp(dir, "/") != 0;
    return 0;
}

static void print_openapi(const struct route *const *tables)
{
    AUTO(buf_free) struct buf b = { 0 };

    openapi_write(&b, &(struct openapi){ "cove-guest", COVE_VERSION, NULL, NULL }, tables);
    buf_putc(&b, '\n');
    fputs(buf_cstr(&b), stdout);
}

static int take(struct options *o, struct guest *g, enum option_id id, const char *value,
                const struct route *const *tables, struct err *err)
{
    switch (id) {
    case LISTEN: return listen_address(o, value, err);
    case LISTEN_FD: return listen_inherited(o, value, err);
    case ROOT: return open_root(g, value, err);
    case USER: g->default_user = xstrdup(value); return 0;
    case WORKDIR: g->default_workdir = xstrdup(value); return 0;
    case TOKEN_FILE: return read_token(g, value, err);
    case INIT: g->init = true; return 0;
    case READY_FD: return inherited_fd("ready-fd", value, &o->ready_fd, err);
    case OOM_FD: return inherited_fd("oom-fd", value, &spawn_setup.oom_fd, err);
    case STRICT: spawn_setup.strict = true; return 0;
    case SERVICES: o->services = true; return 0;
    case WARM:
        o->warm = value;
        return service_find(value) ? 0
                                   : err_set(err, ERR_INVALID, "--warm: no service '%s'", value);
    case SET: return setting_set(settings, value, err);
    case LOG_LEVEL:
        return log_set_level(value) ? err_set(err, ERR_INVALID, "--log-level: no level '%s'", value)
                                    : 0;
    case LOG_FORMAT:
        return log_set_format(value)
                   ? err_set(err, ERR_INVALID, "--log-format: no format '%s'", value)
                   : 0;
    case OPENAPI: print_openapi(tables); return 1;
    case VERSION: puts("cove-guest " COVE_VERSION); return 1;
    case HELP: print_help(); return 1;
    }
    return -1;
}

static int fill_defaults(struct options *o, struct guest *g, struct err *err)
{
    struct arena a = { 0 };
    struct user *u = arena_alloc(&a, sizeof(*u));
    int r = 0;

    g->privileged = geteuid() == 0;
    g->init |= getpid() == 1;
    if (g->root < 0 && open_root(g, "/", err))
        r = -1;
    if (!r && !g->default_user)
        g->default_user = user_default(g);
    else if (!r)
        r = user_find(g, &a, NULL, u, err) ? err_in(err, "--user") : 0;
    if (!r && !o->nlisteners)
        r = listen_address(o, "127.0.0.1:49983", err);
    arena_free(&a);
    return r;
}

int options_parse(struct options *o, int argc, char **argv, struct guest *g,
                  const struct route *const *tables, struct err *err)
{
    struct option longs[ARRAY_LEN(rows) + 1] = { 0 };
    int id, index, r;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        longs[i] = (struct option){ rows[i].name, rows[i].value != NULL, NULL, rows[i].id };
    o->ready_fd = -1;
    opterr = 0;
    while ((id = getopt_long(argc, argv, "", longs, &index)) != -1) {
        if (id == '?')
            return err_set(err, ERR_INVALID, "unknown option or missing value: %s (try --help)",
                           argv[optind - 1]);
        r = take(o, g, (enum option_id)id, optarg, tables, err);
        if (r)
            return r;
    }
    if (optind < argc)
        return err_set(err, ERR_INVALID, "unexpected argument '%s' (try --help)", argv[optind]);
    return fill_defaults(o, g, err);
}

void options_announce(const struct options *o)
{
    for (size_t i = 0; i < o->nlisteners; i++) {
        struct addr a = { .len = sizeof(a.sa) };
        char name[128] = "?";

        if (!getsockname(o->listeners[i], (struct sockaddr *)&a.sa, &a.len))
            addr_print(&a, name, sizeof(name));
        log_info("serving", KV("address", name), KV("version", COVE_VERSION), KVI("pid", getpid()));
    }
    if (o->ready_fd >= 0) {
        if (write(o->ready_fd, "\n", 1) < 0)
            log_warn("nobody waits on --ready-fd", KV("error", strerrordesc_np(errno)));
        close(o->ready_fd);
    }
}
