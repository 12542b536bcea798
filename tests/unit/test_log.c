/* test_log.c - structured lines. */
#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/json.h"
#include "test.h"

static const char *line(const char *msg, const struct log_kv *kv) /* behind the time */
{
    static struct buf b;
    const char *at;

    b.len = 0;
    log_render(&b, LOG_WARN, msg, kv);
    at = strstr(b.data, "level");
    return at ? at : "no level";
}

TEST(logfmt_quotes_only_what_needs_it)
{
    CHECK_INT(log_set_format("logfmt"), 0);
    CHECK_STR(line("ready", (struct log_kv[]){ KV("path", "/x/y"), KVI("n", -3), { 0 } }),
              "level=warn msg=ready path=/x/y n=-3\n");
    CHECK_STR(line("two words", (struct log_kv[]){ { 0 } }), "level=warn msg=\"two words\"\n");
    CHECK_STR(line("m", (struct log_kv[]){ KV("a", ""), KV("b", "x=y"), KV("c", NULL), { 0 } }),
              "level=warn msg=m a=\"\" b=\"x=y\" c=\"\"\n");
}

TEST(no_text_can_begin_a_line_of_its_own)
{
    CHECK_STR(line("m", (struct log_kv[]){ KV("a", "x\nlevel=error"), KV("q", "\"\\"), { 0 } }),
              "level=warn msg=m a=\"x\\nlevel=error\" q=\"\\\"\\\\\"\n");
    CHECK_STR(line("m", (struct log_kv[]){ KV("a", "\x1b[31m"), KV("b", "\xff"), { 0 } }),
              "level=warn msg=m a=\"\\u001b[31m\" b=\"\xef\xbf\xbd\"\n");
}

TEST(json_lines_are_json)
{
    struct buf b = { 0 };
    struct err err;
    AUTO(json_dropp) json_t *j = NULL;

    CHECK_INT(log_set_format("json"), 0);
    log_render(&b, LOG_ERROR, "it \"broke\"",
               (struct log_kv[]){ KV("k", "v\n"), KVI("n", INT64_MIN), { 0 } });
    log_set_format("logfmt");
    CHECK_INT(b.data[b.len - 1], '\n');
    j = json_read((struct str){ b.data, b.len - 1 }, &err);
    CHECK(j != NULL);
    CHECK_STR(json_string_value(json_object_get(j, "level")), "error");
    CHECK_STR(json_string_value(json_object_get(j, "msg")), "it \"broke\"");
    CHECK_STR(json_string_value(json_object_get(j, "k")), "v\n");
    CHECK(json_integer_value(json_object_get(j, "n")) == INT64_MIN);
    CHECK_INT(strlen(json_string_value(json_object_get(j, "time"))) >= 20, 1);
    buf_free(&b);
}

TEST(names_of_levels_and_formats_are_checked)
{
    CHECK_INT(log_set_level("debug"), 0);
    CHECK_INT(log_level, LOG_DEBUG);
    CHECK_INT(log_set_level("loud"), -1);
    CHECK_INT(log_set_level(""), -1);
    CHECK_INT(log_level, LOG_DEBUG);
    CHECK_INT(log_set_level("off"), 0);
    CHECK_INT(log_level, LOG_OFF);
    CHECK_INT(log_set_format("xml"), -1);
    CHECK_INT(log_format, LOG_LOGFMT);
    CHECK_INT(log_set_level("info"), 0);
}

/* What the log macros write to standard error while fn runs. */
static const char *captured(void (*fn)(void))
{
    static char text[2048];
    int saved = dup(STDERR_FILENO), p[2];
    ssize_t n;

    CHECK_INT(pipe2(p, O_CLOEXEC | O_NONBLOCK), 0);
    dup2(p[1], STDERR_FILENO);
    fn();
    dup2(saved, STDERR_FILENO);
    n = read(p[0], text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = 0;
    close(saved);
    close(p[0]);
    close(p[1]);
    return text;
}

static int evaluated;

static void write_some(void)
{
    log_debug("hidden", KVI("n", ++evaluated));
    log_info("plain");
    log_error("shown", KVI("n", ++evaluated));
}

TEST(lines_below_the_level_are_not_written_nor_their_values_made)
{
    const char *text;

    log_set_level("info");
    text = captured(write_some);
    CHECK(!strstr(text, "hidden"));
    CHECK(strstr(text, "level=info msg=plain\n") != NULL);
    CHECK(strstr(text, "level=error msg=shown n=1\n") != NULL);
    CHECK_INT(evaluated, 1);
    log_set_level("off");
    CHECK_STR(captured(write_some), "");
    log_set_level("info");
}
