/* runtime.c - the other half of port 8888: what clients of Kubernetes' agent-sandbox expect there.
 * Commands through sh, files below one base directory (SANDBOX_BASE_DIR, else /app, else the home).
 * All paths are resolved beneath the base; a link that leads out of it is refused. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/id.h"
#include "base/mem.h"
#include "guest/kernels/jupyter.h"
#include "guest/path.h"
#include "guest/services/capture.h"
#include "guest/services/service.h"
#include "io/httpfile.h"
#include "io/multipart.h"

enum { EXEC_S = 300, OUTPUT_MAX = 64 << 20, LIST_MAX = 200000, COMMAND_MAX = 1 << 20 };

static char *base_dir; /* owned */

void runtime_open(const char *home)
{
    const char *wanted = service_env("SANDBOX_BASE_DIR", "/app");

    if (mkdir(wanted, 0755) && errno != EEXIST)
        wanted = access(wanted, X_OK) ? home : wanted;
    free(base_dir);
    base_dir = xstrdup(wanted);
}

/* ---- paths ---- */

/* Clients escape the slashes too, but not all of them: everything behind the verb is one value. */
void runtime_rewrite(struct call *c)
{
    static const char *const verbs[] = { "/download/", "/list/", "/exists/" };
    AUTO(buf_free) struct buf b = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        size_t n = strlen(verbs[i]);

        if (!str_starts(c->path, verbs[i]))
            continue;
        buf_puts(&b, verbs[i]);
        for (size_t k = n; k < c->path.n; k++)
            if (c->path.p[k] == '/')
                buf_puts(&b, "%2F");
            else
                buf_putc(&b, c->path.p[k]);
        if (c->path.n == n)
            buf_puts(&b, "."); /* the base itself */
        c->path = str_of(arena_strdup(&c->arena, buf_str(&b)));
        return;
    }
}

static int denied(struct err *err) { return err_set(err, ERR_DENIED, "Access denied"); }

/* Decoded once more, as the reference does: its clients escape twice on the way through a router.
 */
static struct str decoded(struct call *c, struct str raw)
{
    struct str s;

    return str_percent_decode(&c->arena, raw, false, &s) ? raw : s;
}

static char *relative(struct call *c, struct str s, struct err *err)
{
    char *path = arena_strdup(&c->arena, s);

    if (strlen(path) != s.n) {
        err_set(err, ERR_INVALID, "a path must not contain a NUL byte");
        return NULL;
    }
    path += strspn(path, "/");
    return *path ? path : arena_strdup(&c->arena, STR("."));
}

static int open_beneath(int dir, const char *path, int flags)
{
    struct open_how how = { .flags = (uint64_t)(unsigned)flags | O_CLOEXEC,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };

    return (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

static char *path_of(int fd)
{
    char link[32], *path = xcalloc(1, PATH_MAX);

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, PATH_MAX - 1) < 0)
        path[0] = 0;
    return path;
}

static bool is_inside(int dir, int fd)
{
    AUTO(freep) char *above = path_of(dir);
    AUTO(freep) char *path = path_of(fd);
    size_t n = strlen(above);

    if (n == 1) /* the root: it has a slash already */
        n = 0;
    return above[0] == '/' && !strncmp(path, above, n) && (path[n] == '/' || !path[n]);
}

/* The path, or the last directory on it that is there. */
static int open_nearest(int dir, const char *path, bool *missing)
{
    AUTO(freep) char *way = xstrdup(path);
    char *slash;
    int fd;

    while ((fd = openat(dir, way, O_PATH | O_CLOEXEC)) < 0 && errno == ENOENT &&
           (slash = strrchr(way, '/'))) {
        *missing = true;
        *slash = 0;
    }
    return fd;
}

/* By way of an absolute link, or through a directory above, a path may leave and come back: what
 * counts is where it ends. Judged by the file that was opened, which nobody can exchange. */
static int open_inside(int dir, const char *path, int flags)
{
    int fd = open_beneath(dir, path, flags);
    AUTO(closep) int at = -1;
    bool missing = false, inside;

    if (fd >= 0 || errno != EXDEV)
        return fd;
    at = open_nearest(dir, path, &missing);
    inside = at >= 0 && is_inside(dir, at);
    if (!inside || missing) {
        errno = inside ? ENOENT : EXDEV;
        return -1;
    }
    return flags & O_PATH ? TAKE(at, -1) : path_reopen(at, flags);
}

static int open_base(struct err *err)
{
    int fd = open(base_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? err_sys(err, "%s", base_dir) : fd;
}

/* A descriptor of the path; -1 with err: denied when it leads outside, else `missing`. What is not
 * there may be a name with a '%' of its own. */
static int open_path(struct call *c, struct str raw, int flags, const char *missing,
                     struct err *err)
{
    AUTO(closep) int dir = open_base(err);
    struct str twice = decoded(c, raw);
    char *path;
    int fd;

    if (dir < 0)
        return -1;
    path = relative(c, twice, err);
    fd = path ? open_inside(dir, path, flags) : -1;
    if (path && fd < 0 && errno == ENOENT && !str_eq(raw, twice)) {
        path = relative(c, raw, err);
        fd = path ? open_inside(dir, path, flags) : -1;
    }
    if (fd >= 0 || !path)
        return fd;
    if (errno == EXDEV || errno == EACCES || errno == ELOOP)
        return denied(err);
    return err_set(err, ERR_NOT_FOUND, "%s", missing);
}

/* ---- status and commands ---- */

static int get_root(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_reply(c, 200, "application/json",
                      STR("{\"status\":\"ok\",\"message\":\"Sandbox Runtime is active.\"}"));
}

struct execute_body {
    char *command;
    double timeout_seconds;
};

static const struct field execute_fields[] = {
    FIELD(struct execute_body, command, F_STR, .flags = F_REQUIRED, .max = COMMAND_MAX,
          .help = "given to sh -c"),
    FIELD(struct execute_body, timeout_seconds, F_NUM, .help = "then its processes are killed"),
    {},
};

static int64_t timeout_ms(const struct execute_body *b)
{
    int64_t s = EXEC_S;

    if (b->timeout_seconds > 0 && b->timeout_seconds < 1e6)
        return (int64_t)(b->timeout_seconds * 1000);
    if (str_i64(str_of(service_env("SANDBOX_EXEC_TIMEOUT_SECONDS", "")), &s) || s <= 0 ||
        s > 1000000)
        s = EXEC_S;
    return s * 1000;
}

static int post_execute(struct call *c, void *body, struct err *err)
{
    static char sh[] = "/bin/sh", dash_c[] = "-c";
    const struct execute_body *b = body;
    char *argv[] = { sh, dash_c, b->command, NULL };
    AUTO(capture_finish)
    struct capture run = { .argv = argv,
                           .envp = environ,
                           .cwd = base_dir,
                           .timeout_ms = timeout_ms(b),
                           .max = OUTPUT_MAX,
                           .peer = c->conn };
    AUTO(buf_free) struct buf json = { 0 }, failed = { 0 };
    int code = 1;

    if (!capture_run(&run, err))
        code = WIFEXITED(run.status) ? WEXITSTATUS(run.status) : -WTERMSIG(run.status);
    else if (err->code == ERR_GONE)
        return -1;
    else
        buf_printf(&failed, "Failed to execute command: %s", err->msg);
    json_open(&json, '{');
    json_key(&json, "stdout");
    json_put_str(&json, buf_str(&run.out));
    json_key(&json, "stderr");
    json_put_str(&json, failed.len ? buf_str(&failed) : buf_str(&run.log));
    json_kv_int(&json, "exit_code", run.timed_out ? 124 : code);
    json_kv_bool(&json, "timed_out", run.timed_out);
    json_close(&json, '}');
    return call_reply_json(c, 200, &json);
}

/* ---- files ---- */

struct incoming { /* a file being received: unnamed until it is whole */
    int dir, fd;
    char *name;
    char temporary[40];
};

/* The next directory on the way, made where it is missing: `path` up to it from the base, and its
 * own name in the one before. */
static int enter(struct incoming *in, int base, const char *path, const char *name, struct err *err)
{
    int next = open_inside(base, path, O_RDONLY | O_DIRECTORY);

    if (next < 0 && errno == ENOENT && !mkdirat(in->dir, name, 0755))
        next = open_inside(base, path, O_RDONLY | O_DIRECTORY);
    if (next < 0)
        return errno == EXDEV || errno == ELOOP ? denied(err) : err_sys(err, "%s", path);
    close(in->dir);
    in->dir = next;
    return 0;
}

static int begin_file(struct call *c, struct incoming *in, struct str filename, struct err *err)
{
    AUTO(closep) int base = open_base(err);
    char *path = base < 0 ? NULL : relative(c, filename, err), *name = path, *slash;

    if (!path)
        return -1;
    in->dir = fcntl(base, F_DUPFD_CLOEXEC, 3);
    while ((slash = strchr(name, '/'))) {
        *slash = 0;
        if (*name && enter(in, base, path, name, err))
            return -1;
        *slash = '/';
        name = slash + 1;
    }
    if (!*name || !strcmp(name, "..") || !strcmp(name, "."))
        return denied(err);
    in->name = name;
    snprintf(in->temporary, sizeof(in->temporary), ".cove-upload-");
    id_random(in->temporary + strlen(in->temporary), 16);
    in->fd = openat(in->dir, in->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return in->fd < 0 ? err_sys(err, "upload") : 0;
}

static int end_file(struct incoming *in, struct err *err)
{
    struct stat st;

    /* A link that is there would be replaced, never followed; a directory stays. */
    if (!fstatat(in->dir, in->name, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode))
        return err_set(err, ERR_INTERNAL, "%.100s is a directory", in->name);
    if (renameat(in->dir, in->temporary, in->dir, in->name))
        return err_sys(err, "upload");
    in->temporary[0] = 0;
    return 0;
}

static void finish_file(struct incoming *in)
{
    if (in->temporary[0] && in->dir >= 0)
        unlinkat(in->dir, in->temporary, 0);
    closep(&in->fd);
    closep(&in->dir);
}

/* Feeds the parser one buffer: 1 go on, 0 the end, -1. */
static int take_parts(struct call *c, struct multipart *m, struct incoming *in, bool *in_file,
                      struct err *err)
{
    for (;;) {
        int event = multipart_next(m, err);

        if (event < 0)
            return -1;
        if (event == MULTIPART_MORE || event == MULTIPART_END)
            return event == MULTIPART_MORE;
        if (event == MULTIPART_PART) {
            *in_file = str_is(m->name, "file") && m->filename.p && in->fd < 0;
            if (*in_file && begin_file(c, in, m->filename, err))
                return -1;
        } else if (*in_file && write(in->fd, m->data.p, m->data.n) != (ssize_t)m->data.n) {
            return err_sys(err, "upload");
        }
    }
}

static int receive(struct call *c, struct incoming *in, struct err *err)
{
    AUTO(multipart_finish) struct multipart m = { 0 };
    AUTO(freep) char *chunk = xmalloc(64 << 10);
    bool in_file = false;
    ssize_t n;
    int r = 1;

    if (multipart_init(&m, http_get(&c->head, "content-type"), err))
        return -1;
    while (r > 0 && (n = call_read(c, chunk, 64 << 10, err)) > 0) {
        multipart_feed(&m, (struct str){ chunk, (size_t)n });
        r = take_parts(c, &m, in, &in_file, err);
    }
    if (r > 0)
        return err->code ? -1 : err_set(err, ERR_INVALID, "the multipart body ends too early");
    return r;
}

static int post_upload(struct call *c, void *body, struct err *err)
{
    AUTO(finish_file) struct incoming in = { .dir = -1, .fd = -1 };
    AUTO(buf_free) struct buf json = { 0 };

    (void)body;
    if (receive(c, &in, err))
        return -1;
    if (in.fd < 0) /* FastAPI's words for a missing field */
        return call_reply(c, 422, "application/json",
                          STR("{\"detail\":[{\"type\":\"missing\",\"loc\":[\"body\",\"file\"],"
                              "\"msg\":\"Field required\",\"input\":null}]}"));
    if (end_file(&in, err))
        return -1;
    json_open(&json, '{');
    json_kv_str(&json, "message",
                arena_printf(&c->arena, "File '%s' uploaded successfully.", in.name));
    json_close(&json, '}');
    return call_reply_json(c, 200, &json);
}

/* The last component, without what would end the quotes. */
static void put_disposition(struct call *c, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    AUTO(buf_free) struct buf b = { 0 };

    buf_puts(&b, "attachment; filename=\"");
    for (; *name; name++)
        buf_putc(&b, (unsigned char)*name < ' ' || strchr("\"\\\177", *name) ? '_' : *name);
    buf_putc(&b, '"');
    call_header(c, "Content-Disposition", buf_cstr(&b));
}

static int get_download(struct call *c, void *body, struct err *err)
{
    AUTO(closep)
    int fd = open_path(c, c->param[0], O_RDONLY | O_NONBLOCK | O_NOCTTY, "File not found", err);
    const char *path = relative(c, decoded(c, c->param[0]), err);
    struct stat st;

    (void)body;
    if (fd < 0 || !path)
        return -1;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return err_set(err, ERR_NOT_FOUND, "File not found");
    put_disposition(c, path);
    return call_send_file(c, fd, &st, "application/octet-stream", err);
}

static void write_entry(struct buf *json, int dir, const char *name)
{
    struct stat st;

    if (fstatat(dir, name, &st, 0) && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
        return;
    json_open(json, '{');
    json_kv_str(json, "name", name);
    json_kv_int(json, "size", st.st_size);
    json_kv_str(json, "type", S_ISDIR(st.st_mode) ? "directory" : "file");
    json_key(json, "mod_time");
    json_put_num(json, (double)st.st_mtim.tv_sec + (double)st.st_mtim.tv_nsec / 1e9);
    json_close(json, '}');
}

static int get_list(struct call *c, void *body, struct err *err)
{
    int fd = open_path(c, c->param[0], O_RDONLY | O_DIRECTORY, "Path is not a directory", err);
    AUTO(buf_free) struct buf json = { 0 };
    size_t left = LIST_MAX;
    struct dirent *e;
    DIR *d;

    (void)body;
    if (fd < 0)
        return -1;
    d = fdopendir(fd);
    if (!d) {
        close(fd);
        return err_sys(err, "list");
    }
    json_open(&json, '[');
    while (left-- && (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            write_entry(&json, dirfd(d), e->d_name);
    json_close(&json, ']');
    closedir(d);
    return call_reply_json(c, 200, &json);
}

static int get_exists(struct call *c, void *body, struct err *err)
{
    struct err why = { 0 };
    AUTO(closep) int fd = open_path(c, c->param[0], O_PATH, "", &why);
    AUTO(buf_free) struct buf json = { 0 };

    (void)body;
    if (fd < 0 && why.code != ERR_NOT_FOUND)
        return err_set(err, why.code, "%s", why.msg);
    json_open(&json, '{');
    json_key(&json, "path");
    json_put_str(&json, c->param[0]);
    json_kv_bool(&json, "exists", fd >= 0);
    json_close(&json, '}');
    return call_reply_json(c, 200, &json);
}

const struct route runtime_routes[] = {
    { "GET", "/", ROUTE_RAW, ROUTE_OPEN, NULL, 0, get_root, "runtime_status", "Is it there?", 0 },
    { "POST", "/execute", ROUTE_JSON, ROUTE_OPEN | ROUTE_LENIENT, execute_fields,
      sizeof(struct execute_body), post_execute, "runtime_execute", "Run a command with sh -c",
      COMMAND_MAX * 2 },
    { "POST", "/upload", ROUTE_RAW, ROUTE_OPEN, NULL, 0, post_upload, "runtime_upload",
      "Write a file", 0 },
    { "GET", "/download/{path}", ROUTE_RAW, ROUTE_OPEN, NULL, 0, get_download, "runtime_download",
      "Read a file", 0 },
    { "GET", "/list/{path}", ROUTE_RAW, ROUTE_OPEN, NULL, 0, get_list, "runtime_list",
      "List a directory", 0 },
    { "GET", "/exists/{path}", ROUTE_RAW, ROUTE_OPEN, NULL, 0, get_exists, "runtime_exists",
      "Is there such a file?", 0 },
    {},
};
