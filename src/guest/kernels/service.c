/* service.c - the service "kernels": Jupyter's port and the code interpreter's, in one process,
 * since both show the same kernels. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "guest/kernels/interpreter.h"
#include "guest/kernels/jupyter.h"
#include "guest/kernels/kernel.h"
#include "guest/services/logfile.h"
#include "guest/services/python.h"
#include "guest/services/service.h"
#include "io/ws.h"
#include "model/door.h"

enum { WS_BYTES = 100 << 20 };

static int log_pipe[2] = { -1, -1 };

/* What kernels write past their messages goes into the log through us: a file of their own would
 * have no bound. */
static void copy_log(void *arg)
{
    char text[4096];
    ssize_t n;

    (void)arg;
    while ((n = co_read(log_pipe[0], text, sizeof(text), NEVER)) > 0)
        logfile_raw((struct str){ text, (size_t)n });
    co_close(TAKE(log_pipe[0], -1));
}

static int open_kernel_log(struct err *err)
{
    if (pipe2(log_pipe, O_CLOEXEC))
        return err_sys(err, "pipe");
    fcntl(log_pipe[0], F_SETFL, O_NONBLOCK);
    if (co_go(copy_log, NULL, NULL))
        return err_set(err, ERR_INTERNAL, "no memory for a coroutine");
    return 0;
}

/* Kernels live in the sandbox's Python environment: what is installed in one is seen by all, and by
 * the REST service. Without a Python there are still other kernels, and commands. */
static void export_python(const struct python *p)
{
    static const char *const ours[] = { "PATH", "VIRTUAL_ENV", "SSL_CERT_FILE" };
    AUTO(arena_free) struct arena a = { 0 };
    char **envp = p ? python_envp(p, &a) : NULL;

    if (p)
        unsetenv("PYTHONHOME"); /* it would make an environment's Python look elsewhere */
    for (; envp && *envp; envp++)
        for (size_t i = 0; i < ARRAY_LEN(ours); i++) {
            size_t n = strlen(ours[i]);

            if (!strncmp(*envp, ours[i], n) && (*envp)[n] == '=')
                setenv(ours[i], *envp + n + 1, 1);
        }
}

static const struct python *python; /* NULL: none was found */

static void use_python(void)
{
    struct err err = { 0 };

    python = python_prepare(&err);
    if (!python)
        log_warn("no Python", KV("error", err.msg));
    export_python(python);
}

static void set_token(void)
{
    jupyter_set_token(service_env("KG_AUTH_TOKEN", service_env("JUPYTER_TOKEN", NULL)));
}

static void environment(void)
{
    export_python(python);
    set_token();
}

static int start(struct service_context *x, struct err *err)
{
    const char *home = service_env("HOME", "/tmp");

    if (access(home, X_OK))
        home = "/";
    ws_limits.message_bytes = MAX(ws_limits.message_bytes, (int64_t)WS_BYTES);
    use_python();
    if (open_kernel_log(err) || kernels_open(home, log_pipe[1], err))
        return -1;
    kernels.keep = x->keep;
    set_token();
    runtime_open(home);
    x->server[0] = &jupyter_server;
    x->server[1] = &interpreter_server;
    kernels_prepare();
    return 0;
}

static bool busy(void) { return kernels.count > 0; }

static void stop(void)
{
    kernels_close();
    co_close(TAKE(log_pipe[1], -1));
}

const struct service kernels_service = {
    .name = "kernels",
    .ports = { { "jupyter", DOOR_JUPYTER, DOOR_JUPYTER_VARIABLE,
                 "JUPYTER_KERNEL_GATEWAY_APP_HOST" },
               { "interpreter", DOOR_INTERPRETER, DOOR_INTERPRETER_VARIABLE,
                 "COVE_INTERPRETER_HOST" } },
    .log_file = "jupyter-kernel.log",
    .log_variable = "JUPYTER_KERNEL_GATEWAY_APP_LOG",
    .help = "Jupyter kernels and the code interpreter",
    .start = start,
    .busy = busy,
    .environment = environment,
    .stop = stop,
};
