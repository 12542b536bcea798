/* layer_build.c - see layer_build.h.
 *
 * The sandbox runs layer_python.py and nothing of a tenant's. It reaches the internet, not this
 * machine: packages run code when they are built. Where the index is and how it is trusted comes
 * from the operator's own configuration; a value may hold a password, so it goes by environment,
 * never by argument. */
#include "cli/layer_build.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/pipconf.h"

extern const char layer_script[];

enum { WORDS = 96, TAIL = 200, OUTPUT = 16 << 10 };

struct line {
    char *word[WORDS];
    size_t n;
    struct arena *arena;
};

static void add(struct line *l, const char *word)
{
    if (l->n < WORDS - 1)
        l->word[l->n++] = arena_strdup(l->arena, str_of(word));
}

static void add_option(struct line *l, const char *name, const char *value)
{
    add(l, name);
    add(l, value);
}

/* uv does not read pip's files: what they say reaches it by its own variables. The first that is
 * set decides; our own environment carries it to `cove run`, which passes it on by name. */
static const struct {
    const char *variable, *pip, *key;
} wanted[] = {
    { "UV_DEFAULT_INDEX", "PIP_INDEX_URL", "index-url" },
    { "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL", "extra-index-url" },
    { "UV_INSECURE_HOST", "PIP_TRUSTED_HOST", "trusted-host" },
    { "UV_HTTP_TIMEOUT", "PIP_DEFAULT_TIMEOUT", "timeout" },
    { "HTTPS_PROXY", "PIP_PROXY", "proxy" },
};

static const char *either(const char *a, const char *b)
{
    const char *value = getenv(a);

    if (!value || !*value)
        value = getenv(b);
    return value && *value ? value : NULL;
}

static void add_index(struct line *l, const char *given)
{
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        const char *value = either(wanted[i].variable, wanted[i].pip);

        if (!i && given)
            value = given;
        if (!i && !value)
            value = getenv("UV_INDEX_URL");
        if (!value)
            value = pipconf_find(wanted[i].key, l->arena);
        if (!value || !*value)
            continue;
        setenv(wanted[i].variable, value, 1);
        add_option(l, "--env", wanted[i].variable);
    }
}

static bool is_kind(const char *path, mode_t kind)
{
    struct stat st;

    return path && *path == '/' && !stat(path, &st) && (st.st_mode & S_IFMT) == kind;
}

/* A bundle of the operator's own, and a directory of wheels, are shown inside. */
static void add_mounts(struct line *l)
{
    static const char inside[] = "/etc/cove-certificates.crt";
    const char *bundle = either("SSL_CERT_FILE", "PIP_CERT"), *wheels = getenv("PIP_FIND_LINKS");

    if (!bundle)
        bundle = pipconf_find("cert", l->arena);
    if (!wheels || !*wheels)
        wheels = pipconf_find("find-links", l->arena);
    if (is_kind(bundle, S_IFREG)) {
        add_option(l, "--mount", arena_printf(l->arena, "%s:%s:ro", bundle, inside));
        add_option(l, "--env", arena_printf(l->arena, "SSL_CERT_FILE=%s", inside));
    }
    if (is_kind(wheels, S_IFDIR))
        add_option(l, "--mount", arena_printf(l->arena, "%s:/wheels:ro", wheels));
}

static void fill(struct line *l, const struct layer_build *b)
{
    add(l, "cove");
    add(l, "run");
    add(l, "--private");
    add_option(l, "--network", "open");
    add_option(l, "--template", b->template);
    add_option(l, "--data-dir", b->data_dir);
    add_option(l, "--user", "root");
    add_option(l, "--workdir", "/");
    add_option(l, "--timeout", "1h");
    add_index(l, b->index);
    add_mounts(l);
    add(l, "python3");
    add(l, "-c");
    add(l, layer_script);
    for (char **r = b->requirements; *r; r++)
        add(l, *r);
}

static _Noreturn void become_run(const struct line *l, int archive, int words)
{
    int nowhere = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (nowhere < 0 || dup2(nowhere, 0) < 0 || dup2(archive, 1) < 0 || dup2(words, 2) < 0)
        _exit(125);
    execv("/proc/self/exe", l->word);
    _exit(125);
}

/* All that is said, the end of it kept: why it failed stands there. */
static void listen_to(int fd, bool quiet, struct buf *kept)
{
    char text[OUTPUT];
    ssize_t n;

    while ((n = read(fd, text, sizeof(text))) > 0 || (n < 0 && errno == EINTR)) {
        if (n < 0)
            continue;
        if (!quiet && write(STDERR_FILENO, text, (size_t)n) < 0)
            quiet = true;
        buf_add(kept, text, (size_t)n);
        if (kept->len > 2 * (size_t)OUTPUT)
            buf_drop(kept, kept->len - OUTPUT);
    }
}

static const char *last_words(struct buf *kept)
{
    while (kept->len && (kept->data[kept->len - 1] == '\n' || kept->data[kept->len - 1] == '\r'))
        kept->data[--kept->len] = 0;
    return kept->len > TAIL ? kept->data + kept->len - TAIL : buf_cstr(kept);
}

int layer_build(const struct layer_build *b, struct err *err)
{
    AUTO(arena_free) struct arena a = { 0 };
    AUTO(buf_free) struct buf kept = { 0 };
    struct line l = { .arena = &a };
    int p[2], status;
    pid_t pid;

    fill(&l, b);
    if (l.n == WORDS - 1)
        return err_set(err, ERR_LIMIT, "too many packages at once");
    if (pipe2(p, O_CLOEXEC))
        return err_sys(err, "pipe");
    pid = fork();
    if (!pid)
        become_run(&l, b->archive, p[1]);
    close(p[1]);
    if (pid > 0)
        listen_to(p[0], b->quiet, &kept);
    close(p[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return err_sys(err, "start the builder sandbox");
    if (WIFEXITED(status) && !WEXITSTATUS(status))
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return err_set(err, ERR_PRECONDITION,
                       "template '%.64s' has no python3: install it there first", b->template);
    return err_set(err, ERR_UPSTREAM, "the builder sandbox failed: %s", last_words(&kept));
}
