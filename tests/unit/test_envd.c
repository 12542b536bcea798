/* test_envd.c - the client of guests: what it asks, and what it makes of answers, broken ones too.
 */
#include "provider/envd.h"

#include <signal.h>

#include "io/connect.h"
#include "rig.h"

static struct client client;
static struct rig rig;
static struct envd envd;
static struct buf asked, answer; /* of the last exchange */

/* ---- the guest ---- */

static void put_head(const char *status)
{
    answer.len = 0;
    buf_printf(&answer, "HTTP/1.1 %s\r\nConnection: close\r\n\r\n", status);
}

static void put_envelope(unsigned flags, const char *text)
{
    unsigned char head[CONNECT_HEADER];

    connect_encode_header(head, flags, (uint32_t)strlen(text));
    buf_add(&answer, head, sizeof(head));
    buf_puts(&answer, text);
}

/* One request, whose body is JSON, in an envelope or not; then the answer and the end. */
static void script(int fd, int nth)
{
    (void)nth;
    asked.len = 0;
    do {
        ssize_t r;

        buf_reserve(&asked, 64 << 10);
        r = co_read(fd, asked.data + asked.len, asked.cap - asked.len - 1, co_in(5000));
        CHECK(r > 0);
        asked.len += (size_t)r;
        asked.data[asked.len] = 0;
    } while (!strstr(asked.data, "\r\n\r\n") || asked.data[asked.len - 1] != '}');
    CHECK_INT(co_write(fd, answer.data, answer.len, co_in(5000)), 0);
}

static const char *asked_body(void)
{
    const char *body = strstr(asked.data, "\r\n\r\n") + 4;

    return *body == '{' ? body : body + CONNECT_HEADER;
}

static void frame(void *arg)
{
    void (**fn)(void) = arg;

    client_init(&client);
    rig = (struct rig){ .script = script };
    rig_start(&rig);
    envd = (struct envd){ .client = &client, .to = { .addr = &rig.addr } };
    (*fn)();
    client_finish(&client);
    buf_free(&asked);
    buf_free(&answer);
    co_cancel_all();
}

static void run(void (*fn)(void)) { test_co(frame, (void *)&fn); }

static struct envd_stream *start(struct err *err)
{
    char *args[] = { (char[]){ "-c" }, (char[]){ "echo \"x\"" }, NULL };
    struct envd_env env[] = { { "A", "1" }, { "B", "x=y" } };
    struct envd_command c = { .cmd = "sh",
                              .args = args,
                              .env = env,
                              .nenv = 2,
                              .cwd = "/tmp",
                              .user = "user",
                              .stdin_open = true };

    *err = (struct err){ 0 };
    return envd_start(&envd, &c, err);
}

/* ---- cases ---- */

static void follow(void)
{
    struct err err;
    struct envd_event e;
    struct envd_stream *s;

    put_head("200 OK");
    put_envelope(0, "{\"event\":{\"start\":{\"pid\":42},\"offset\":\"0\"}}");
    put_envelope(0, "{\"event\":{\"data\":{\"stdout\":\"aGVsbG8=\"}}}");
    put_envelope(0, "{\"event\":{\"keepalive\":{}}}");
    put_envelope(0, "{\"event\":{\"data\":{\"stderr\":\"AAH/\"}}}");
    put_envelope(0, "{\"event\":{\"something\":{\"newer\":1}}}");
    put_envelope(0, "{\"event\":{\"lost\":{\"bytes\":\"7\"}}}");
    put_envelope(0, "{\"event\":{\"data\":{\"pty\":\"cA==\"}}}");
    put_envelope(
        0, "{\"event\":{\"end\":{\"exitCode\":3,\"exited\":true,\"status\":\"exit status 3\"}}}");
    put_envelope(CONNECT_END, "{}");
    s = start(&err);
    CHECK(s);
    CHECK_INT(envd_next(s, &e, &err), 1);
    CHECK(e.kind == ENVD_START && e.pid == 42);
    CHECK_INT(envd_next(s, &e, &err), 1);
    CHECK(e.kind == ENVD_STDOUT && str_is(e.data, "hello"));
    CHECK_INT(envd_next(s, &e, &err), 1);
    CHECK(e.kind == ENVD_STDERR && e.data.n == 3 && !memcmp(e.data.p, "\0\1\377", 3));
    CHECK_INT(envd_next(s, &e, &err), 1);
    CHECK(e.kind == ENVD_LOST && e.lost == 7);
    CHECK_INT(envd_next(s, &e, &err), 1);
    CHECK(e.kind == ENVD_PTY && str_is(e.data, "p"));
    CHECK_INT(envd_next(s, &e, &err), 1);
    CHECK(e.kind == ENVD_END && e.exited && e.exit_code == 3 && str_is(e.status, "exit status 3"));
    CHECK_INT(envd_next(s, &e, &err), 0);
    CHECK_INT(envd_next(s, &e, &err), 0); /* and stays ended */
    envd_close(s);
    CHECK(strstr(asked.data, "POST /process.Process/Start HTTP/1.1\r\n"));
    CHECK(strstr(asked.data, "application/connect+json"));
    CHECK(strstr(asked.data, "Authorization: Basic dXNlcjo=\r\n"));
    CHECK_STR(asked_body(),
              "{\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"echo \\\"x\\\"\"],"
              "\"envs\":{\"A\":\"1\",\"B\":\"x=y\"},\"cwd\":\"/tmp\"},\"stdin\":true}");
}

TEST(a_command_is_started_and_followed_to_its_end) { run(follow); }

static void refusals(void)
{
    struct err err;
    struct envd_event e;
    struct envd_stream *s;

    put_head("404 Not Found");
    buf_puts(&answer, "{\"code\":\"not_found\",\"message\":\"there is no user 'x'\"}");
    CHECK(!start(&err));
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_STR(err.msg, "there is no user 'x'");

    put_head("500 Oops");
    buf_puts(&answer, "<html>not JSON</html>");
    CHECK(!start(&err));
    CHECK_INT(err.code, ERR_UPSTREAM);
    CHECK_STR(err.msg, "the guest refused without a reason");

    put_head("200 OK"); /* a stream may say it in its end */
    put_envelope(CONNECT_END,
                 "{\"error\":{\"code\":\"invalid_argument\",\"message\":\"no such program\"}}");
    s = start(&err);
    CHECK(s);
    CHECK_INT(envd_next(s, &e, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK_STR(err.msg, "no such program");
    envd_close(s);
}

TEST(a_refusal_has_the_guests_words_and_code) { run(refusals); }

static void expect_broken(void)
{
    struct err err;
    struct envd_event e;
    struct envd_stream *s = start(&err);
    int r = 1;

    CHECK(s);
    while (r > 0)
        r = envd_next(s, &e, &err);
    CHECK_INT(r, -1);
    CHECK(err.code != ERR_NONE && *err.msg);
    envd_close(s);
}

static void broken(void)
{
    static const char *const events[] = {
        "",
        "[]",
        "{\"event\":5}",
        "{\"event\":{\"start\":{\"pid\":\"x\"}}}",
        "{\"event\":{\"start\":{\"pid\":99999999999}}}",
        "{\"event\":{\"data\":{\"stdout\":\"not base64!\"}}}",
        "{\"event\":{\"end\":{\"exitCode\":1e99}}}",
        "{\"event\":{\"end\":{\"signal\":65}}}",
        "{\"event\":{\"end\":{\"signal\":-1}}}",
        "{",
    };

    for (size_t i = 0; i < ARRAY_LEN(events); i++) {
        put_head("200 OK");
        put_envelope(0, events[i]);
        put_envelope(CONNECT_END, "{}");
        expect_broken();
    }
    put_head("200 OK"); /* the end of the stream in the middle of an envelope */
    buf_add(&answer, "\0\0\0\0\x20{\"event\"", 13);
    expect_broken();
    put_head("200 OK"); /* an envelope that is beyond every bound */
    buf_add(&answer, "\0\xff\xff\xff\xff{}", 7);
    expect_broken();
    put_head("200 OK"); /* unknown flags */
    buf_add(&answer, "\x40\0\0\0\2{}", 7);
    expect_broken();
    put_head("200 OK");
    put_envelope(CONNECT_END, "nonsense");
    expect_broken();
}

TEST(what_makes_no_sense_is_an_error_and_nothing_worse) { run(broken); }

static void silence(void)
{
    struct err err;
    struct envd_event e;
    struct envd_stream *s;

    put_head("200 OK");
    put_envelope(0, "{\"event\":{\"start\":{\"pid\":1}}}");
    put_envelope(0, "{}");
    put_envelope(0, "{\"event\":{}}");
    s = start(&err);
    CHECK(s);
    CHECK_INT(envd_next(s, &e, &err), 1);
    CHECK_INT(envd_next(s, &e, &err), 0); /* ended without a word: the caller knows no end event */
    envd_close(s);
}

TEST(a_stream_that_just_stops_is_an_end_without_an_end_event) { run(silence); }

static void calls(void)
{
    struct err err = { 0 };

    put_head("200 OK");
    buf_puts(&answer, "{}");
    CHECK_INT(envd_input(&envd, 7, false, "a\0b", 3, &err), 0);
    CHECK(strstr(asked.data, "POST /process.Process/SendInput HTTP/1.1\r\n"));
    CHECK_STR(asked_body(), "{\"process\":{\"pid\":7},\"input\":{\"stdin\":\"YQBi\"}}");
    CHECK_INT(envd_input(&envd, 7, true, "", 0, &err), 0);
    CHECK_STR(asked_body(), "{\"process\":{\"pid\":7},\"input\":{\"pty\":\"\"}}");
    CHECK_INT(envd_end_input(&envd, 7, &err), 0);
    CHECK(strstr(asked.data, "POST /process.Process/CloseStdin HTTP/1.1\r\n"));
    CHECK_INT(envd_resize(&envd, 7, 80, 24, &err), 0);
    CHECK_STR(asked_body(),
              "{\"process\":{\"pid\":7},\"pty\":{\"size\":{\"cols\":80,\"rows\":24}}}");
    CHECK_INT(envd_signal(&envd, 7, SIGUSR1, &err), 0);
    CHECK_STR(asked_body(), "{\"process\":{\"pid\":7},\"signal\":\"SIGNAL_SIGUSR1\"}");

    put_head("404 Not Found");
    buf_puts(&answer, "{\"code\":\"not_found\",\"message\":\"no process 7\"}");
    CHECK_INT(envd_signal(&envd, 7, SIGTERM, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_STR(err.msg, "no process 7");
}

TEST(input_size_and_signals_are_calls_of_their_own) { run(calls); }

static void token(void)
{
    struct err err = { 0 };

    envd.token = "secret";
    put_head("200 OK");
    buf_puts(&answer, "{}");
    CHECK_INT(envd_end_input(&envd, 7, &err), 0);
    CHECK(strstr(asked.data, "X-Access-Token: secret\r\n"));
}

TEST(a_token_goes_along) { run(token); }

static void nobody(void)
{
    struct err err;

    put_head("200 OK");
    co_close(rig.listener);
    rig.listener = -1;
    CHECK(!start(&err));
    CHECK(err.code == ERR_UNAVAILABLE || err.code == ERR_UPSTREAM || err.code == ERR_GONE);
}

TEST(nobody_there_is_an_error) { run(nobody); }
