/* start.c - see start.h.
 *
 * Executed, not merely forked: pid 1 knows the access token, and its copy would know it too, in
 * memory that belongs to the sandbox's user. The program has no name in a sandbox (a sealed memfd
 * that nobody can read), but a process may always open its own /proc/self/exe. */
#include "guest/services/start.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/mem.h"
#include "guest/kernels/kernels.h"
#include "guest/process_env.h"
#include "guest/services/run.h"
#include "guest/user.h"

enum { ARGUMENTS = 96 };

/* The bounds in force here are the service's too. */
static void add_settings(struct strs *args, struct arena *a)
{
    static const struct setting *const tables[] = { service_settings, kernels_settings };
    char set[] = "--set";

    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        for (const struct setting *s = tables[i]; s->name && args->n + 2 <= ARGUMENTS; s++) {
            args->items[args->n++] = arena_strdup(a, str_of(set));
            args->items[args->n++] = arena_printf(a, "%s=%lld", s->name, (long long)*s->value);
        }
}

static int spawn_it(struct guest *g, const struct process_start *start, const int *listener,
                    int said, struct child *out, struct err *err)
{
    AUTO(process_env_free) struct process_env env = { 0 };
    AUTO(closep) int cwd = process_env_build(&env, g, start, err);
    AUTO(closep) int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    AUTO(closep) int self = open("/proc/self/exe", O_PATH | O_CLOEXEC);
    const struct user *u = start->user;
    size_t n = 0;

    if (cwd < 0)
        return -1;
    if (nowhere < 0 || self < 0)
        return err_sys(err, nowhere < 0 ? "/dev/null" : "/proc/self/exe");
    while (n < SERVICE_PORTS && listener[n] >= 0)
        n++;
    return spawn_start(&(struct spawn){ .paths = env.paths,
                                        .argv = env.argv,
                                        .envp = env.envp,
                                        .program = self,
                                        .stdio = { nowhere, said, nowhere },
                                        .pass = listener,
                                        .npass = n,
                                        .cwd = cwd,
                                        .root = g->chrooted ? g->root : -1,
                                        .set_ids = u->switchable,
                                        .uid = u->uid,
                                        .gid = u->gid,
                                        .groups = u->groups,
                                        .ngroups = u->ngroups },
                       out, err);
}

int start_service(struct guest *g, const struct service *s, const int listener[SERVICE_PORTS],
                  bool sandbox, struct child *out, int *said, struct err *err)
{
    static char self[] = "cove-guest", services_word[] = "services", doors_word[] = "--doors",
                sandbox_word[] = "--in-sandbox";
    char *items[ARGUMENTS + 4];
    struct process_config config = { .cmd = self, .args = { .items = items } };
    AUTO(arena_free) struct arena a = { 0 };
    struct user *user = arena_alloc(&a, sizeof(*user));
    int p[2], r;

    if (user_find(g, &a, NULL, user, err))
        return err_in(err, "the sandbox's user");
    items[config.args.n++] = services_word;
    items[config.args.n++] = arena_strdup(&a, str_of(s->name));
    items[config.args.n++] = doors_word;
    if (sandbox)
        items[config.args.n++] = sandbox_word;
    add_settings(&config.args, &a);
    if (pipe2(p, O_CLOEXEC))
        return err_sys(err, "pipe");
    fcntl(p[0], F_SETFL, O_NONBLOCK);
    r = spawn_it(g, &(struct process_start){ .config = &config, .user = user }, listener, p[1], out,
                 err);
    close(p[1]);
    if (r) {
        close(p[0]);
        return -1;
    }
    *said = p[0];
    return 0;
}
