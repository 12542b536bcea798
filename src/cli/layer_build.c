/* layer_build.c - see layer_build.h.
 *
 * The sandbox runs layer_python.py and nothing of a tenant's. It reaches the internet, not this
 * machine: packages run code when they are built. Where the index is and how it is trusted comes
 * from the operator's own configuration; a value may hold a password, so it goes by environment,
 * never by argument. */
#include "cli/layer_build.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
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

#define ARCHIVE_BYTES (8ULL << 30) /* no set of packages is that large; a runaway build is */

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

struct output {            /* what comes out of the builder: both are a stranger's */
    struct pollfd from[2]; /* the archive, words; -1: at its end */
    int archive;
    uint64_t left; /* bytes the archive may still have */
    bool quiet;
    struct buf kept; /* the end of what was said: why it failed stands there */
};

static void hear(struct output *o, const char *text, size_t n)
{
    if (!o->quiet && write(STDERR_FILENO, text, n) < 0)
        o->quiet = true;
    buf_add(&o->kept, text, n);
    if (o->kept.len > 2 * (size_t)OUTPUT)
        buf_drop(&o->kept, o->kept.len - OUTPUT);
}

static int store(struct output *o, const char *bytes, size_t n, struct err *err)
{
    if (n > o->left)
        return err_set(err, ERR_TOO_LARGE, "the layer has more than %llu bytes",
                       (unsigned long long)ARCHIVE_BYTES);
    o->left -= n;
    while (n) {
        ssize_t done = write(o->archive, bytes, n);

        if (done < 0)
            return err_sys(err, "write the layer's archive");
        bytes += done;
        n -= (size_t)done;
    }
    return 0;
}

/* Until both streams have ended, or one has gone too far. */
static int take_output(struct output *o, struct err *err)
{
    char bytes[OUTPUT];

    while (o->from[0].fd >= 0 || o->from[1].fd >= 0) {
        if (poll(o->from, 2, -1) < 0 && errno != EINTR)
            return err_sys(err, "poll");
        for (int i = 0; i < 2; i++) {
            ssize_t n;

            if (o->from[i].fd < 0 || !o->from[i].revents)
                continue;
            n = read(o->from[i].fd, bytes, sizeof(bytes));
            if (n <= 0)
                o->from[i].fd = -1; /* poll passes over it; the pipe is the caller's */
            else if (i)
                hear(o, bytes, (size_t)n);
            else if (store(o, bytes, (size_t)n, err))
                return -1;
        }
    }
    return 0;
}

static const char *last_words(struct buf *kept)
{
    while (kept->len && (kept->data[kept->len - 1] == '\n' || kept->data[kept->len - 1] == '\r'))
        kept->data[--kept->len] = 0;
    return kept->len > TAIL ? kept->data + kept->len - TAIL : buf_cstr(kept);
}

static int judge(int status, const struct layer_build *b, struct buf *kept, struct err *err)
{
    if (WIFEXITED(status) && !WEXITSTATUS(status))
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return err_set(err, ERR_PRECONDITION,
                       "template '%.64s' has no python3: install it there first", b->template);
    return err_set(err, ERR_UPSTREAM, "the builder sandbox failed: %s", last_words(kept));
}

int layer_build(const struct layer_build *b, struct err *err)
{
    AUTO(arena_free) struct arena a = { 0 };
    struct output o = { .archive = b->archive, .left = ARCHIVE_BYTES, .quiet = b->quiet };
    struct line l = { .arena = &a };
    int out[2], words[2], status, r = -1;
    pid_t pid;

    fill(&l, b);
    if (l.n == WORDS - 1)
        return err_set(err, ERR_LIMIT, "too many packages at once");
    if (pipe2(out, O_CLOEXEC))
        return err_sys(err, "pipe");
    if (pipe2(words, O_CLOEXEC)) {
        close(out[0]);
        close(out[1]);
        return err_sys(err, "pipe");
    }
    pid = fork();
    if (!pid)
        become_run(&l, out[1], words[1]);
    close(out[1]);
    close(words[1]);
    o.from[0] = (struct pollfd){ out[0], POLLIN, 0 };
    o.from[1] = (struct pollfd){ words[0], POLLIN, 0 };
    if (pid > 0)
        r = take_output(&o, err);
    if (pid > 0 && r)
        kill(pid, SIGTERM); /* it takes its sandbox along */
    close(out[0]);
    close(words[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        r = err_sys(err, "start the builder sandbox");
    if (!r)
        r = judge(status, b, &o.kept, err);
    buf_free(&o.kept);
    return r;
}
