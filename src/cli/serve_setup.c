/* serve_setup.c - what `cove serve` needs before it gives its privileges up: directories, the lock
 * of the data directory, listeners, the administrator's key. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/serve.h"
#include "control/control.h"
#include "jail/idmap.h"
#include "keep/keep.h"
#include "model/user.h"

enum { NOBODYS_ID = 64200, PASSWORD_CHARS = 20, LOCK_TEXT = 32, ENDING_MS = 30000, STEP_MS = 20 };

/* ---- directories ---- */

static int make_dir(const char *path, mode_t mode, struct err *err)
{
    AUTO(freep) char *copy = xstrdup(path);

    for (char *p = copy + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = 0;
        if (mkdir(copy, 0755) && errno != EEXIST)
            return err_sys(err, "make %s", copy);
    }
    return mkdir(copy, mode) && errno != EEXIST ? err_sys(err, "make %s", copy) : 0;
}

static int find_user(struct serve *s, struct err *err)
{
    const char *name = s->o->user ? s->o->user : "cove";
    const struct passwd *p;
    uint32_t ignored;

    s->uid = geteuid();
    s->gid = getegid();
    s->one_user = !s->root && idmap_ranges(&ignored, &ignored);
    if (!s->root)
        return s->o->user ? err_set(err, ERR_DENIED, "--user needs root") : 0;
    // cppcheck-suppress getpwnamCalled  ; one thread so far
    p = getpwnam(name);
    if (!p && s->o->user)
        return err_set(err, ERR_INVALID, "--user: no user '%s'", name);
    s->uid = p ? p->pw_uid : NOBODYS_ID;
    s->gid = p ? p->pw_gid : NOBODYS_ID;
    if (!s->uid)
        return err_set(err, ERR_INVALID, "--user: '%s' is root", name);
    return 0;
}

static pid_t lock_owner(const struct serve *s)
{
    char text[LOCK_TEXT] = "";
    uint64_t pid;

    if (pread(s->lock, text, sizeof(text) - 1, 0) < 0)
        return 0;
    text[strcspn(text, "\n")] = 0;
    return str_u64(str_of(text), &pid) || pid > INT_MAX ? 0 : (pid_t)pid;
}

/* A monitor that was killed: its parts are ending, which takes a moment. */
static bool is_ending(const struct serve *s)
{
    pid_t pid = lock_owner(s);

    return pid > 0 && kill(pid, 0) && errno == ESRCH;
}

/* One server per data directory. All our processes inherit the lock: as long as one lives, nobody
 * else begins. */
int serve_lock(struct serve *s, struct err *err)
{
    AUTO(freep) char *path = NULL;
    char text[LOCK_TEXT];
    int64_t until = clock_ms() + ENDING_MS;
    int n;

    if (asprintf(&path, "%s/serve.lock", s->data_dir) < 0)
        abort();
    s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->lock < 0)
        return err_sys(err, "open %s", path);
    while (flock(s->lock, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK)
            return err_sys(err, "lock %s", path);
        if (!is_ending(s) || clock_ms() >= until)
            return err_set(
                err, ERR_CONFLICT,
                "another server (pid %d) uses %s; it goes on, and this one does not begin",
                lock_owner(s), s->data_dir);
        usleep(STEP_MS * 1000);
    }
    n = snprintf(text, sizeof(text), "%d\n", getpid());
    if (ftruncate(s->lock, 0) || pwrite(s->lock, text, (size_t)n, 0) != n)
        return err_sys(err, "write %s", path);
    return 0;
}

/* Files of the store belong to whom the server ran as the last time. Never by way of a link: that
 * one may have been somebody else's tool by then. */
static int give_state(const struct serve *s, struct err *err)
{
    int dir = open(s->state_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = dir < 0 ? NULL : fdopendir(dir);
    struct stat st;
    int r = 0;

    if (!d) {
        closep(&dir);
        return err_sys(err, "open %s", s->state_dir);
    }
    for (const struct dirent *e; !r && (e = readdir(d));)
        if (!fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
            st.st_nlink == 1 && st.st_uid != s->uid)
            r = fchownat(dir, e->d_name, s->uid, s->gid, AT_SYMLINK_NOFOLLOW);
    if (r || fchown(dir, s->uid, s->gid) || fchmod(dir, 0700))
        r = err_sys(err, "give %s to the server's user", s->state_dir);
    closedir(d);
    return r;
}

static int make_directories(struct serve *s, struct err *err)
{
    if (asprintf(&s->state_dir, "%s/serve", s->data_dir) < 0)
        abort();
    if (make_dir(s->data_dir, 0700, err) || make_dir(s->run_dir, 0755, err) || serve_lock(s, err) ||
        make_dir(s->state_dir, 0700, err) ||
        keep_owner_make(s->data_dir, s->run_dir, &s->owner, err) ||
        keep_check_run_dir(s->data_dir, s->run_dir, &s->owner, err))
        return -1;
    s->place = keep_place(s->run_dir, &s->owner);
    if (make_dir(s->place, 0755, err))
        return -1;
    return s->root ? give_state(s, err) : 0;
}

/* ---- listeners ---- */

static int listen_at(const char *text, const char *option, int *out, struct addr *bound,
                     struct err *err)
{
    struct addr a;

    if (addr_parse(str_of(text), &a, err))
        return err_in(err, "%s", option);
    *out = sock_listen(&a, err);
    if (*out < 0)
        return err_in(err, "%s %s", option, text);
    bound->len = sizeof(bound->sa);
    return getsockname(*out, (struct sockaddr *)&bound->sa, &bound->len)
               ? err_sys(err, "getsockname")
               : 0;
}

static uint16_t *port_of(struct addr *a)
{
    if (a->sa.ss_family == AF_INET)
        return &((struct sockaddr_in *)(void *)&a->sa)->sin_port;
    if (a->sa.ss_family == AF_INET6)
        return &((struct sockaddr_in6 *)(void *)&a->sa)->sin6_port;
    return NULL;
}

static char *url_of(const struct serve *s, const struct addr *a)
{
    char text[128];
    struct buf b = { 0 };

    addr_print(a, text, sizeof(text));
    buf_printf(&b, "%s://%s", s->tls_chain ? "https" : "http", text);
    return b.data;
}

/* Beside the API by default: the same address, the next port. One that is taken is no reason not to
 * start, as nobody asked for it. */
static int open_preview(struct serve *s, const struct addr *api, struct err *err)
{
    struct addr a = *api;
    char text[128];
    uint16_t *port = port_of(&a);
    struct err ignored;

    if (s->o->preview_listen && !strcmp(s->o->preview_listen, "none"))
        return 0;
    if (s->o->preview_listen) {
        if (listen_at(s->o->preview_listen, "--preview-listen", &s->preview, &a, err))
            return -1;
    } else {
        if (!port || ntohs(*port) == UINT16_MAX)
            return 0;
        *port = htons((uint16_t)(ntohs(*port) + 1));
        addr_print(&a, text, sizeof(text));
        if (listen_at(text, "", &s->preview, &a, &ignored))
            return 0;
    }
    s->preview_url = url_of(s, &a);
    return 0;
}

static int open_listeners(struct serve *s, struct err *err)
{
    struct addr a;
    uint16_t *port;
    struct buf domain = { 0 };

    if (listen_at(s->o->listen, "--listen", &s->listener, &a, err) || open_preview(s, &a, err))
        return -1;
    s->url = url_of(s, &a);
    port = port_of(&a);
    if (s->o->domain)
        buf_printf(&domain, "%s", s->o->domain);
    else
        buf_printf(&domain, "localhost:%u", port ? ntohs(*port) : 80);
    s->domain = domain.data;
    return 0;
}

/* ---- the administrator ---- */

static int write_secret(const char *path, const char *text, struct err *err)
{
    AUTO(freep) char *next = NULL;
    AUTO(closep) int fd = -1;
    size_t n = strlen(text);

    if (asprintf(&next, "%s.new", path) < 0)
        abort();
    unlink(next);
    fd = open(next, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, text, n) != (ssize_t)n || write(fd, "\n", 1) != 1 || fsync(fd) ||
        rename(next, path))
        return err_sys(err, "write %s", path);
    return 0;
}

/* 1 read, 0 there is none. */
static int read_secret(const char *path, char *out, size_t n, struct err *err)
{
    AUTO(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t got;

    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(err, "open %s", path);
    got = read(fd, out, n - 1);
    if (got < 0)
        return err_sys(err, "read %s", path);
    out[got] = 0;
    out[strcspn(out, "\r\n")] = 0;
    return out[0] ? 1 : 0;
}

struct secret {
    const char *file, *variable;
    int (*check)(const char *text, struct err *err);
    void (*make)(char *out);
};

static void make_key(char *out) { api_key_new(out); }
static void make_password(char *out) { id_random(out, PASSWORD_CHARS); }

static const struct secret key_secret = { "admin.key", "COVE_API_KEY", control_key_check,
                                          make_key };
static const struct secret password_secret = { "admin.password", "COVE_ADMIN_PASSWORD",
                                               control_password_check, make_password };

enum secret_source { SECRET_KNOWN, SECRET_GIVEN, SECRET_MADE };

/* What the variable says, else what the file holds, else a new one. The file follows. Returns enum
 * secret_source. */
static int find_secret(const struct serve *s, const struct secret *r, char *out, size_t n,
                       struct err *err)
{
    AUTO(freep) char *path = NULL;
    const char *given = getenv(r->variable);
    int known;

    if (asprintf(&path, "%s/%s", s->data_dir, r->file) < 0)
        abort();
    if (given && *given && (r->check(given, err) || strlen(given) >= n))
        return err_in(err, "%s", r->variable);
    known = read_secret(path, out, n, err);
    if (known < 0 || (known && (!given || !*given || !strcmp(given, out))))
        return known < 0 ? -1 : SECRET_KNOWN;
    if (given && *given)
        snprintf(out, n, "%s", given);
    else
        r->make(out);
    if (write_secret(path, out, err))
        return -1;
    return given && *given ? SECRET_GIVEN : SECRET_MADE;
}

/* Also from the block that the kernel shows as /proc/PID/environ: unsetenv() only forgets it. */
static void wipe(const char *variable)
{
    char *value = getenv(variable);

    if (value)
        explicit_bzero(value, strlen(value));
    unsetenv(variable);
}

static int find_secrets(struct serve *s, struct err *err)
{
    int key = find_secret(s, &key_secret, s->key, sizeof(s->key), err);
    int password =
        key < 0 ? -1 : find_secret(s, &password_secret, s->password, sizeof(s->password), err);

    wipe(key_secret.variable);
    wipe(password_secret.variable);
    if (password < 0)
        return -1;
    s->made_key = key == SECRET_MADE;
    s->made_password = password == SECRET_MADE;
    s->new_password = password != SECRET_KNOWN;
    return 0;
}

/* The server does not see the templates, only that they change: at once, not when it next asks. */
static int watch_templates(struct serve *s, struct err *err)
{
    AUTO(freep) char *folder = NULL;

    if (asprintf(&folder, "%s/templates", s->data_dir) < 0)
        abort();
    if (make_dir(folder, 0700, err))
        return -1;
    s->template_news = MAX(inotify_init1(IN_NONBLOCK | IN_CLOEXEC), 0);
    if (s->template_news &&
        inotify_add_watch(s->template_news, folder, IN_MOVED_TO | IN_MOVED_FROM | IN_ONLYDIR) < 0)
        close(TAKE(s->template_news, 0));
    return 0; /* without, it asks every few seconds */
}

int serve_setup(struct serve *s, struct err *err)
{
    umask(022);
    return keep_schema_check(s->data_dir, s->run_dir, err) || find_user(s, err) ||
                   make_directories(s, err) || serve_database(s, err) ||
                   serve_tls_copy(s, err) < 0 || open_listeners(s, err) || find_secrets(s, err) ||
                   serve_contract(s, err)
               ? -1
               : watch_templates(s, err);
}

/* ---- where the command line finds us ---- */

static char *note_path(const struct serve *s)
{
    char *path = NULL;

    if (asprintf(&path, "%s/server.json", s->data_dir) < 0)
        abort();
    return path;
}

void serve_announce(const struct serve *s)
{
    AUTO(freep) char *path = note_path(s), *next = NULL;
    AUTO(buf_free) struct buf b = { 0 };
    AUTO(closep) int fd = -1;

    json_open(&b, '{');
    json_kv_str(&b, "url", s->url);
    json_kv_str(&b, "preview_url", s->preview_url);
    json_kv_int(&b, "pid", getpid());
    json_close(&b, '}');
    buf_puts(&b, "\n");
    if (asprintf(&next, "%s.new", path) < 0)
        abort();
    unlink(next);
    fd = open(next, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, b.data, b.len) != (ssize_t)b.len || rename(next, path))
        unlink(next); /* only convenience is lost */
}

void serve_withdraw(const struct serve *s)
{
    AUTO(freep) char *path = note_path(s);

    unlink(path);
}
