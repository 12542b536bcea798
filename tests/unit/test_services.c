/* test_services.c - the parts of the services that need no service: requests checked, refusals
 * worded, logs bounded, programs run and their output kept. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "guest/services/capture.h"
#include "guest/services/environment.h"
#include "guest/services/lend.h"
#include "guest/services/logfile.h"
#include "guest/services/python.h"
#include "guest/services/refuse.h"
#include "guest/services/rest.h"
#include "guest/services/rest_code.h"
#include "guest/services/rest_request.h"
#include "io/http.h"
#include "test.h"

/* ---- requests ---- */

static struct arena arena;

static const char *wrong(const char *body)
{
    static struct buf b;
    struct code_request rq = { 0 };

    b.len = 0;
    return rest_request_code(str_of(body), &arena, &rq, &b) ? buf_cstr(&b) : "right";
}

TEST(code_is_required_and_a_string)
{
    CHECK_STR(wrong("{\"code\":\"x\"}"), "right");
    CHECK_STR(wrong("{\"code\":\"x\",\"packages\":null,\"more\":1}"), "right");
    CHECK_STR(wrong("{}"), "{\"detail\":[{\"type\":\"missing\",\"loc\":[\"body\",\"code\"],"
                           "\"msg\":\"Field required\",\"input\":null}]}");
    CHECK_STR(wrong("{\"code\":1}"),
              "{\"detail\":[{\"type\":\"string_type\",\"loc\":[\"body\",\"code\"],"
              "\"msg\":\"Input should be a valid string\",\"input\":null}]}");
    CHECK(strstr(wrong("{\"code\""), "json_invalid"));
    CHECK(strstr(wrong("[]"), "model_attributes_type"));
    CHECK(strstr(wrong(""), "\"loc\":[\"body\"],\"msg\":\"Field required\""));
}

TEST(packages_are_a_list_of_strings)
{
    struct code_request rq = { 0 };
    struct buf b = { 0 };

    CHECK_INT(
        rest_request_code(STR("{\"code\":\"\",\"packages\":[\"a\",\"b==1\"]}"), &arena, &rq, &b),
        0);
    CHECK_INT((int)rq.npackages, 2);
    CHECK_STR(rq.packages[1], "b==1");
    CHECK_INT((int)b.len, 0);
    CHECK(strstr(wrong("{\"code\":\"\",\"packages\":\"numpy\"}"), "list_type"));
    CHECK(strstr(wrong("{\"code\":\"\",\"packages\":[\"a\",7]}"), "[\"body\",\"packages\",1]"));
    CHECK(strstr(wrong("{\"code\":\"\",\"packages\":[\"\"]}"), "value_error"));
    CHECK(strstr(wrong("{\"code\":\"\",\"packages\":[\"a\\u0000b\"]}"), "json_invalid"));
    buf_free(&b);
}

TEST(both_problems_are_told_at_once)
{
    const char *text = wrong("{\"packages\":3}");

    CHECK(strstr(text, "\"code\"") && strstr(text, "\"packages\""));
}

TEST(the_mode_of_a_recording_is_start_or_stop)
{
    struct buf b = { 0 };

    CHECK_INT(rest_request_mode(STR("start"), &b), 0);
    CHECK_INT(rest_request_mode((struct str){ 0 }, &b), -1);
    CHECK(strstr(b.data, "\"loc\":[\"query\",\"mode\"]") && strstr(b.data, "missing"));
    b.len = 0;
    CHECK_INT(rest_request_mode(STR("\xff"), &b), -1);
    CHECK(strstr(b.data, "'start' or 'stop'"));
    buf_free(&b);
}

TEST(the_document_is_json_with_five_operations_and_no_tags)
{
    struct err err;
    json_t *j = json_read(str_of(rest_openapi), &err);

    CHECK(j);
    CHECK_INT((int)json_object_size(json_object_get(j, "paths")), 5);
    CHECK(!strstr(rest_openapi, "\"tags\""));
    json_decref(j);
}

TEST(a_failed_install_names_the_packages_and_repeats_the_tools_words)
{
    char *names[] = { (char[]){ "a" }, (char[]){ "b" } };
    struct code_request rq = { .packages = names, .npackages = 2 };
    struct buf b = { 0 };

    rest_code_refusal(&b, &rq, STR("no such thing"));
    CHECK_STR(b.data, "{\"stdout\":\"\",\"stderr\":\"Failed to install packages: a, b\\nno such "
                      "thing\"}");
    buf_free(&b);
}

/* ---- refusals and logs ---- */

TEST(a_refusal_is_a_whole_answer)
{
    struct buf b = { 0 };
    struct http_head h;
    struct err err;
    ssize_t n;

    refuse_write(&b, "rest", "say \"cove\"\n");
    n = http_parse(b.data, b.len, HTTP_RESPONSE, &h, &err);
    CHECK(n > 0);
    CHECK_INT(h.status, 503);
    CHECK_INT((int)h.length, (int)(b.len - (size_t)n));
    CHECK(strstr(b.data, "service rest is not available: say \\\"cove\\\""));
    buf_free(&b);
}

static int64_t size_of(int dir, const char *name)
{
    struct stat st;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) ? -1 : (int64_t)st.st_size;
}

TEST(a_log_is_bounded_and_keeps_one_older)
{
    char path[] = "/tmp/cove-log-XXXXXX", line[101];
    int dir = open(mkdtemp(path), O_RDONLY | O_DIRECTORY);
    int64_t before = service_limits.log_bytes;
    struct logfile *l;
    struct err err;

    memset(line, 'x', 100);
    line[99] = '\n';
    service_limits.log_bytes = 4096;
    l = logfile_open(dir, "a.log", &err);
    CHECK(l);
    for (int i = 0; i < 200; i++)
        logfile_write(l, (struct str){ line, 100 });
    logfile_close(l);
    CHECK(size_of(dir, "a.log") > 0 && size_of(dir, "a.log") <= 4096);
    CHECK(size_of(dir, "a.log.1") > 3900 && size_of(dir, "a.log.1") <= 4096);
    CHECK(!logfile_open(dir, "../b", &err));
    CHECK_INT(symlinkat("/nowhere", dir, "link.log"), 0);
    CHECK(!logfile_open(dir, "link.log", &err));
    CHECK_INT(mkfifoat(dir, "fifo.log", 0600), 0);
    CHECK(!logfile_open(dir, "fifo.log", &err));
    service_limits.log_bytes = before;
    for (const char *const *n =
             (const char *const[]){ "a.log", "a.log.1", "link.log", "fifo.log", NULL };
         *n; n++)
        unlinkat(dir, *n, 0);
    close(dir);
    CHECK_INT(rmdir(path), 0);
}

/* ---- programs ---- */

static char *environment[] = { (char[]){ "PATH=/usr/bin:/bin" }, NULL };

static int run_shell(struct capture *c, const char *script, struct err *err)
{
    char *argv[] = { (char[]){ "sh" }, (char[]){ "-c" }, xstrdup(script), NULL };
    int r;

    c->argv = argv;
    c->envp = environment;
    c->timeout_ms = c->timeout_ms ? c->timeout_ms : 20000;
    c->max = c->max ? c->max : 1 << 20;
    r = capture_run(c, err);
    free(argv[2]);
    return r;
}

static void streams_apart(void *arg)
{
    struct capture c = { 0 };
    struct err err = { 0 };

    (void)arg;
    CHECK_INT(run_shell(&c, "echo out; echo err >&2; exit 3", &err), 0);
    CHECK_STR(buf_cstr(&c.out), "out\n");
    CHECK_STR(buf_cstr(&c.log), "err\n");
    CHECK_INT(WEXITSTATUS(c.status), 3);
    CHECK(!capture_ok(&c) && !c.cut);
    capture_finish(&c);
}

static void bounded(void *arg)
{
    struct capture c = { .max = 1000 };
    struct err err = { 0 };

    (void)arg;
    CHECK_INT(run_shell(&c, "head -c 3000000 /dev/zero; echo done >&2", &err), 0);
    CHECK_INT((int)c.out.len, 1000);
    CHECK_STR(buf_cstr(&c.log), "done\n");
    CHECK(c.cut && capture_ok(&c));
    capture_finish(&c);
}

static void timed(void *arg)
{
    struct capture c = { .timeout_ms = 300 };
    struct err err = { 0 };

    (void)arg;
    CHECK_INT(run_shell(&c, "echo begun; sleep 600 & sleep 600", &err), 0);
    CHECK(c.timed_out);
    CHECK_STR(buf_cstr(&c.out), "begun\n");
    capture_finish(&c);
}

/* A child that holds the streams open does not hold us. */
static void outlived(void *arg)
{
    struct capture c = { 0 };
    struct err err = { 0 };

    (void)arg;
    CHECK_INT(run_shell(&c, "(trap '' HUP; sleep 3) & echo parent", &err), 0);
    CHECK_STR(buf_cstr(&c.out), "parent\n");
    capture_finish(&c);
}

static void missing(void *arg)
{
    char *argv[] = { (char[]){ "no-such-program" }, NULL };
    struct capture c = { .argv = argv, .envp = environment, .timeout_ms = 1000, .max = 10 };
    struct err err = { 0 };

    (void)arg;
    CHECK_INT(capture_run(&c, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
}

TEST(output_and_errors_of_a_program_are_kept_apart) { CHECK_INT(co_run(streams_apart, NULL), 0); }
TEST(output_beyond_the_bound_is_dropped_and_told) { CHECK_INT(co_run(bounded, NULL), 0); }
TEST(a_program_beyond_its_time_is_ended_with_its_children) { CHECK_INT(co_run(timed, NULL), 0); }
TEST(a_child_that_outlives_its_program_is_not_waited_for) { CHECK_INT(co_run(outlived, NULL), 0); }
TEST(a_program_that_is_not_there_is_told) { CHECK_INT(co_run(missing, NULL), 0); }

/* ---- Python ---- */

static char home[] = "/tmp/cove-home-XXXXXX";

static void make_python(void *arg)
{
    struct err err = { 0 };
    const struct python *p = python_prepare(&err);
    struct arena a = { 0 };

    (void)arg;
    if (!p) {
        printf("# skipped: %s\n", err.msg);
        return;
    }
    CHECK(str_starts(str_of(p->program), home));
    CHECK_INT(access(p->program, X_OK), 0);
    CHECK(p->version[0] == '3' && p->version[1] == '.');
    CHECK(!python_has(p, "no_such_module"));
    for (char **e = python_envp(p, &a); *e; e++)
        if (!strncmp(*e, "VIRTUAL_ENV=", 12))
            CHECK_STR(*e + 12, p->venv);
    CHECK(python_prepare(&err) == p);
    arena_free(&a);
}

TEST(an_environment_is_made_in_the_users_home)
{
    char command[64];

    CHECK(mkdtemp(home));
    setenv("HOME", home, 1);
    setenv("PATH", "/usr/bin:/bin", 1);
    unsetenv("VIRTUAL_ENV");
    unsetenv("COVE_PYTHON");
    CHECK_INT(co_run(make_python, NULL), 0);
    snprintf(command, sizeof(command), "rm -rf %s", home);
    CHECK_INT(system(command), 0); /* NOLINT(cert-env33-c): a name that we made */
}

/* ---- lending ports ---- */

static bool wants(const char *word, const char *name, const char *value)
{
    char *args[] = { xstrdup("x"), xstrdup(word) };
    struct map_item item = { xstrdup(name), xstrdup(value) };
    struct process_config c = { .args = { 2, args }, .envs = { 1, &item } };
    bool r = lend_wanted(&c, 8888);

    free(args[0]);
    free(args[1]);
    free(item.key);
    free(item.value);
    return r;
}

TEST(a_command_that_names_a_port_wants_it)
{
    static const char *const servers[] = {
        "8888",
        "--port=8888",
        "python3 -m http.server 8888",
        "--bind 0.0.0.0:8888",
        ":8888",
        "[::]:8888",
        "*:8888",
        "-p8888 -p 8888",
        "PORT=8888 npm start",
        "listen(8888)",
        "create_server((\"\", 8888))",
        "bind(('0.0.0.0', 8888))",
    };
    static const char *const others[] = {
        "",
        "18888",
        "88880",
        "http://localhost:8888/x",
        "curl localhost:8888",
        "127.0.0.1:8888",
        "host:8888/health",
        "10.8888",
        "v8888",
        "8888.5",
        "8888/tcp",
        "a10.0.0.0:8888",
        "</dev/tcp/127.0.0.1/8888",
        "nc -z localhost 8888",
        "telnet  ::1 8888",
        "connect((\"localhost\", 8888))",
        "Client('127.0.0.1',8888)",
        "888",
    };

    for (size_t i = 0; i < ARRAY_LEN(servers); i++)
        CHECK_STR(wants(servers[i], "A", "") ? servers[i] : "", servers[i]);
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        CHECK_STR(wants(others[i], "A", "") ? "wanted" : others[i], others[i]);
    CHECK(wants("", "PORT", "8888") && wants("", "APP_PORT", "8888"));
    CHECK(!wants("", "PORT", "88") && !wants("", "URL", "8888"));
}

/* ---- the environment ---- */

/* A service's descriptor 0, and the keeper's end of it. */
static int open_environment(int *saved)
{
    int pair[2];

    CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    *saved = fcntl(ENVIRONMENT_SOCKET, F_DUPFD_CLOEXEC, 10);
    CHECK_INT(dup2(pair[1], ENVIRONMENT_SOCKET), ENVIRONMENT_SOCKET);
    close(pair[1]);
    return pair[0];
}

static void close_environment(int keeper, int saved)
{
    close(keeper);
    close(ENVIRONMENT_SOCKET);
    if (saved >= 0) {
        dup2(saved, ENVIRONMENT_SOCKET);
        close(saved);
    }
}

TEST(a_new_environment_replaces_the_old_one_and_the_difference_is_known)
{
    static char a1[] = "A=1", b2[] = "B=2", a3[] = "A=3=3", empty[] = "E=", odd[] = "=odd",
                none[] = "none", *first[] = { a1, b2, NULL },
                *second[] = { a3, empty, odd, none, NULL };
    struct err err = { 0 };
    struct map set, gone;
    int saved, keeper = open_environment(&saved);
    struct environment *before;

    environment_refresh(); /* nothing has come: nothing happens */
    CHECK_INT(environment_send(keeper, first, &err), 0);
    environment_refresh();
    CHECK_STR(getenv("A"), "1");
    CHECK(!getenv("PATH")); /* all of it, not in addition */
    before = environment_now();
    CHECK(!environment_differs(before, &arena, &set, &gone));
    CHECK_INT(environment_send(keeper, first, &err), 0);
    CHECK_INT(environment_send(keeper, second, &err), 0); /* two at once: the last counts */
    environment_refresh();
    CHECK_STR(getenv("A"), "3=3");
    CHECK_STR(getenv("E"), "");
    CHECK(!getenv("B") && !getenv("none"));
    CHECK(environment_differs(before, &arena, &set, &gone));
    CHECK_INT(set.n, 2);
    CHECK_STR(map_get(&set, "A"), "3=3");
    CHECK_STR(map_get(&set, "E"), "");
    CHECK_INT(gone.n, 1);
    CHECK_STR(gone.items[0].key, "B");
    environment_put(before);
    close_environment(keeper, saved);
}

TEST(an_environment_larger_than_a_socket_arrives)
{
    enum { LARGE = 1 << 20 };
    AUTO(freep) char *large = xmalloc(LARGE + 8);
    char *envp[] = { large, NULL };
    struct err err = { 0 };
    int saved, keeper = open_environment(&saved);

    memset(large, 'x', LARGE + 7);
    memcpy(large, "L=", 2);
    large[LARGE + 7] = 0;
    CHECK_INT(environment_send(keeper, envp, &err), 0);
    environment_refresh();
    CHECK_INT(strlen(getenv("L")), LARGE + 5);
    close(keeper);
    environment_refresh(); /* the keeper has ended */
    close_environment(-1, saved);
}
