/* test_envd_files.c - files of a guest: what is asked, and what is made of answers of all kinds. */
#include "provider/envd_files.h"

#include "rig.h"

static struct client client;
static struct rig rig;
static struct envd envd;
static struct buf asked, answer; /* of the last exchange */
static struct arena arena;
static struct err err;

/* Reads one request up to a marker at its end, then answers. */
static const char *marker;

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
    } while (asked.len < strlen(marker) ||
             strcmp(asked.data + asked.len - strlen(marker), marker) != 0);
    CHECK_INT(co_write(fd, answer.data, answer.len, co_in(5000)), 0);
}

static void reply(const char *status, const char *body)
{
    answer.len = 0;
    buf_printf(&answer, "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s", status,
               strlen(body), body);
    err = (struct err){ 0 };
    marker = "}";
}

static void frame(void *arg)
{
    void (**fn)(void) = arg;

    client_init(&client);
    rig = (struct rig){ .script = script };
    rig_start(&rig);
    envd = (struct envd){ .client = &client,
                          .to = { .addr = &rig.addr },
                          .token = "secret",
                          .host = "cove.example",
                          .headers = "E2b-Sandbox-Id: i1\r\n" };
    (*fn)();
    client_finish(&client);
    buf_free(&asked);
    buf_free(&answer);
    arena_free(&arena);
    co_cancel_all();
}

static void run(void (*fn)(void)) { test_co(frame, (void *)&fn); }

/* ---- entries ---- */

static void kinds(void)
{
    struct envd_entries l;

    reply("200 OK",
          "{\"entries\":["
          "{\"name\":\"f\",\"type\":\"FILE_TYPE_FILE\",\"size\":\"7\",\"mode\":420},"
          "{\"name\":\"d\",\"type\":\"FILE_TYPE_DIRECTORY\",\"mode\":4095},"
          "{\"name\":\"l\",\"type\":\"FILE_TYPE_DIRECTORY\",\"isSymlink\":true,\"link\":\"../x\"},"
          "{\"name\":\"b\",\"type\":\"FILE_TYPE_SYMLINK\"},"
          "{\"name\":\"p\",\"type\":\"FILE_TYPE_FILE\",\"permissions\":\"prw-r--r--\"},"
          "{\"name\":\"u\",\"type\":\"FILE_TYPE_UNSPECIFIED\"},"
          "{\"later\":1}]}");
    CHECK_INT(envd_list(&envd, "root", "/x", &arena, &l, &err), 0);
    CHECK_INT(l.n, 7);
    CHECK(l.items[0].type == ENVD_FILE && l.items[0].size == 7 && l.items[0].mode == 0644);
    CHECK(l.items[1].type == ENVD_DIRECTORY && l.items[1].mode == 0777); /* no set-user-id */
    CHECK(l.items[2].type == ENVD_LINK && l.items[2].leads_to_dir);
    CHECK_STR(l.items[2].link, "../x");
    CHECK(l.items[3].type == ENVD_LINK && !l.items[3].leads_to_dir && !l.items[3].link);
    CHECK(l.items[4].type == ENVD_OTHER);
    CHECK(l.items[5].type == ENVD_OTHER);
    CHECK_STR(l.items[6].name, "");
    CHECK(strstr(asked.data, "POST /filesystem.Filesystem/ListDir HTTP/1.1\r\n"));
    CHECK(strstr(asked.data, "Host: cove.example\r\n"));
    CHECK(strstr(asked.data, "E2b-Sandbox-Id: i1\r\n"));
    CHECK(strstr(asked.data, "X-Access-Token: secret\r\n"));
    CHECK(strstr(asked.data, "{\"path\":\"/x\",\"depth\":1}"));
}

TEST(entries_are_of_four_kinds) { run(kinds); }

static void nonsense(void)
{
    static const char *const bad[] = { "",
                                       "[]",
                                       "{\"entry\":1}",
                                       "{}",
                                       "{\"entry\":{\"name\":1}}",
                                       "{\"entry\":{\"size\":-1}}",
                                       "{\"entry\":{\"mode\":\"x\"}}" };
    struct envd_entry e;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        reply("200 OK", bad[i]);
        CHECK_INT(envd_stat(&envd, NULL, "/x", &arena, &e, &err), -1);
        CHECK_INT(err.code, ERR_UPSTREAM);
    }
}

TEST(an_answer_that_makes_no_sense_is_an_error) { run(nonsense); }

static void refusals(void)
{
    struct envd_entry e;

    reply("404 Not Found", "{\"code\":\"not_found\",\"message\":\"no such file\"}");
    CHECK_INT(envd_stat(&envd, NULL, "/x", &arena, &e, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    reply("409 Conflict", "{\"code\":\"already_exists\",\"message\":\"there is one\"}");
    CHECK_INT(envd_make_dir(&envd, NULL, "/x", &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    /* a router's: the code is a number */
    reply("502 Bad Gateway", "{\"code\":502,\"message\":\"The sandbox was not found\"}");
    CHECK_INT(envd_set_mode(&envd, NULL, "/x", 0700, &err), -1);
    CHECK_INT(err.code, ERR_UPSTREAM);
    CHECK_STR(err.msg, "The sandbox was not found");
    CHECK(strstr(asked.data, "{\"path\":\"/x\",\"mode\":448}"));
    reply("400 Bad Request", "{\"code\":\"invalid_argument\",\"message\":\"no\"}");
    CHECK_INT(envd_make_link(&envd, NULL, "/x", "a\"b", &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK(strstr(asked.data, "{\"path\":\"/x\",\"target\":\"a\\\"b\"}"));
}

TEST(a_refusal_keeps_its_sentence) { run(refusals); }

/* ---- contents ---- */

static void reading(void)
{
    AUTO(buf_free) struct buf got = { 0 };
    struct exchange *x;

    reply("200 OK", "content");
    marker = "\r\n\r\n";
    x = envd_read(&envd, "user", "/a b/\xc3\xa4?&=%.txt", &err);
    CHECK(x);
    CHECK_INT(http_body_read_all(&x->body, &got, &err), 0);
    CHECK_STR(got.data, "content");
    client_close(x);
    CHECK(strstr(asked.data,
                 "GET /files?path=/a%20b/%C3%A4%3F%26%3D%25.txt&username=user HTTP/1.1\r\n"));
    reply("404 Not Found", "{\"code\":404,\"message\":\"gone\"}");
    marker = "\r\n\r\n";
    CHECK(!envd_read(&envd, NULL, "x", &err));
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_STR(err.msg, "gone");
}

TEST(a_file_is_read_by_its_encoded_name) { run(reading); }

static void writing(void)
{
    struct exchange *x;

    reply("200 OK", "[{\"path\":\"/x\"}]");
    marker = "END";
    x = envd_write(&envd, NULL, "/x", 0640, 7, &err);
    CHECK(x);
    CHECK_INT(client_write(x, "dataEND", 7, &err), 0);
    CHECK_INT(envd_written(x, false, &err), 0);
    CHECK(strstr(asked.data, "POST /files?path=/x&mode=640 HTTP/1.1\r\n"));
    CHECK(strstr(asked.data, "Content-Length: 7\r\n"));
    reply("507 Insufficient Storage", "{\"code\":507,\"message\":\"the disk is full\"}");
    marker = "END\r\n0\r\n\r\n";
    x = envd_write(&envd, NULL, "/x", -1, CLIENT_CHUNKED, &err);
    CHECK(x);
    CHECK_INT(client_write(x, "END", 3, &err), 0);
    CHECK_INT(envd_written(x, false, &err), -1);
    CHECK_INT(err.code, ERR_NO_SPACE);
    CHECK_STR(err.msg, "the disk is full");
    CHECK(!strstr(asked.data, "mode="));
}

TEST(a_file_is_written_with_its_mode) { run(writing); }
