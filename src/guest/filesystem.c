/* filesystem.c - filesystem.Filesystem of envd, all but the watches: Stat, MakeDir, Move, ListDir,
 * Remove; and beyond E2B's own SetMode and MakeLink, without which a copy of a directory would need
 * programs inside. Each handler expands names on the loop and does the rest on a worker. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"
#include "base/mem.h"
#include "guest/auth.h"
#include "guest/entry.h"
#include "guest/path.h"
#include "guest/remove.h"

enum { PATH_BYTES = 4096, LIST_BYTES = 64 << 20 };

struct path_request {
    char *path, *source, *destination, *target;
    int64_t depth, mode;
};

#define PATH_FIELD(mem)                                                                            \
    FIELD(struct path_request, mem, F_STR, .max = PATH_BYTES,                                      \
          .help = "absolute, or below the user's home")

static const struct field path_fields[] = { PATH_FIELD(path), {} };

static const struct field list_fields[] = {
    PATH_FIELD(path),
    FIELD(struct path_request, depth, F_INT, .max = UINT32_MAX, .help = "levels; 0 is one"),
    {},
};

static const struct field mode_fields[] = {
    PATH_FIELD(path),
    FIELD(struct path_request, mode, F_INT, .flags = F_REQUIRED, .max = 01777,
          .help = "permission bits"),
    {},
};

static const struct field link_fields[] = {
    PATH_FIELD(path),
    FIELD(struct path_request, target, F_STR, .flags = F_REQUIRED, .max = PATH_BYTES - 1,
          .help = "what the link says; need not exist"),
    {},
};

static const struct field move_fields[] = { PATH_FIELD(source), PATH_FIELD(destination), {} };

struct job { /* what a worker gets: everything it touches is its own meanwhile */
    struct arena *arena;
    struct user user;
    int root;
    const char *path, *to, *target;
    int64_t depth, mode;
    struct buf json;
};

static int expand(struct call *c, struct job *j, const char *given, const char **out,
                  struct err *err)
{
    *out = path_expand(j->arena, given ? given : "", &j->user, call_guest(c)->default_workdir);
    if (strlen(*out) >= PATH_BYTES)
        return err_set(err, ERR_INVALID, "path is longer than %d bytes", PATH_BYTES - 1);
    return 0;
}

/* Runs fn for the request on a worker and answers with what it wrote, or {}. */
static int run(struct call *c, const struct path_request *req, guest_work_fn *fn, struct err *err)
{
    struct job *j = arena_alloc(&c->arena, sizeof(*j));
    int r;

    j->arena = &c->arena;
    j->root = call_guest(c)->root;
    j->depth = req->depth;
    j->mode = req->mode;
    j->target = req->target;
    if (auth_user(c, &j->user, err) ||
        expand(c, j, req->source ? req->source : req->path, &j->path, err) ||
        expand(c, j, req->destination, &j->to, err))
        return -1;
    r = guest_work(fn, j, err);
    if (!r)
        r = call_reply(c, 200, "application/json", j->json.len ? buf_str(&j->json) : STR("{}"));
    buf_free(&j->json);
    return r;
}

static int put_entry(struct job *j, const char *path, struct err *err)
{
    struct entry_context x;

    entry_context_init(&x, j->root, j->arena);
    json_open(&j->json, '{');
    json_key(&j->json, "entry");
    if (entry_put_path(&x, path, &j->json))
        return err_sys(err, "file '%.150s'", path);
    json_close(&j->json, '}');
    return 0;
}

static int work_stat(void *arg, struct err *err)
{
    struct job *j = arg;

    return put_entry(j, j->path, err);
}

static int work_make_dir(void *arg, struct err *err)
{
    struct job *j = arg;
    AUTO(closep) int old = path_open(j->root, j->path, O_PATH, 0);
    AUTO(closep) int made = -1;
    struct stat st;

    if (old >= 0 && !fstat(old, &st))
        return S_ISDIR(st.st_mode)
                   ? err_set(err, ERR_CONFLICT, "directory '%.150s' already exists", j->path)
                   : err_set(err, ERR_INVALID, "path '%.150s' exists and is not a directory",
                             j->path);
    made = path_make_dirs(j->arena, j->root, j->path, &j->user, err);
    return made < 0 ? -1 : put_entry(j, j->path, err);
}

static int work_move(void *arg, struct err *err)
{
    struct job *j = arg;
    AUTO(closep) int from = -1, to = -1;
    char *from_name, *to_name;
    struct stat st;

    from = path_open_parent(j->arena, j->root, j->path, NULL, &from_name, err);
    if (from < 0)
        return -1;
    if (fstatat(from, from_name, &st, AT_SYMLINK_NOFOLLOW))
        return err_sys(err, "file '%.150s'", j->path);
    to = path_open_parent(j->arena, j->root, j->to, &j->user, &to_name, err);
    if (to < 0)
        return -1;
    if (renameat(from, from_name, to, to_name)) {
        if (errno == EXDEV)
            return err_set(err, ERR_PRECONDITION,
                           "'%.100s' and '%.100s' are on different file systems: copy instead",
                           j->path, j->to);
        return err_sys(err, "move '%.80s' to '%.80s'", j->path, j->to);
    }
    return put_entry(j, j->to, err);
}

static int work_remove(void *arg, struct err *err)
{
    struct job *j = arg;
    AUTO(closep) int dir = -1;
    char *name;

    dir = path_open_parent(j->arena, j->root, j->path, NULL, &name, err);
    if (dir < 0 && err->code == ERR_NOT_FOUND) { /* missing is what was asked for */
        *err = (struct err){ 0 };
        return 0;
    }
    if (dir < 0)
        return -1;
    if (remove_tree(dir, name, err)) {
        err->code = ERR_INTERNAL;
        return -1;
    }
    return 0;
}

/* Never through a link: what is meant is the thing of that name. */
static int work_set_mode(void *arg, struct err *err)
{
    struct job *j = arg;
    AUTO(closep) int fd = path_open(j->root, j->path, O_PATH | O_NOFOLLOW, 0);
    char self[40];
    struct stat st;

    if (fd < 0 || fstat(fd, &st))
        return err_sys(err, "file '%.150s'", j->path);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID, "path '%.150s' is neither a file nor a directory",
                       j->path);
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd); /* fchmod() refuses O_PATH */
    if (chmod(self, (mode_t)j->mode))
        return err_sys(err, "mode of '%.150s'", j->path);
    return put_entry(j, j->path, err);
}

/* Replaces a file or link of that name, in one step, but no directory. */
static int work_make_link(void *arg, struct err *err)
{
    struct job *j = arg;
    AUTO(closep) int dir = -1;
    char temporary[40] = ".cove-link-";
    char *name;

    if (!j->target[0])
        return err_set(err, ERR_INVALID, "field 'target' must not be empty");
    dir = path_open_parent(j->arena, j->root, j->path, &j->user, &name, err);
    if (dir < 0)
        return -1;
    id_random(temporary + strlen(temporary), 16);
    if (symlinkat(j->target, dir, temporary))
        return err_sys(err, "link '%.150s'", j->path);
    if ((j->user.switchable &&
         fchownat(dir, temporary, j->user.uid, j->user.gid, AT_SYMLINK_NOFOLLOW)) ||
        renameat(dir, temporary, dir, name)) {
        err_sys(err, "link '%.150s'", j->path);
        unlinkat(dir, temporary, 0);
        return -1;
    }
    return put_entry(j, j->path, err);
}

/* ---- ListDir ---- */

struct level { /* a directory being listed: what is left of it, in reverse order */
    char *path;
    int64_t depth;
};

struct listing {
    struct job *job;
    struct entry_context x;
    struct level *stack; /* directories still to visit; the next is the last */
    size_t n, cap, entries;
};

static void push(struct listing *l, char *path, int64_t depth)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 16;
        l->stack = xrealloc(l->stack, l->cap * sizeof(*l->stack));
    }
    l->stack[l->n++] = (struct level){ path, depth };
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of an open directory, sorted. -1 with errno: some cannot be read. */
static int read_names(int dir, char ***out, size_t *n)
{
    size_t cap = 0;
    int fd = fcntl(dir, F_DUPFD_CLOEXEC, 3), problem;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    *n = 0;
    *out = NULL;
    if (!d) {
        closep(&fd);
        return -1;
    }
    errno = 0;
    for (struct dirent *e; (e = readdir(d)); errno = 0) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        if (*n == cap) {
            cap = cap ? cap * 2 : 64;
            *out = xrealloc(*out, cap * sizeof(**out));
        }
        (*out)[(*n)++] = xstrdup(e->d_name);
    }
    problem = errno;
    closedir(d);
    if (*n)
        qsort(*out, *n, sizeof(**out), compare_names);
    errno = problem;
    return problem ? -1 : 0;
}

/* Gone since it was read, or not for us. Anything else must not make a listing shorter. */
static bool is_passed_over(int error)
{
    return error == ENOENT || error == ENOTDIR || error == ELOOP || error == EACCES ||
           error == EPERM;
}

static int list_one(struct listing *l, const struct level *at, int dir, const char *name,
                    struct err *err)
{
    const char *slash = at->path[strlen(at->path) - 1] == '/' ? "" : "/";
    char *path = arena_printf(l->job->arena, "%s%s%s", at->path, slash, name);
    struct stat st;

    if (++l->entries > (size_t)guest_limits.list_entries || l->job->json.len > LIST_BYTES)
        return err_set(err, ERR_LIMIT,
                       "more than files.list-entries=%lld entries: list a smaller directory or "
                       "depth",
                       (long long)guest_limits.list_entries);
    if (entry_put(&l->x, dir, name, path, &l->job->json))
        return is_passed_over(errno) ? 0 : err_sys(err, "file '%.150s'", path);
    if (at->depth > 1 && !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode))
        push(l, path, at->depth - 1);
    return 0;
}

static int list_level(struct listing *l, struct level at, struct err *err)
{
    AUTO(closep) int fd = path_open(l->job->root, at.path, O_RDONLY | O_DIRECTORY, 0);
    size_t before = l->n, n = 0;
    char **names = NULL;
    int r = 0;

    if ((fd < 0 || read_names(fd, &names, &n)) && !is_passed_over(errno))
        r = err_sys(err, "list '%.150s'", at.path);
    for (size_t i = 0; i < n; i++) {
        if (!r)
            r = list_one(l, &at, fd, names[i], err);
        free(names[i]);
    }
    free(names);
    for (size_t i = before, k = l->n; i + 1 < k;
         i++, k--) { /* the first comes off the stack first */
        struct level swap = l->stack[i];

        l->stack[i] = l->stack[k - 1];
        l->stack[k - 1] = swap;
    }
    return r;
}

static int check_directory(struct job *j, struct err *err)
{
    AUTO(closep) int fd = path_open(j->root, j->path, O_PATH, 0);
    struct stat st;

    if (fd < 0 || fstat(fd, &st))
        return err_sys(err, "directory '%.150s'", j->path);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID, "path '%.150s' is not a directory", j->path);
    return 0;
}

static int work_list(void *arg, struct err *err)
{
    struct job *j = arg;
    struct listing l = { .job = j };
    int r = 0;

    if (check_directory(j, err))
        return -1;
    entry_context_init(&l.x, j->root, j->arena);
    json_open(&j->json, '{');
    json_key(&j->json, "entries");
    json_open(&j->json, '[');
    push(&l, arena_strdup(j->arena, str_of(j->path)), MAX(j->depth, (int64_t)1));
    while (l.n && !r)
        r = list_level(&l, l.stack[--l.n], err);
    free(l.stack);
    json_close(&j->json, ']');
    json_close(&j->json, '}');
    return r;
}

/* ---- methods ---- */

static int rpc_stat(struct call *c, void *b, struct err *e) { return run(c, b, work_stat, e); }

static int rpc_make_dir(struct call *c, void *b, struct err *e)
{
    return run(c, b, work_make_dir, e);
}

static int rpc_move(struct call *c, void *b, struct err *e) { return run(c, b, work_move, e); }

static int rpc_list(struct call *c, void *b, struct err *e) { return run(c, b, work_list, e); }

static int rpc_remove(struct call *c, void *b, struct err *e) { return run(c, b, work_remove, e); }

static int rpc_set_mode(struct call *c, void *b, struct err *e)
{
    return run(c, b, work_set_mode, e);
}

static int rpc_make_link(struct call *c, void *b, struct err *e)
{
    return run(c, b, work_make_link, e);
}

#define RPC(name, fields, fn, help)                                                                \
    {                                                                                              \
        "POST", "/filesystem.Filesystem/" name, ROUTE_UNARY, 0, fields,                            \
            sizeof(struct path_request), fn, "Filesystem" name, help, 0                            \
    }

const struct route filesystem_routes[] = {
    RPC("Stat", path_fields, rpc_stat, "Describe a file"),
    RPC("MakeDir", path_fields, rpc_make_dir, "Make a directory and its parents"),
    RPC("Move", move_fields, rpc_move, "Rename a file or directory"),
    RPC("ListDir", list_fields, rpc_list, "List a directory"),
    RPC("Remove", path_fields, rpc_remove, "Remove a file, or a directory with all it holds"),
    RPC("SetMode", mode_fields, rpc_set_mode, "Change the permissions of a file or directory"),
    RPC("MakeLink", link_fields, rpc_make_link, "Make a symbolic link"),
    {},
};
