/* rest_code.c - see rest_code.h.
 *
 * Each code is a process of its own: output cannot mix, a limit can be held, and nothing is left
 * for the next one. The text goes in by a memfd, because an argument is bounded at 128 KiB and
 * standard input belongs to the code. */
#include "guest/services/rest_code.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "guest/services/capture.h"
#include "guest/services/python.h"
#include "guest/services/service.h"

/* One dictionary for globals and locals, so that functions see the names of the code's top level;
 * lines are made known to linecache, so that a traceback shows them. pyautogui is there without
 * being imported, as the documents have it, but costs its 200 ms only when it is used. */
static const char driver[] =
    "import sys, os\n"
    "def _main():\n"
    "    with os.fdopen(3, 'rb') as f: text = f.read().decode('utf-8', 'replace')\n"
    "    import textwrap, linecache, traceback\n"
    "    text = textwrap.dedent(text.strip('\\r\\n').rstrip())\n"
    "    name = '<execute>'\n"
    "    linecache.cache[name] = (len(text), None, text.splitlines(True), name)\n"
    "    class Later:\n"
    "        def __getattr__(self, item):\n"
    "            import importlib\n"
    "            module = importlib.import_module('pyautogui')\n"
    "            space['pyautogui'] = module\n"
    "            return getattr(module, item)\n"
    "    import types\n"
    "    main = types.ModuleType('__main__')\n"
    "    space = main.__dict__\n"
    "    space['pyautogui'] = Later()\n"
    "    sys.modules['__main__'] = main\n"
    "    sys.argv = ['']\n"
    "    sys.path[0:0] = ['']\n"
    "    for s in (sys.stdout, sys.stderr):\n"
    "        s.reconfigure(line_buffering=True, errors='backslashreplace')\n"
    "    try:\n"
    "        exec(compile(text, name, 'exec'), space)\n"
    "    except SystemExit:\n"
    "        raise\n"
    "    except BaseException as e:\n"
    "        sys.stdout.flush()\n"
    "        t = e.__traceback__.tb_next if e.__traceback__ else None\n"
    "        traceback.print_exception(type(e), e, t)\n"
    "        sys.exit(1)\n"
    "_main()\n";

static const char lister[] =
    "import sys, json\n"
    "from importlib import metadata\n"
    "seen = {}\n"
    "for d in metadata.distributions():\n"
    "    name = d.metadata['Name'] if d.metadata else None\n"
    "    if not name or not d.version or name.lower() in seen: continue\n"
    "    item = {'name': str(name), 'version': str(d.version)}\n"
    "    try:\n"
    "        direct = json.loads(d.read_text('direct_url.json') or '{}')\n"
    "        if direct.get('dir_info', {}).get('editable'):\n"
    "            item['editable_project_location'] = direct['url'].removeprefix('file://')\n"
    "    except Exception: pass\n"
    "    seen[name.lower()] = item\n"
    "print(json.dumps([seen[k] for k in sorted(seen)]))\n";

enum { LIST_MS = 30000, LIST_BYTES = 4 << 20, UV_BYTES = 256 << 10 };

/* ---- the number that runs at once ---- */

static int64_t running;
static bool installing;
static struct co_cond turn = { .waiters = LIST_INIT(turn.waiters) };

static int take_turn(struct err *err)
{
    while (running >= service_limits.executes)
        if (co_cond_wait(&turn, co_in(service_limits.execute_ms)))
            return err_set(err, ERR_LIMIT,
                           "%lld codes run already (rest.executes), and none of them ended",
                           (long long)service_limits.executes);
    running++;
    return 0;
}

static void give_turn(void)
{
    running--;
    co_cond_wake(&turn);
}

/* ---- packages ---- */

void rest_code_refusal(struct buf *json, const struct code_request *rq, struct str words)
{
    AUTO(buf_free) struct buf text = { 0 };

    buf_puts(&text, "Failed to install packages: ");
    for (size_t i = 0; i < rq->npackages; i++)
        buf_printf(&text, "%s%s", i ? ", " : "", rq->packages[i]);
    buf_putc(&text, '\n');
    buf_add_str(&text, words);
    json_open(json, '{');
    json_kv_str(json, "stdout", "");
    json_key(json, "stderr");
    json_put_str(json, buf_str(&text));
    json_close(json, '}');
}

/* Parks; the words of the program are in `words` in any case. */
static int run_tool(char **argv, const struct python *p, const struct conn *peer, struct buf *words,
                    struct err *err)
{
    AUTO(arena_free) struct arena a = { 0 };
    AUTO(capture_finish)
    struct capture c = { .argv = argv,
                         .envp = python_envp(p, &a),
                         .cwd = service_env("HOME", "/"),
                         .timeout_ms = service_limits.install_ms,
                         .max = UV_BYTES,
                         .peer = peer };

    if (capture_run(&c, err))
        return -1;
    buf_add_str(words, buf_str(&c.log));
    if (c.timed_out)
        buf_printf(words, "\nnot installed within %lld ms (rest.install-ms)\n",
                   (long long)service_limits.install_ms);
    return capture_ok(&c) ? 0 : err_set(err, ERR_UPSTREAM, "%s failed", argv[0]);
}

/* Only `lo`: uv would try for a quarter of a minute before it says so. */
static bool has_network(void)
{
    AUTO(closep) int fd = open("/proc/net/route", O_RDONLY | O_CLOEXEC);
    char text[512];
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text));
    const char *line = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;

    return fd < 0 || (line && line + 1 < text + n);
}

/* pip, where there is one, can bring uv; which needs the package index like all that follows. */
static const char *bring_uv(const struct python *p, struct arena *a, const struct conn *peer,
                            struct buf *words, struct err *err)
{
    static char m[] = "-m", pip[] = "pip", install[] = "install", quiet[] = "-q", uv[] = "uv";
    char *argv[] = { arena_strdup(a, str_of(p->program)), m, pip, install, quiet, uv, NULL };
    const char *found = python_find_uv(p, a, err);
    struct err ignored;

    if (found || !has_network() || !python_has(p, "pip/__init__.py"))
        return found;
    if (run_tool(argv, p, peer, words, &ignored))
        return NULL; /* err still says which command is missing */
    return python_find_uv(p, a, err);
}

static int install_now(const struct code_request *rq, const struct python *p,
                       const struct conn *peer, struct buf *words, struct err *err)
{
    static const char *const before[] = { "pip", "install", "--no-progress", "--python" };
    AUTO(arena_free) struct arena a = { 0 };
    char **argv = arena_alloc(&a, sizeof(*argv) * (rq->npackages + ARRAY_LEN(before) + 5));
    const char *uv = bring_uv(p, &a, peer, words, err);
    size_t n = 0;

    if (!uv)
        return -1;
    argv[n++] = arena_strdup(&a, str_of(uv));
    for (size_t i = 0; i < ARRAY_LEN(before); i++)
        argv[n++] = arena_strdup(&a, str_of(before[i]));
    argv[n++] = arena_strdup(&a, str_of(p->program));
    if (!has_network()) {
        argv[n++] = arena_strdup(&a, STR("--offline"));
        buf_puts(words, "this sandbox has no network, so only what uv has already can be had\n");
    }
    argv[n++] = arena_strdup(&a, STR("--")); /* a package is never an option */
    for (size_t i = 0; i < rq->npackages; i++)
        argv[n++] = rq->packages[i];
    return run_tool(argv, p, peer, words, err);
}

/* One at a time: uv locks an environment, and who waits should not hold a process. 0 installed, 1
 * refused with the answer written, -1 nobody waits for it any more. */
static int install(const struct code_request *rq, const struct python *p, const struct conn *peer,
                   struct buf *json, struct err *err)
{
    AUTO(buf_free) struct buf words = { 0 };
    int64_t until = co_in(service_limits.install_ms);
    int r;

    while (installing)
        if (co_cond_wait(&turn, until))
            return err_set(err, ERR_TIMEOUT, "other packages were still being installed");
    installing = true;
    r = install_now(rq, p, peer, &words, err);
    installing = false;
    co_cond_wake(&turn);
    if (!r)
        return 0;
    if (err->code == ERR_GONE)
        return -1;
    log_warn("packages were not installed", KV("error", err->msg));
    if (err->code != ERR_UPSTREAM)
        buf_printf(&words, "%s%s\n", words.len ? "\n" : "", err->msg);
    rest_code_refusal(json, rq, buf_str(&words));
    return 1;
}

/* ---- code ---- */

static int code_file(struct str code, struct err *err)
{
    AUTO(closep) int fd = memfd_create("code", MFD_CLOEXEC);

    if (fd < 0)
        return err_sys(err, "memfd");
    while (code.n) {
        ssize_t n = write(fd, code.p, code.n);

        if (n < 0)
            return err_sys(err, "memfd");
        code = (struct str){ code.p + n, code.n - (size_t)n };
    }
    if (lseek(fd, 0, SEEK_SET))
        return err_sys(err, "memfd");
    return TAKE(fd, -1);
}

/* What the code cannot say itself: that it was ended, and by what. */
static void add_last_words(struct capture *c)
{
    struct buf *b = &c->log;

    if (b->len && b->data[b->len - 1] != '\n' && (c->cut || c->timed_out))
        buf_putc(b, '\n');
    if (c->cut)
        buf_printf(b, "OutputLimit: output beyond %zu bytes was dropped (rest.output-bytes)\n",
                   c->max);
    if (c->timed_out)
        buf_printf(b, "TimeoutError: the code ran longer than %lld ms (rest.execute-ms)\n",
                   (long long)c->timeout_ms);
    else if (WIFSIGNALED(c->status))
        buf_printf(b, "ProcessEnded: the interpreter was ended by signal %s\n",
                   sigabbrev_np(WTERMSIG(c->status)) ? sigabbrev_np(WTERMSIG(c->status)) : "?");
}

static int run_python(const struct code_request *rq, const struct python *p,
                      const struct conn *peer, struct buf *json, struct err *err)
{
    AUTO(arena_free) struct arena a = { 0 };
    AUTO(closep) int code = code_file(rq->code, err);
    char *argv[] = { arena_strdup(&a, str_of(p->program)), arena_strdup(&a, STR("-c")),
                     arena_strdup(&a, str_of(driver)), NULL };
    AUTO(capture_finish)
    struct capture c = { .argv = argv,
                         .envp = python_envp(p, &a),
                         .cwd = service_env("HOME", "/"),
                         .pass = &code,
                         .npass = 1,
                         .timeout_ms = service_limits.execute_ms,
                         .max = (size_t)service_limits.output_bytes,
                         .peer = peer };

    if (code < 0 || capture_run(&c, err))
        return -1;
    add_last_words(&c);
    json_open(json, '{');
    json_key(json, "stdout");
    json_put_str(json, buf_str(&c.out));
    json_key(json, "stderr");
    json_put_str(json, buf_str(&c.log));
    json_close(json, '}');
    return 0;
}

int rest_code_run(const struct code_request *rq, const struct conn *peer, struct buf *json,
                  struct err *err)
{
    const struct python *p = python_prepare(err);
    int r;

    if (!p)
        return -1;
    if (rq->npackages) {
        r = install(rq, p, peer, json, err);
        if (r)
            return r < 0 ? -1 : 0;
    }
    if (take_turn(err))
        return -1;
    r = run_python(rq, p, peer, json, err);
    give_turn();
    return r;
}

static int list_packages(struct capture *c, struct err *err)
{
    int r = take_turn(err);

    if (r)
        return -1;
    r = capture_run(c, err);
    give_turn();
    return r;
}

void rest_code_packages(struct buf *json)
{
    AUTO(arena_free) struct arena a = { 0 };
    AUTO(capture_finish) struct capture c = { .timeout_ms = LIST_MS, .max = LIST_BYTES };
    AUTO(json_dropp) json_t *j = NULL;
    struct err err;
    const struct python *p = python_prepare(&err);
    char *argv[] = { p ? arena_strdup(&a, str_of(p->program)) : NULL, arena_strdup(&a, STR("-c")),
                     arena_strdup(&a, str_of(lister)), NULL };

    if (p) {
        c.argv = argv;
        c.envp = python_envp(p, &a);
    }
    if (!p || list_packages(&c, &err) || !capture_ok(&c) || c.cut ||
        !(j = json_read(buf_str(&c.out), &err)) || !json_is_array(j))
        json_put_raw(json, STR("[]"));
    else
        json_put_raw(json, str_trim((struct str){ c.out.data, c.out.len - 1 }));
}
