/* start.c - see start.h.
 *
 * Executed, not merely forked: pid 1 knows the access token, and its copy would know it too, in
 * memory that belongs to the sandbox's user. The program has no name in a sandbox (a sealed memfd
 * that nobody can read), but a process may always open its own /proc/self/exe. */
#include "guest/services/start.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "guest/kernels/kernels.h"
#include "guest/process_env.h"
#include "guest/services/environment.h"
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

/* Where Cove was started without root, one id is all that there is inside. */
static bool is_mapped(uid_t uid)
{
    AUTO(closep) int fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
    char text[1024];
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
    struct str rest = { text, (size_t)MAX(n, (ssize_t)0) }, line, word;

    while (str_cut(rest, '\n', &line, &rest) || line.n) {
        uint64_t v[3] = { 0 };
        size_t have = 0;

        while (have < ARRAY_LEN(v) && str_next(&line, ' ', &word))
            have += !str_u64(word, &v[have]); /* not the empty one between two blanks */
        if (uid >= v[0] && uid - v[0] < v[2])
            return true;
        if (!rest.n)
            break;
    }
    return n <= 0; /* it cannot be told: then it is tried */
}

static int find_user(struct guest *g, struct arena *a, struct user *out, struct err *err)
{
    if (user_find(g, a, NULL, out, err))
        return -1;
    return out->switchable && !is_mapped(out->uid) ? user_find(g, a, "root", out, err) : 0;
}

struct descriptors {
    const int *listener;
    int in, said;
};

static int spawn_it(struct guest *g, const struct service *s, const struct process_start *start,
                    const struct descriptors *d, struct child *out, struct err *err)
{
    AUTO(process_env_free) struct process_env env = { 0 };
    AUTO(closep) int cwd = process_env_build(&env, g, start, err);
    AUTO(closep) int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    AUTO(closep) int self = open("/proc/self/exe", O_PATH | O_CLOEXEC);
    AUTO(closep) int spare = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const struct user *u = start->user;
    int pass[SERVICE_PORTS];
    size_t n = 0;

    if (cwd < 0)
        return -1;
    if (nowhere < 0 || self < 0 || spare < 0)
        return err_sys(err, "%s",
                       nowhere < 0 ? "/dev/null"
                       : self < 0  ? "/proc/self/exe"
                                   : "socket");
    /* a socket that listens nowhere stands for a port that somebody else has just now */
    for (; n < SERVICE_PORTS && s->ports[n].name; n++)
        pass[n] = d->listener[n] >= 0 ? d->listener[n] : spare;
    return spawn_start(&(struct spawn){ .paths = env.paths,
                                        .argv = env.argv,
                                        .envp = env.envp,
                                        .program = self,
                                        .stdio = { d->in, d->said, nowhere },
                                        .pass = pass,
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

static void add_words(struct strs *args, struct arena *a, const struct service *s, unsigned flags)
{
    const char *const words[] = { "services", s->name, "--doors",
                                  flags & START_SANDBOX ? "--in-sandbox" : NULL,
                                  flags & START_KEEP ? "--keep" : NULL };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (words[i])
            args->items[args->n++] = arena_strdup(a, str_of(words[i]));
}

int start_service(struct guest *g, const struct service *s, const int listener[SERVICE_PORTS],
                  unsigned flags, struct started *out, struct err *err)
{
    static char self[] = "cove-guest";
    char *items[ARGUMENTS + 5];
    struct process_config config = { .cmd = self, .args = { .items = items } };
    AUTO(arena_free) struct arena a = { 0 };
    struct user *user = arena_alloc(&a, sizeof(*user));
    int said[2], tell[2], r;

    if (find_user(g, &a, user, err))
        return err_in(err, "the sandbox's user");
    add_words(&config.args, &a, s, flags);
    add_settings(&config.args, &a);
    if (pipe2(said, O_CLOEXEC))
        return err_sys(err, "pipe");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, tell)) {
        close(said[0]);
        close(said[1]);
        return err_sys(err, "socketpair");
    }
    fcntl(said[0], F_SETFL, O_NONBLOCK);
    r = spawn_it(g, s, &(struct process_start){ .config = &config, .user = user },
                 &(struct descriptors){ listener, tell[1], said[1] }, out->child, err);
    close(said[1]);
    close(tell[1]);
    if (r) {
        close(said[0]);
        close(tell[0]);
        return -1;
    }
    out->said = said[0];
    out->tell = tell[0];
    return 0;
}

int start_tell(struct guest *g, int tell, struct err *err)
{
    static char self[] = "cove-guest";
    struct process_config config = { .cmd = self };
    AUTO(process_env_free) struct process_env env = { 0 };
    AUTO(arena_free) struct arena a = { 0 };
    struct user *user = arena_alloc(&a, sizeof(*user));
    struct process_start start = { .config = &config, .user = user };
    AUTO(closep) int cwd = -1;

    if (find_user(g, &a, user, err))
        return err_in(err, "the sandbox's user");
    cwd = process_env_build(&env, g, &start, err);
    return cwd < 0 ? -1 : environment_send(tell, env.envp, err);
}
