/* cp.c - `cove cp`: files and directories into a sandbox and out of it. */
#include "cli/cp.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/commands.h"

enum { SHOW_AFTER_MS = 500, SHOW_EACH_MS = 200 };

struct cp_options {
    struct remote_options remote;
    const char *user;
};

static const struct args_option cp_options[] = {
    OPTION(struct cp_options, user, "user", ARGS_TEXT, .letter = 'u', .value = "NAME",
           .help = "who owns what is made inside, and whose home relative paths are in (default "
                   "user)"),
    REMOTE_OPTIONS(struct cp_options, "print what was copied as a JSON object"),
    {}
};

static const struct args_word cp_words[] = {
    { .name = "FROM",
      .help = "a file or directory, ID:PATH, or - for standard input",
      .type = ARGS_FILE },
    { .name = "TO",
      .help = "a file or directory, ID:PATH, or - for standard output",
      .type = ARGS_FILE },
    {}
};

/* ---- names ---- */

int cp_parse(const char *text, struct cp_place *out, struct err *err)
{
    const char *colon = strchr(text, ':'), *slash = strchr(text, '/');
    size_t n = colon ? (size_t)(colon - text) : 0;

    *out = (struct cp_place){ .path = text };
    if (!*text)
        return err_set(err, ERR_INVALID, "an empty path");
    if (!colon || (slash && slash < colon))
        return 0;
    if (!n || n > 64 || strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") != n)
        return err_set(err, ERR_INVALID,
                       "'%.*s' is no sandbox id (a file of that name here: ./%.100s)",
                       (int)MIN(n, (size_t)60), text, text);
    out->id = xstrndup(text, n);
    out->path = colon + 1;
    return 0;
}

struct str cp_name(const char *path)
{
    size_t n = strlen(path), start;

    while (n > 1 && path[n - 1] == '/')
        n--;
    for (start = n; start && path[start - 1] != '/';)
        start--;
    if (n == start || str_is((struct str){ path + start, n - start }, ".") ||
        str_is((struct str){ path + start, n - start }, ".."))
        return (struct str){ 0 };
    return (struct str){ path + start, n - start };
}

bool cp_name_safe(const char *name)
{
    size_t n = strlen(name);

    return n && n <= 255 && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

char *cp_join(const char *dir, const char *name)
{
    struct buf b = { 0 };

    buf_printf(&b, "%s%s%s", dir, *dir && dir[strlen(dir) - 1] != '/' ? "/" : "", name);
    return b.data;
}

void cp_push(struct cp_list *l, struct cp_step s)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 64;
        l->items = xrealloc(l->items, l->cap * sizeof(*l->items));
    }
    l->items[l->n++] = s;
}

void cp_drop(struct cp_step *s)
{
    free(s->here);
    free(s->there);
    *s = (struct cp_step){ 0 };
}

/* ---- progress ---- */

static void wipe(const struct cp *c)
{
    if (c->shown_ms)
        fputs("\r\033[K", stderr);
}

void cp_moved(struct cp *c, size_t n)
{
    int64_t now = clock_ms(), ms = MAX(now - c->started_ms, (int64_t)1);

    c->moved += (int64_t)n;
    if (!c->terminal || ms < SHOW_AFTER_MS || now - c->shown_ms < SHOW_EACH_MS)
        return;
    c->shown_ms = now;
    fprintf(stderr, "\r\033[K%.1f MB", (double)c->moved / 1e6);
    if (c->size)
        fprintf(stderr, " of %.1f MB", (double)c->size / 1e6);
    else if (c->files + c->directories)
        fprintf(stderr, ", %lld files", (long long)c->files);
    fprintf(stderr, ", %.1f MB/s", (double)c->moved / 1e3 / (double)ms);
    fflush(stderr);
}

/* ---- the command ---- */

struct interruption {
    struct co_ref copier;
    int fd, signo;
};

/* Ctrl-C must find its way past the clean-up of what is half copied. */
static void watch_signals(void *arg)
{
    struct interruption *i = arg;
    struct signalfd_siginfo info;

    if (co_read(i->fd, &info, sizeof(info), NEVER) != sizeof(info))
        return;
    i->signo = (int)info.ssi_signo;
    co_cancel(i->copier);
}

static int catch_signals(struct interruption *i, struct err *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    i->copier = co_self();
    i->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (i->fd < 0)
        return err_sys(err, "signalfd");
    return co_go(watch_signals, i, NULL) ? err_set(err, ERR_INTERNAL, "no memory") : 0;
}

static void report(const struct cp *c)
{
    AUTO(buf_free) struct buf b = { 0 };

    if (c->skipped && !c->remote->o->json)
        fprintf(stderr, "%s: %lld left out that are neither file, directory nor link\n",
                c->remote->args->path, (long long)c->skipped);
    if (!c->remote->o->json)
        return;
    json_open(&b, '{');
    json_kv_int(&b, "files", c->files);
    json_kv_int(&b, "directories", c->directories);
    json_kv_int(&b, "links", c->links);
    json_kv_int(&b, "skipped", c->skipped);
    json_kv_int(&b, "bytes", c->moved);
    json_close(&b, '}');
    remote_print(&b);
}

static int copy(struct remote *r, const struct cp_place *from, const struct cp_place *to,
                struct err *err)
{
    const struct cp_options *o = r->args->values;
    struct cp c = { .remote = r,
                    .user = o->user,
                    .bytes = xmalloc(CP_BYTES),
                    .started_ms = clock_ms(),
                    .terminal = isatty(2) && !o->remote.json };
    struct interruption i = { .fd = -1 };
    int failed = catch_signals(&i, err);

    if (!failed)
        failed = remote_guest_open(r, from->id ? from->id : to->id, &c.guest, err);
    if (!failed)
        failed =
            to->id ? cp_in(&c, from->path, to->path, err) : cp_out(&c, from->path, to->path, err);
    wipe(&c);
    if (failed && (err->code == ERR_UPSTREAM || err->code == ERR_GONE))
        remote_guest_explain(r, &c.guest, err);
    if (!failed)
        report(&c);
    remote_guest_close(&c.guest);
    free(c.bytes);
    co_close(i.fd);
    return i.signo ? 128 + i.signo : failed ? -1 : 0;
}

static int cp(struct remote *r, struct err *err)
{
    struct cp_place from = { 0 }, to = { 0 };
    int status;

    if (cp_parse(r->args->words[0], &from, err))
        status = -1;
    else if (cp_parse(r->args->words[1], &to, err))
        status = -1;
    else if (!from.id == !to.id)
        status = err_set(err, ERR_INVALID,
                         from.id ? "FROM and TO are both in sandboxes"
                                 : "neither FROM nor TO is in a sandbox "
                                   "(write ID:PATH)");
    else
        status = copy(r, &from, &to, err);
    free(from.id);
    free(to.id);
    return status;
}

static int run_cp(struct args *a)
{
    const struct cp_options *o = a->values;

    return remote_command(a, &o->remote, cp);
}

static const struct args_exit cp_exits[] = { { "0", "all of it was copied" },
                                             { "1",
                                               "it failed, and a line on standard error says why" },
                                             { "128+N", "ended by signal N" },
                                             {} };

const struct command command_cp = {
    .name = "cp",
    .help = "copy files and directories into a sandbox and out of it",
    .about =
        "A directory is copied with all it holds, into TO if that is a directory already, else "
        "as TO. FROM/. stands for what is in it. Permissions are kept, links are copied as "
        "links, devices, pipes and sockets are left out. Nothing is ever written outside TO, "
        "whatever a sandbox calls its files, and no file is left half written.",
    .options = cp_options,
    .size = sizeof(struct cp_options),
    .words = cp_words,
    .exits = cp_exits,
    .run = run_cp,
};
