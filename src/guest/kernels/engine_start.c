/* engine_start.c - a kernel's process: its connection file, its environment, and one of two ways to
 * start it. A fork of the warmed parent where the kernel spec allows that, else the spec's own
 * command line. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/id.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "guest/kernels/engine_impl.h"
#include "guest/kernels/place.h"
#include "guest/kernels/warm.h"
#include "guest/services/python.h"

enum { TURN_MS = 10000 };

/* ---- turns ---- */

/* How many have a turn; *until: when the next of them has had it for so long that it does not count
 * any more. A kernel that never answers keeps nobody from starting his. */
static int64_t count_starting(int64_t *until)
{
    struct engine *e;
    int64_t n = 0;

    *until = NEVER;
    list_each(e, &kernels.starting, starting)
        if (co_now() < e->began_at + TURN_MS) {
            *until = MIN(*until, e->began_at + TURN_MS);
            n++;
        }
    return n;
}

/* Many at once would all be slow together, until the first are too slow. */
static int take_turn(struct engine *e, struct err *err)
{
    int64_t until;

    while (count_starting(&until) >= kernels_limits.starts && !kernels.ending)
        if (co_cond_wait(&kernels.turn, until) && co_cancelled())
            break;
    if (kernels.ending || co_cancelled())
        return err_set(err, ERR_UNAVAILABLE, "the kernels' service is ending");
    e->began_at = co_now();
    list_push(&kernels.starting, &e->starting);
    return 0;
}

void engine_started(struct engine *e)
{
    list_remove(&e->starting);
    co_cond_wake(&kernels.turn);
}

/* ---- addresses ---- */

/* ZeroMQ's own "ipc": no port that another could take first, and no TCP. Only kernels that are
 * Python are known to speak it; the others get ports, as Jupyter gives them. */
static bool speaks_ipc(const struct kernelspec *k)
{
    const char *word = strrchr(k->argv.items[0], '/');

    return !strncmp(word ? word + 1 : k->argv.items[0], "python", 6);
}

static int free_ports(unsigned *ports, size_t n, struct err *err)
{
    int fds[8];
    size_t have = 0;

    for (; have < n; have++) {
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
        socklen_t len = sizeof(a);

        fds[have] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fds[have] < 0 || bind(fds[have], (struct sockaddr *)&a, len) ||
            getsockname(fds[have], (struct sockaddr *)&a, &len)) {
            err_sys(err, "looking for a free port");
            have += fds[have] >= 0;
            break;
        }
        ports[have] = ntohs(a.sin_port);
    }
    for (size_t i = 0; i < have; i++)
        close(fds[i]);
    return have == n && !err->code ? 0 : -1;
}

static int write_connection(struct engine *e, struct err *err)
{
    static const char *const names[] = { "shell_port", "control_port", "stdin_port", "iopub_port",
                                         "hb_port" };
    bool ipc = speaks_ipc(e->spec);
    unsigned ports[ARRAY_LEN(names)] = { 1, 2, 3, 4, 5 };
    AUTO(buf_free) struct buf b = { 0 }, base = { 0 };
    AUTO(closep) int fd = -1;

    if (!ipc && free_ports(ports, ARRAY_LEN(ports), err))
        return -1;
    buf_printf(&base, "%s/%llu", kernels.dir, (unsigned long long)e->number);
    json_open(&b, '{');
    json_kv_str(&b, "transport", ipc ? "ipc" : "tcp");
    json_kv_str(&b, "ip", ipc ? buf_cstr(&base) : "127.0.0.1");
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        json_kv_int(&b, names[i], ports[i]);
    json_kv_str(&b, "key", e->key);
    json_kv_str(&b, "signature_scheme", "hmac-sha256");
    json_kv_str(&b, "kernel_name", e->spec->name);
    json_close(&b, '}');
    for (int i = 0; i < CHANNELS; i++)
        e->port[i] = ports[i];
    e->base = xstrdup("tcp://127.0.0.1:");
    if (ipc) {
        free(e->base);
        buf_putc(&base, '-');
        e->base = xcalloc(1, base.len + 7);
        snprintf(e->base, base.len + 7, "ipc://%s", buf_cstr(&base));
        base.data[--base.len] = 0;
    }
    buf_puts(&base, ".json");
    e->file = xstrdup(buf_cstr(&base));
    fd = open(e->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, b.data, b.len) != (ssize_t)b.len)
        return err_sys(err, "write %s", e->file);
    return 0;
}

/* ---- what the process is given ---- */

static void put(struct arena *a, char **envp, size_t *n, const char *key, const char *value)
{
    size_t len = strlen(key), i;

    for (i = 0; i < *n; i++)
        if (!strncmp(envp[i], key, len) && envp[i][len] == '=')
            break;
    envp[i] = arena_printf(a, "%s=%s", key, value);
    *n += i == *n;
}

static char **build_env(struct arena *a, const struct kernelspec *spec, const struct map *env)
{
    size_t n = 0, have = 0;
    char **envp;

    while (environ[have])
        have++;
    envp = arena_alloc(a, sizeof(char *) * (have + spec->env.n + env->n + 2));
    for (; n < have; n++)
        envp[n] = environ[n];
    for (size_t i = 0; i < spec->env.n; i++)
        put(a, envp, &n, spec->env.items[i].key, spec->env.items[i].value);
    for (size_t i = 0; i < env->n; i++)
        put(a, envp, &n, env->items[i].key, env->items[i].value);
    return envp;
}

static char *replace_all(struct arena *a, const char *text, const char *what, const char *with)
{
    AUTO(buf_free) struct buf b = { 0 };
    const char *at;

    while ((at = strstr(text, what))) {
        buf_add(&b, text, (size_t)(at - text));
        buf_puts(&b, with);
        text = at + strlen(what);
    }
    buf_puts(&b, text);
    return arena_strdup(a, buf_str(&b));
}

static int start_plain(struct engine *e, struct arena *a, int cwd, char **envp, struct err *err)
{
    const struct strs *from = &e->spec->argv;
    char **argv = arena_alloc(a, sizeof(char *) * (from->n + 1));
    char *paths[2] = { NULL, NULL };
    AUTO(closep) int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int log = kernels.log >= 0 ? kernels.log : null;
    struct spawn s = { .paths = paths,
                       .argv = argv,
                       .envp = envp,
                       .stdio = { null, log, log },
                       .cwd = cwd,
                       .root = -1,
                       .die_with_us = true };

    for (size_t i = 0; i < from->n; i++) {
        argv[i] = replace_all(a, from->items[i], "{connection_file}", e->file);
        argv[i] = replace_all(a, argv[i], "{resource_dir}", e->spec->dir ? e->spec->dir : "");
    }
    paths[0] = kernelspec_python(a, argv[0], e->spec->dir);
    if (!paths[0])
        return err_set(err, ERR_UNAVAILABLE, "there is no program '%s', which this kernel needs",
                       argv[0]);
    return spawn_start(&s, &e->child, err);
}

static int start_forked(struct engine *e, const char *cwd, char **envp, struct err *err)
{
    struct warm_request r = {
        .python = e->spec->python, .file = e->file, .cwd = cwd, .envp = envp
    };

    warm_prepare(e->spec->python, kernels.dir, kernels.log);
    /* half: the rest is for a plain start, should the parent hang */
    if (warm_fork(&r, co_in(MIN(kernels_limits.fork_ms, kernels_limits.start_ms / 2)), &e->child,
                  err))
        return -1;
    e->forked = true;
    return 0;
}

static int start_process(struct engine *e, const struct engine_spec *s, struct err *err)
{
    struct arena a = { 0 };
    char **envp = build_env(&a, e->spec, s->env);
    AUTO(closep) int dir = open(s->cwd, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct err why = { 0 };
    int r = -1;

    if (dir < 0) {
        err_sys(err, "kernel's directory %s", s->cwd);
        if (errno == ENOENT || errno == ENOTDIR || errno == EACCES)
            err->code = ERR_INVALID;
    } else if (e->spec->python && !s->unforked && !start_forked(e, s->cwd, envp, &why)) {
        r = 0;
    } else if (why.code == ERR_NOT_FOUND) {
        err_set(err, ERR_UNAVAILABLE,
                "no kernel can be started: %.120s; install ipykernel in the sandbox or its "
                "template, or type `" PYTHON_COMMAND "` on the machine that runs Cove",
                why.msg);
    } else {
        if (why.code)
            log_warn("not forked", KV("kernel", e->spec->name), KV("error", why.msg));
        r = start_plain(e, &a, dir, envp, err);
    }
    e->pid = e->child.pid;
    arena_free(&a);
    return r;
}

struct engine *engine_start(const struct engine_spec *s, struct err *err)
{
    struct engine *e = xcalloc(1, sizeof(*e));

    e->refs = 1;
    e->spec = kernelspec_get(s->spec);
    e->environment = environment_now();
    list_init(&e->starting);
    co_cond_init(&e->changed);
    list_init(&e->asking);
    e->number = ++kernels.started;
    kernels.engines++;
    id_hex(e->key, 64);
    signer_init(&e->signer, str_of(e->key));
    if (!take_turn(e, err) && !place_renew(err) && !write_connection(e, err) &&
        !start_process(e, s, err)) {
        log_info("kernel started", KV("file", e->file), KV("spec", e->spec->name),
                 KVI("pid", e->pid), KV("by", e->forked ? "fork" : "exec"));
        engine_begin(e);
        return e;
    }
    engine_started(e);
    if (!e->base)
        e->base = xstrdup("");
    if (!e->file)
        e->file = xstrdup("");
    engine_put(e);
    return NULL;
}
