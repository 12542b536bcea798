/* unpack.c - see unpack.h: the half that opens, hashes, pushes and waits. */
#include "jail/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "jail/idmap.h"
#include "jail/unpack_child.h"

static struct unpack_bounds bounds = {
    .entries = 2000000,
    .bytes = INT64_C(64) << 30,
    .memory_bytes = INT64_C(1) << 30,
    .seconds = 14400,
};

const struct setting unpack_settings[] = {
    { "unpack.entries", &bounds.entries, 1, INT64_C(1) << 40,
      "entries of a template's archive, implied directories included" },
    { "unpack.bytes", &bounds.bytes, 1, INT64_C(1) << 50,
      "bytes of all its files together, holes included" },
    { "unpack.memory-bytes", &bounds.memory_bytes, 128 << 20, INT64_C(1) << 40,
      "memory of the process that unpacks" },
    { "unpack.seconds", &bounds.seconds, 1, 31536000, "time it may take" },
    {}
};

enum { CHUNK = 256 << 10, PIPE_BYTES = 1 << 20 };

struct pump {
    const struct unpack_request *request;
    struct unpack_result *out;
    struct sha256_ctx hash;
    int push, report; /* pipes to and from the child; -1: closed */
    size_t at, n;     /* the bytes of chunk that are still to be pushed */
    uint64_t left;    /* of the archive */
    bool done;
    char *chunk;
};

/* ---- towards the child ---- */

static int fill_chunk(struct pump *p, struct err *err)
{
    ssize_t n;

    do
        n = read(p->request->archive, p->chunk, (size_t)MIN(p->left, (uint64_t)CHUNK));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_sys(err, "read the archive");
    sha256_update(&p->hash, (size_t)n, (const uint8_t *)p->chunk);
    p->out->archive_bytes += (uint64_t)n;
    p->left -= (uint64_t)n;
    p->at = 0;
    p->n = (size_t)n;
    return 0;
}

static void stop_pushing(struct pump *p)
{
    closep(&p->push);
    p->push = -1;
}

static int push(struct pump *p, struct err *err)
{
    ssize_t w;

    if (p->at == p->n) {
        if (fill_chunk(p, err) < 0)
            return -1;
        if (!p->n) {
            stop_pushing(p);
            return 0;
        }
    }
    w = write(p->push, p->chunk + p->at, p->n - p->at);
    if (w >= 0)
        p->at += (size_t)w;
    else if (errno == EPIPE)
        stop_pushing(p); /* it has given up, and its report says why */
    else if (errno != EAGAIN && errno != EINTR)
        return err_sys(err, "hand the archive to the unpacker");
    return 0;
}

/* ---- from the child ---- */

static int take_report(struct pump *p, struct err *err)
{
    struct unpack_report r;
    ssize_t n = read(p->report, &r, sizeof(r));

    if (n < 0 && errno == EINTR)
        return 0;
    if (n != sizeof(r)) { /* the end */
        closep(&p->report);
        p->report = -1;
        return 0;
    }
    r.text[sizeof(r.text) - 1] = 0;
    if (r.kind == REPORT_FAILED)
        return err_set(err, r.code > ERR_NONE && r.code < ERR_CODES ? r.code : ERR_INTERNAL, "%s",
                       r.text);
    p->out->stats = r.stats;
    p->done = r.kind == REPORT_DONE;
    if (p->request->progress)
        p->request->progress(p->request->arg, &r.stats);
    return 0;
}

static int pump_all(struct pump *p, struct err *err)
{
    int64_t until = clock_ms() + bounds.seconds * 1000;

    while (p->report >= 0) {
        struct pollfd fds[] = { { .fd = p->report, .events = POLLIN },
                                { .fd = p->push, .events = POLLOUT } };
        int64_t left = until - clock_ms();

        if (left <= 0)
            return err_set(err, ERR_TIMEOUT, "it took over %lld seconds (setting unpack.seconds)",
                           (long long)bounds.seconds);
        if (poll(fds, 2, (int)MIN(left, (int64_t)60000)) < 0 && errno != EINTR)
            return err_sys(err, "wait for the unpacker");
        if (fds[0].revents && take_report(p, err) < 0)
            return -1;
        if (fds[1].revents && p->push >= 0 && push(p, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- the whole ---- */

static int explain_death(int status, struct err *err)
{
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
        return err_set(err, ERR_TIMEOUT,
                       "it took over %lld seconds of processor time (setting unpack.seconds)",
                       (long long)bounds.seconds);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
        return err_set(err, ERR_LIMIT,
                       "the unpacker ran out of memory (setting unpack.memory-bytes is %lld)",
                       (long long)bounds.memory_bytes);
    if (WIFSIGNALED(status))
        return err_set(err, ERR_INTERNAL, "the unpacker was ended by signal %d", WTERMSIG(status));
    return err_set(err, ERR_INTERNAL, "the unpacker ended with status %d and no word",
                   WEXITSTATUS(status));
}

static int wait_for(pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

static void print_hash(struct pump *p)
{
    uint8_t digest[SHA256_DIGEST_SIZE];

    sha256_digest(&p->hash, sizeof(digest), digest);
    for (size_t i = 0; i < sizeof(digest); i++)
        snprintf(p->out->sha256 + 2 * i, 3, "%02x", digest[i]);
}

static int parent_side(struct pump *p, struct unpack_ns *ns, struct err *err)
{
    int r, status;

    sha256_init(&p->hash);
    fcntl(p->push, F_SETPIPE_SZ, PIPE_BYTES);
    fcntl(p->push, F_SETFL, O_NONBLOCK);
    r = unpack_ns_admit(ns, err);
    if (!r)
        r = pump_all(p, err);
    if (r || !p->done)
        kill(ns->pid, SIGKILL);
    close(ns->sock);
    status = wait_for(ns->pid);
    if (!r && !p->done)
        r = explain_death(status, err);
    if (!r)
        print_hash(p);
    return r;
}

int unpack_run(const struct unpack_request *request, struct unpack_result *out, struct err *err)
{
    const struct unpack_archive *lib = unpack_archive_load(err);
    struct unpack_ns ns = { .target = request->target, .privileged = geteuid() == 0 };
    AUTO(closep) int in = -1;
    AUTO(closep) int reports = -1;
    AUTO(freep) char *chunk = xmalloc(CHUNK);
    struct pump p = { .request = request,
                      .out = out,
                      .chunk = chunk,
                      .left = request->layer_bytes ? request->layer_bytes : UINT64_MAX };
    struct sigaction ignore = { .sa_handler = SIG_IGN }, before;
    struct unpack_bounds within = bounds;
    uint32_t first;
    int to[2], from[2], r;

    if (!lib)
        return -1;
    *out = (struct unpack_result){ .squashed = !ns.privileged };
    if (request->layer_bytes) {
        out->squashed = !ns.privileged && idmap_ranges(&first, &first);
        within.entries = within.bytes = INT64_MAX;
    }
    if (pipe2(to, O_CLOEXEC))
        return err_sys(err, "make a pipe");
    in = to[0];
    p.push = to[1];
    if (pipe2(from, O_CLOEXEC)) {
        close(p.push);
        return err_sys(err, "make a pipe");
    }
    p.report = from[0];
    reports = from[1];
    r = unpack_ns_clone(&ns, err);
    if (!r)
        unpack_child_main(&(struct unpack_job){ .lib = lib,
                                                .ns = &ns,
                                                .bounds = within,
                                                .input = in,
                                                .report = reports,
                                                .layer = request->layer_bytes > 0,
                                                .squash = out->squashed });
    close(TAKE(in, -1)); /* the child's ends: each side must see when the other is gone */
    close(TAKE(reports, -1));
    sigaction(SIGPIPE, &ignore, &before);
    if (r > 0)
        r = parent_side(&p, &ns, err);
    sigaction(SIGPIPE, &before, NULL);
    closep(&p.push);
    closep(&p.report);
    return r;
}
