/* python.c - see python.h. A venv is a directory with a link and a text file of three lines;
 * writing it takes a millisecond, where `python -m venv` takes a second and needs ensurepip. */
#include "guest/services/python.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "guest/services/capture.h"
#include "guest/services/service.h"

#define CERTIFICATES "/etc/ssl/certs/ca-certificates.crt"

extern char **environ;

enum { PROBE_MS = 20000, PROBE_BYTES = 8192, CONFIG_BYTES = 4096 };

static struct arena memory; /* of what is returned: the process's life */
static struct python found;

/* ---- small things about files ---- */

static bool is_program(const char *path) { return !access(path, X_OK); }

static int write_file(const char *path, const char *text)
{
    AUTO(closep) int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    size_t n = strlen(text);

    return fd >= 0 && write(fd, text, n) == (ssize_t)n ? 0 : -1;
}

static int make_dirs(char *path) /* writes into it meanwhile */
{
    for (char *p = path + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = 0;
        if (mkdir(path, 0755) && errno != EEXIST) {
            *p = '/';
            return -1;
        }
    }
    return mkdir(path, 0755) && errno != EEXIST ? -1 : 0;
}

/* ---- an environment that is there ---- */

static const char *layer_packages(const char *version)
{
    char *dir = arena_printf(&memory, PYTHON_LAYER "/lib/python%s/site-packages", version);

    return access(dir, R_OK | X_OK) ? NULL : dir;
}

/* The value of "key = value" in pyvenv.cfg; NULL: no such line. */
static char *config_value(const char *text, const char *key)
{
    struct str rest = str_of(text), line, name, value;

    while (str_cut(rest, '\n', &line, &rest) || line.n) {
        if (str_cut(line, '=', &name, &value) && str_is(str_trim(name), key))
            return arena_strdup(&memory, str_trim(value));
        if (!rest.p || !rest.n)
            break;
    }
    return NULL;
}

static int use(const char *venv, struct err *err)
{
    char *config = arena_printf(&memory, "%s/pyvenv.cfg", venv), text[CONFIG_BYTES];
    char *program = arena_printf(&memory, "%s/bin/python", venv), *version, *dot;
    AUTO(closep) int fd = open(config, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (n < 0 || !is_program(program))
        return err_sys(err, "%s", n < 0 ? config : program);
    text[n] = 0;
    version = config_value(text, "version");
    if (!version)
        version = config_value(text, "version_info");
    dot = version ? strchr(version, '.') : NULL;
    if (!dot)
        return err_set(err, ERR_INVALID, "%s says no version", config);
    version[(dot - version) + 1 + (ptrdiff_t)strspn(dot + 1, "0123456789")] = 0;
    found = (struct python){ program, arena_strdup(&memory, str_of(venv)), version,
                             layer_packages(version) };
    return 0;
}

/* ---- making one ---- */

struct base { /* the Python under it */
    char *program, *version;
};

static char *python_on_path(void)
{
    struct str rest = str_of(service_env("PATH", "/usr/local/bin:/usr/bin:/bin")), dir;
    const char *given = service_env("COVE_PYTHON", NULL);
    char *path;

    if (given)
        return arena_strdup(&memory, str_of(given));
    while (str_next(&rest, ':', &dir)) {
        path = arena_printf(&memory, "%.*s/python3", STR_ARG(dir));
        if (dir.n && is_program(path))
            return path;
    }
    path = arena_printf(&memory, PYTHON_LAYER "/bin/python3");
    return is_program(path) ? path : NULL;
}

static int missing(struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE,
                   "there is no python3 in this sandbox: install it in the template, or give it "
                   "with `" PYTHON_COMMAND "` on the machine that runs Cove");
}

/* Asks it: a name on PATH may be a script that picks one of many. */
static int probe(struct base *b, struct err *err)
{
    static char isolated[] = "-IS", dash_c[] = "-c",
                code[] = "import sys;print(getattr(sys,'_base_executable',0)or sys.executable);"
                         "print('%d.%d.%d'%sys.version_info[:3])";
    char *argv[] = { python_on_path(), isolated, dash_c, code, NULL };
    AUTO(capture_finish)
    struct capture c = {
        .argv = argv, .envp = environ, .timeout_ms = PROBE_MS, .max = PROBE_BYTES
    };
    struct str program, version;

    if (!argv[0])
        return missing(err);
    if (capture_run(&c, err))
        return err_in(err, "%s", argv[0]);
    str_cut(buf_str(&c.out), '\n', &program, &version);
    str_cut(version, '\n', &version, &(struct str){ 0 });
    if (!capture_ok(&c) || !program.n || program.p[0] != '/' || version.n < 3)
        return err_set(err, ERR_UNAVAILABLE, "%s does not work: %.120s", argv[0], buf_cstr(&c.log));
    b->program = arena_strdup(&memory, program);
    b->version = arena_strdup(&memory, version);
    return 0;
}

static int fill(const char *dir, const struct base *b)
{
    char minor[16], *slash;
    AUTO(freep) char *home = xstrdup(b->program);
    char *site, *text;

    snprintf(minor, sizeof(minor), "%.*s", (int)strcspn(strchr(b->version, '.') + 1, ".") + 2,
             b->version); /* "3.11" of "3.11.2" */
    slash = strrchr(home, '/');
    *slash = 0;
    site = arena_printf(&memory, "%s/lib/python%s/site-packages", dir, minor);
    text = arena_printf(&memory,
                        "home = %s\ninclude-system-site-packages = true\nversion = %s\n"
                        "executable = %s\n",
                        home, b->version, b->program);
    if (make_dirs(site) || mkdir(arena_printf(&memory, "%s/bin", dir), 0755) ||
        symlink(b->program, arena_printf(&memory, "%s/bin/python", dir)) ||
        symlink("python", arena_printf(&memory, "%s/bin/python3", dir)) ||
        symlink("python", arena_printf(&memory, "%s/bin/python%s", dir, minor)) ||
        write_file(arena_printf(&memory, "%s/pyvenv.cfg", dir), text))
        return -1;
    /* Behind the sandbox's own packages, and only where it is: a template may have it later. */
    text = arena_printf(&memory,
                        "import sys, os; p = '" PYTHON_LAYER "/lib/python%s/site-packages'; "
                        "os.path.isdir(p) and p not in sys.path and sys.path.append(p)\n",
                        minor);
    return write_file(arena_printf(&memory, "%s/_cove_layer.pth", site), text);
}

/* Complete from the moment that it has its name: two services may be at it at the same time. */
static int make_venv(char *venv, struct err *err)
{
    struct base b = { 0 };
    char *temporary = arena_printf(&memory, "%s.%d.%lld", venv, getpid(), (long long)clock_us());

    if (probe(&b, err))
        return -1;
    if (make_dirs(temporary) || fill(temporary, &b))
        return err_sys(err, "cannot make a Python environment at %s", temporary);
    if (rename(temporary, venv) && errno != EEXIST && errno != ENOTEMPTY)
        return err_sys(err, "cannot make a Python environment at %s", venv);
    return 0;
}

const struct python *python_prepare(struct err *err)
{
    const char *active = service_env("VIRTUAL_ENV", NULL);
    struct err none;
    char *venv;

    if (found.program && is_program(found.program))
        return &found;
    if (active && !use(active, &none))
        return &found;
    venv = arena_printf(&memory, "%s/.local/share/cove/python", service_env("HOME", "/tmp"));
    if (!use(venv, &none))
        return &found;
    if (!access(venv, F_OK)) /* broken, or its Python has gone: kept aside, packages and all */
        (void)!rename(venv, arena_printf(&memory, "%s.old.%lld", venv, (long long)clock_us()));
    if (make_venv(venv, err) || use(venv, err))
        return NULL;
    return &found;
}

/* ---- using it ---- */

char **python_envp(const struct python *p, struct arena *a)
{
    size_t n = 0;
    char **envp;

    while (environ[n])
        n++;
    envp = arena_alloc(a, sizeof(*envp) * (n + 5));
    n = 0;
    for (char **e = environ; *e; e++)
        if (strncmp(*e, "PATH=", 5) && strncmp(*e, "VIRTUAL_ENV=", 12) &&
            strncmp(*e, "PYTHONHOME=", 11))
            envp[n++] = *e;
    envp[n++] = arena_printf(a, "VIRTUAL_ENV=%s", p->venv);
    envp[n++] = arena_printf(a, "PATH=%s/bin:%s:" PYTHON_LAYER "/bin", p->venv,
                             service_env("PATH", "/usr/local/bin:/usr/bin:/bin"));
    /* uv trusts only what it brings along, unless told: the machine may have authorities more */
    if (!getenv("SSL_CERT_FILE") && !access(CERTIFICATES, R_OK))
        envp[n++] = arena_printf(a, "SSL_CERT_FILE=" CERTIFICATES);
    return envp;
}

const char *python_find_uv(const struct python *p, struct arena *a, struct err *err)
{
    AUTO(arena_free) struct arena scratch = { 0 };
    struct str rest = { 0 }, dir;
    const char *home = service_env("HOME", "/tmp");
    char *path;

    for (char **e = python_envp(p, &scratch); *e; e++)
        if (!strncmp(*e, "PATH=", 5))
            rest = str_of(*e + 5);
    while (str_next(&rest, ':', &dir)) {
        path = arena_printf(a, "%.*s/uv", STR_ARG(dir));
        if (dir.n && is_program(path))
            return path;
    }
    path = arena_printf(a, "%s/.local/bin/uv", home);
    if (is_program(path))
        return path;
    err_set(err, ERR_UNAVAILABLE,
            "packages are installed with uv, and there is none in this sandbox: type "
            "`" PYTHON_COMMAND "` on the machine that runs Cove, or put uv into the template");
    return NULL;
}

bool python_has(const struct python *p, const char *module)
{
    AUTO(arena_free) struct arena a = { 0 };
    const char *const dirs[] = {
        arena_printf(&a, "%s/lib/python%s/site-packages", p->venv, p->version), p->packages,
        arena_printf(&a, "/usr/local/lib/python%s/site-packages", p->version),
        arena_printf(&a, "/usr/local/lib/python%s/dist-packages", p->version),
        "/usr/lib/python3/dist-packages"
    };

    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (dirs[i] && !access(arena_printf(&a, "%s/%s", dirs[i], module), F_OK))
            return true;
    return false;
}
