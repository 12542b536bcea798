/* process_env.c - see process_env.h. The order of the environment: PATH of the guest, the user's
 * HOME, USER, LOGNAME and SHELL, what /init gave, what the request gives; the last wins. */
#include "guest/process_env.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "guest/path.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static void put(struct process_env *env, size_t *n, const char *key, const char *value)
{
    size_t len = strlen(key), i;

    for (i = 0; i < *n; i++)
        if (!strncmp(env->envp[i], key, len) && env->envp[i][len] == '=')
            break;
    env->envp[i] = arena_printf(&env->arena, "%s=%s", key, value);
    *n += i == *n;
}

static int build_envp(struct process_env *env, struct guest *g, const struct process_start *start,
                      struct err *err)
{
    const struct map *maps[] = { &g->env, &start->config->envs };
    const char *path = getenv("PATH");
    size_t n = 0;

    env->envp = arena_alloc(&env->arena, sizeof(char *) * (6 + g->env.n + start->config->envs.n));
    put(env, &n, "PATH", path && *path ? path : DEFAULT_PATH);
    put(env, &n, "HOME", start->user->home);
    put(env, &n, "USER", start->user->name);
    put(env, &n, "LOGNAME", start->user->name);
    put(env, &n, "SHELL", start->user->shell);
    for (size_t m = 0; m < ARRAY_LEN(maps); m++)
        for (size_t i = 0; i < maps[m]->n; i++) {
            const struct map_item *it = &maps[m]->items[i];

            if (!it->key[0] || strchr(it->key, '='))
                return err_set(err, ERR_INVALID,
                               "environment variable '%.64s': the name must not be empty or "
                               "contain '='",
                               it->key);
            put(env, &n, it->key, it->value);
        }
    return 0;
}

static const char *get(const struct process_env *env, const char *key)
{
    size_t len = strlen(key);

    for (char **e = env->envp; *e; e++)
        if (!strncmp(*e, key, len) && (*e)[len] == '=')
            return *e + len + 1;
    return "";
}

/* A name without a slash is looked for along the command's own PATH. */
static void build_paths(struct process_env *env, const char *cmd)
{
    struct str rest = str_of(get(env, "PATH")), dir;
    size_t count = 2, n = 0;

    for (size_t i = 0; i < rest.n; i++)
        count += rest.p[i] == ':';
    env->paths = arena_alloc(&env->arena, sizeof(char *) * (count + 1));
    if (strchr(cmd, '/')) {
        env->paths[0] = arena_strdup(&env->arena, str_of(cmd));
        return;
    }
    while (rest.p) {
        str_cut(rest, ':', &dir, &rest);
        if (dir.n)
            env->paths[n++] = arena_printf(&env->arena, "%.*s/%s", STR_ARG(dir), cmd);
    }
}

static int open_cwd(struct process_env *env, struct guest *g, const struct process_start *start,
                    struct err *err)
{
    const char *given = start->config->cwd ? start->config->cwd : "";
    char *path = path_expand(&env->arena, given, start->user, g->default_workdir);
    int fd = path_open(g->root, path, O_PATH | O_DIRECTORY, 0);

    if (fd >= 0)
        return fd;
    if (!*given && !g->default_workdir && errno == ENOENT) /* a user without a home */
        fd = path_open(g->root, "/", O_PATH | O_DIRECTORY, 0);
    if (fd >= 0)
        return fd;
    if (errno == ENOENT)
        return err_set(err, ERR_INVALID, "cwd '%.150s' does not exist", path);
    err_sys(err, "cwd '%.150s'", path);
    err->code = ERR_INVALID;
    return -1;
}

int process_env_build(struct process_env *env, struct guest *g, const struct process_start *start,
                      struct err *err)
{
    const struct process_config *c = start->config;

    if (!c->cmd || !*c->cmd)
        return err_set(err, ERR_INVALID, "field 'process.cmd' must not be empty");
    env->argv = arena_alloc(&env->arena, sizeof(char *) * (c->args.n + 2));
    env->argv[0] = c->cmd;
    for (size_t i = 0; i < c->args.n; i++)
        env->argv[i + 1] = c->args.items[i];
    if (build_envp(env, g, start, err))
        return -1;
    build_paths(env, c->cmd);
    return open_cwd(env, g, start, err);
}

void process_env_free(struct process_env *env) { arena_free(&env->arena); }

void process_env_describe(struct buf *json, const struct process_config *c)
{
    json_open(json, '{');
    json_kv_str(json, "cmd", c->cmd);
    if (c->args.n) {
        json_key(json, "args");
        json_open(json, '[');
        for (size_t i = 0; i < c->args.n; i++)
            json_put_str(json, str_of(c->args.items[i]));
        json_close(json, ']');
    }
    if (c->envs.n) {
        json_key(json, "envs");
        json_open(json, '{');
        for (size_t i = 0; i < c->envs.n; i++)
            json_kv_str(json, c->envs.items[i].key, c->envs.items[i].value);
        json_close(json, '}');
    }
    json_kv_str(json, "cwd", c->cwd);
    json_close(json, '}');
}

const char *process_signal_name(int signal)
{
    static const char *const names[] = {
        [SIGHUP] = "hangup",
        [SIGINT] = "interrupt",
        [SIGQUIT] = "quit",
        [SIGILL] = "illegal instruction",
        [SIGTRAP] = "trace/breakpoint trap",
        [SIGABRT] = "aborted",
        [SIGBUS] = "bus error",
        [SIGFPE] = "floating point exception",
        [SIGKILL] = "killed",
        [SIGUSR1] = "user defined signal 1",
        [SIGSEGV] = "segmentation fault",
        [SIGUSR2] = "user defined signal 2",
        [SIGPIPE] = "broken pipe",
        [SIGALRM] = "alarm clock",
        [SIGTERM] = "terminated",
        [SIGXCPU] = "cpu time limit exceeded",
        [SIGXFSZ] = "file size limit exceeded",
        [SIGSYS] = "bad system call",
    };
    size_t i = (size_t)signal;
    const char *name = i < ARRAY_LEN(names) ? names[i] : NULL;

    return name ? name : sigdescr_np(signal) ? sigdescr_np(signal) : "unknown";
}
