/* test_err.c - error sentences and the table of codes. */
#include "base/err.h"

#include <errno.h>
#include <stdbool.h>

#include "test.h"

TEST(an_error_carries_a_code_and_a_sentence)
{
    struct err err = { 0 };

    CHECK_INT(err_set(&err, ERR_CONFLICT, "sandbox %s is %d", "s1", 3), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK_STR(err.msg, "sandbox s1 is 3");
}

TEST(context_goes_in_front_and_the_code_stays)
{
    struct err err = { 0 };

    err_set(&err, ERR_NO_SPACE, "mount overlay");
    CHECK_INT(err_in(&err, "image %s", "base"), -1);
    CHECK_INT(err_in(&err, "create"), -1);
    CHECK_STR(err.msg, "create: image base: mount overlay");
    CHECK_INT(err.code, ERR_NO_SPACE);
}

TEST(what_is_said_of_this_machine_is_marked)
{
    struct err err = { 0 };

    errno = EACCES;
    err_sys(&err, "open %s", "/x");
    CHECK(err.host);
    err_in(&err, "create");
    CHECK(err.host);
    err_set(&err, ERR_INVALID, "the name is wrong");
    CHECK(!err.host);
    err_set_host(&err, ERR_NO_SPACE, "%s", "/x: no space");
    CHECK(err.host);
}

static bool is_srv(const void *arg, struct str path)
{
    (void)arg;
    return str_starts(path, "/srv/");
}

static const struct path_row {
    const char *name, *msg, *want;
} paths[] = {
    { "none", "the sandbox is paused", "the sandbox is paused" },
    { "at the beginning", "/var/lib/cove/serve/cove.db: no space is left for it",
      "a file of the server: no space is left for it" },
    { "in the middle", "open /run/cove/x.sock: Permission denied",
      "open a file of the server: Permission denied" },
    { "at the end", "no keeper runs in /run/cove/abcd", "no keeper runs in a file of the server" },
    { "in quotes", "template '/srv2/x' (of \"/y\") [/z], /a; k=/b",
      "template 'a file of the server' (of \"a file of the server\") [a file of the server], "
      "a file of the server; k=a file of the server" },
    { "a socket", "connect unix:/run/x: refused", "connect unix:a file of the server: refused" },
    { "one that was the caller's", "mount /srv/data/x: Not a directory, in /run/x.",
      "mount /srv/data/x: Not a directory, in a file of the server." },
    { "no path", "5 / 3 of 10 MiB/s at http://h/p, //h, and/or",
      "5 / 3 of 10 MiB/s at http://h/p, //h, and/or" },
    { "the last one", "/", "/" },
};

TEST_ROWS(paths_are_hidden, paths, test_once)
{
    char out[256], tight[8];

    err_hide_paths(row->msg, is_srv, NULL, out, sizeof(out));
    CHECK_STR(out, row->want);
    memset(tight, 'x', sizeof(tight));
    err_hide_paths(row->msg, NULL, NULL, tight, sizeof(tight));
    CHECK(memchr(tight, 0, sizeof(tight)));
}

TEST(a_reason_stays_with_its_error_and_with_no_other)
{
    struct err err = { 0 };

    err_set(&err, ERR_NOT_FOUND, "no sandbox s1");
    CHECK_INT(err.reason, ERR_REASON_NONE);
    err.reason = ERR_NO_SANDBOX;
    err_in(&err, "resume");
    CHECK_INT(err.reason, ERR_NO_SANDBOX);
    errno = ENOENT;
    err_sys(&err, "open /x");
    CHECK_INT(err.reason, ERR_REASON_NONE);
    err.reason = ERR_NO_SANDBOX;
    err_set(&err, ERR_NOT_FOUND, "no file /x");
    CHECK_INT(err.reason, ERR_REASON_NONE);
}

TEST(a_system_error_says_what_errno_means)
{
    struct err err = { 0 };

    errno = ENOENT;
    CHECK_INT(err_sys(&err, "open %s", "/x"), -1);
    CHECK_STR(err.msg, "open /x: No such file or directory");
    CHECK_INT(err.code, ERR_NOT_FOUND);
    errno = 99999;
    err_sys(&err, "open");
    CHECK_STR(err.msg, "open: error 99999");
    CHECK_INT(err.code, ERR_INTERNAL);
}

TEST(a_long_sentence_is_cut_and_never_overruns)
{
    struct {
        struct err err;
        char guard[64];
    } e;
    char text[1000];

    memset(&e, 'g', sizeof(e));
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    err_set(&e.err, ERR_INVALID, "%s", text);
    CHECK_INT(strlen(e.err.msg), sizeof(e.err.msg) - 1);
    err_in(&e.err, "context");
    CHECK(!strncmp(e.err.msg, "context: xxx", 12));
    CHECK_INT(strlen(e.err.msg), sizeof(e.err.msg) - 1);
    err_in(&e.err, "%s", text);
    CHECK_INT(strlen(e.err.msg), sizeof(e.err.msg) - 1);
    errno = EIO;
    err_sys(&e.err, "%s", text);
    CHECK_INT(strlen(e.err.msg), sizeof(e.err.msg) - 1);
    for (size_t i = 0; i < sizeof(e.guard); i++)
        CHECK_INT(e.guard[i], 'g');
}

TEST(every_code_has_a_status_and_a_name_of_connect)
{
    static const char *const names[] = {
        "ok",
        "canceled",
        "unknown",
        "invalid_argument",
        "deadline_exceeded",
        "not_found",
        "already_exists",
        "permission_denied",
        "resource_exhausted",
        "failed_precondition",
        "aborted",
        "out_of_range",
        "unimplemented",
        "internal",
        "unavailable",
        "data_loss",
        "unauthenticated",
    };

    for (int code = 0; code < ERR_CODES; code++) {
        const char *name = err_name((enum err_code)code);
        int status = err_status((enum err_code)code);
        bool known = false;

        CHECK(name != NULL);
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            known |= !strcmp(names[i], name);
        if (!known)
            test_fail(__FILE__, __LINE__, "code %d has the name '%s'", code, name);
        if (code ? status < 400 || status > 599 : status != 200)
            test_fail(__FILE__, __LINE__, "code %d (%s) has the status %d", code, name, status);
    }
}

TEST(the_statuses_are_those_the_header_promises)
{
    static const struct {
        enum err_code code;
        int status;
    } want[] = {
        { ERR_INVALID, 400 },     { ERR_UNAUTHENTICATED, 401 }, { ERR_DENIED, 403 },
        { ERR_NOT_FOUND, 404 },   { ERR_METHOD, 405 },          { ERR_NOT_ACCEPTABLE, 406 },
        { ERR_CONFLICT, 409 },    { ERR_PRECONDITION, 400 },    { ERR_TOO_LARGE, 413 },
        { ERR_LIMIT, 429 },       { ERR_HEADERS, 431 },         { ERR_TIMEOUT, 504 },
        { ERR_UNSUPPORTED, 501 }, { ERR_UPSTREAM, 502 },        { ERR_UNAVAILABLE, 503 },
        { ERR_NO_SPACE, 507 },    { ERR_UNKNOWN, 500 },         { ERR_INTERNAL, 500 },
    };

    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        CHECK_INT(err_status(want[i].code), want[i].status);
    CHECK_STR(err_name(ERR_PRECONDITION), "failed_precondition");
    CHECK_STR(err_name(ERR_LIMIT), "resource_exhausted");
    CHECK_STR(err_name(ERR_UNKNOWN), "unknown");
}

TEST(errno_becomes_the_code_a_client_can_act_on)
{
    static const struct {
        int error;
        enum err_code code;
    } want[] = {
        { ENOENT, ERR_NOT_FOUND },    { EACCES, ERR_DENIED },      { EEXIST, ERR_CONFLICT },
        { EADDRINUSE, ERR_CONFLICT }, { ENOTEMPTY, ERR_CONFLICT }, { EINVAL, ERR_INVALID },
        { ENOTDIR, ERR_INVALID },     { EISDIR, ERR_INVALID },     { ENOSPC, ERR_NO_SPACE },
        { EDQUOT, ERR_NO_SPACE },     { EMFILE, ERR_LIMIT },       { ETIMEDOUT, ERR_TIMEOUT },
        { ECANCELED, ERR_GONE },      { EPIPE, ERR_GONE },         { ECONNREFUSED, ERR_UPSTREAM },
        { ENOSYS, ERR_UNSUPPORTED },  { EFBIG, ERR_TOO_LARGE },    { EIO, ERR_INTERNAL },
        { 0, ERR_INTERNAL },
    };

    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        CHECK_INT(err_from_errno(want[i].error), want[i].code);
}
