/* guest_rig.h - a whole guest in this process, asked in bytes over socket pairs, right or wrong.
 * refused() is what every answer to bad input must look like. Each test program uses a part of it.
 *
 * After each case the guest still serves, and as many descriptors are open as before. */
#ifndef TESTS_GUEST_RIG_H
#define TESTS_GUEST_RIG_H

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "guest/auth.h"
#include "net.h"

#define UNUSED     __attribute__((unused))
#define PLAIN      "Content-Type: application/json\r\n"
#define STREAM     "Content-Type: application/connect+json\r\n"
#define OCTET      "Content-Type: application/octet-stream\r\n"
#define CHUNKED    "Transfer-Encoding: chunked\r\n"
#define NEVER_MADE "/tmp/cove-never-made" /* no refused request may leave it behind */
#define START      "/process.Process/Start"
#define CONNECT    "/process.Process/Connect"
#define INPUT      "/process.Process/StreamInput"
#define STAT       "/filesystem.Filesystem/Stat"
#define WATCH      "/filesystem.Filesystem/WatchDir"

enum kind { KIND_REST, KIND_UNARY, KIND_STREAM };

static const struct route *const rig_tables[] = { process_routes,    system_routes, files_routes,
                                                  filesystem_routes, watch_routes,  NULL };
static struct guest rig_guest = { .root = -1,
                                  .processes = LIST_INIT(rig_guest.processes),
                                  .watchers = LIST_INIT(rig_guest.watchers) };
static struct httpd rig_server = {
    .tables = rig_tables, .ctx = &rig_guest, .before = auth_before, .cors = true
};

/* ---- one connection ---- */

static struct { /* the answer heard last */
    int status;
    struct buf head, body;
} said;

static struct {
    int fd;
    struct buf in; /* heard and not yet taken */
} peer = { .fd = -1 };

static void hang_up(void)
{
    co_close(peer.fd);
    peer.fd = -1;
    peer.in.len = 0;
}

static void dial(void)
{
    int fd[2];

    if (peer.fd >= 0)
        hang_up();
    net_pair(fd);
    CHECK_INT(httpd_serve(&rig_server, fd[0]), 0);
    peer.fd = fd[1];
}

/* The guest may have answered and left before it has heard all. */
static void say(struct str bytes)
{
    if (co_write(peer.fd, bytes.p, bytes.n, co_in(NET_MS)) && errno != EPIPE && errno != ECONNRESET)
        test_fail(__FILE__, __LINE__, "nobody listens: %s", strerror(errno));
}

static void fill(size_t size)
{
    while (peer.in.len < size) {
        ssize_t r;

        buf_reserve(&peer.in, 65536);
        r = co_read(peer.fd, peer.in.data + peer.in.len, 65536, co_in(NET_MS));
        if (r <= 0)
            test_fail(__FILE__, __LINE__, "the guest closed after \"%s\"", buf_cstr(&peer.in));
        peer.in.len += (size_t)r;
        peer.in.data[peer.in.len] = 0;
    }
}

static void take(size_t size, struct buf *out)
{
    fill(size);
    buf_add(out, peer.in.data, size);
    buf_drop(&peer.in, size);
}

/* Up to and with the next `end`. */
static void take_until(const char *end, struct buf *out)
{
    while (!peer.in.len || !memmem(peer.in.data, peer.in.len, end, strlen(end)))
        fill(peer.in.len + 1);
    take((size_t)((char *)memmem(peer.in.data, peer.in.len, end, strlen(end)) - peer.in.data) +
             strlen(end),
         out);
}

/* The value of a header of the answer; NULL: it has none. */
static const char *header(const char *name)
{
    static char value[512];
    AUTO(buf_free) struct buf line = { 0 };
    const char *at;

    buf_printf(&line, "\r\n%s: ", name);
    at = strcasestr(buf_cstr(&said.head), line.data);
    if (!at)
        return NULL;
    at += line.len;
    snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, "\r"), at);
    return value;
}

static void take_chunks(void)
{
    for (;;) {
        AUTO(buf_free) struct buf line = { 0 };
        size_t size;

        take_until("\r\n", &line);
        size = strtoul(line.data, NULL, 16);
        line.len = 0;
        take(size, &said.body);
        take(2, &line);
        CHECK(!memcmp(line.data, "\r\n", 2));
        if (!size)
            return;
    }
}

/* One whole answer, as its framing says. */
static void hear(void)
{
    const char *length;

    said.head.len = said.body.len = 0;
    take_until("\r\n\r\n", &said.head);
    if (sscanf(said.head.data, "HTTP/1.1 %3d ", &said.status) != 1)
        test_fail(__FILE__, __LINE__, "this is no head: %s", said.head.data);
    if (said.status == 204)
        return;
    length = header("Transfer-Encoding");
    if (length && !strcmp(length, "chunked")) {
        take_chunks();
    } else {
        length = header("Content-Length");
        CHECK(length != NULL);
        take(strtoul(length, NULL, 10), &said.body);
    }
}

/* Does the guest end the connection, with nothing more said? */
UNUSED static void must_end(void)
{
    char c;
    ssize_t r;

    CHECK_INT(peer.in.len, 0);
    (void)shutdown(peer.fd, SHUT_WR);
    r = co_read(peer.fd, &c, 1, co_in(NET_MS));
    if (r > 0 || (r < 0 && errno != ECONNRESET))
        test_fail(__FILE__, __LINE__, "the connection goes on: %s", r ? strerror(errno) : "bytes");
}

static void ask(struct str bytes)
{
    dial();
    say(bytes);
    hear();
}

/* ---- the bytes of a request ---- */

UNUSED static void put_text(struct buf *b, const char *text, int times)
{
    for (int i = 0; i < times; i++)
        buf_puts(b, text);
}

/* headers: whole lines. The request has no body and no length. */
static void put_head(struct buf *b, const char *method, const char *target, const char *headers)
{
    buf_puts(b, method);
    buf_putc(b, ' ');
    buf_puts(b, target);
    buf_puts(b, " HTTP/1.1\r\nHost: guest\r\n");
    buf_puts(b, headers);
    buf_puts(b, "\r\n");
}

UNUSED static void put_request(struct buf *b, const char *target, const char *headers,
                               struct str body)
{
    AUTO(buf_free) struct buf lines = { 0 };

    buf_puts(&lines, headers);
    buf_printf(&lines, "Content-Length: %zu\r\n", body.n);
    put_head(b, "POST", target, lines.data);
    buf_add_str(b, body);
}

UNUSED static void put_chunks(struct buf *b, struct str body, size_t size)
{
    for (size_t at = 0; at < body.n; at += size) {
        size_t n = MIN(size, body.n - at);

        buf_printf(b, "%zx\r\n", n);
        buf_add(b, body.p + at, n);
        buf_puts(b, "\r\n");
    }
    buf_puts(b, "0\r\n\r\n");
}

UNUSED static void put_envelope(struct buf *b, int flags, uint32_t size, struct str payload)
{
    buf_putc(b, (char)flags);
    for (int shift = 24; shift >= 0; shift -= 8)
        buf_putc(b, (char)(size >> shift));
    buf_add_str(b, payload);
}

/* A message as its kind of route wants it: in an envelope, or as it is. */
UNUSED static void put_message(struct buf *b, enum kind kind, const char *target,
                               const char *headers, struct str message)
{
    AUTO(buf_free) struct buf body = { 0 }, lines = { 0 };

    buf_puts(&lines, kind == KIND_STREAM ? STREAM : PLAIN);
    buf_puts(&lines, headers);
    if (kind == KIND_STREAM)
        put_envelope(&body, 0, (uint32_t)message.n, message);
    else
        buf_add_str(&body, message);
    put_request(b, target, lines.data, buf_str(&body));
}

UNUSED static void ask_head(const char *method, const char *target, const char *headers)
{
    AUTO(buf_free) struct buf b = { 0 };

    put_head(&b, method, target, headers);
    ask(buf_str(&b));
}

UNUSED static void ask_with(const char *target, const char *headers, struct str body)
{
    AUTO(buf_free) struct buf b = { 0 };

    put_request(&b, target, headers, body);
    ask(buf_str(&b));
}

UNUSED static void ask_message(enum kind kind, const char *target, const char *headers,
                               const char *message)
{
    AUTO(buf_free) struct buf b = { 0 };

    put_message(&b, kind, target, headers, str_of(message));
    ask(buf_str(&b));
}

/* ---- what is a refusal ---- */

static int status_of(enum kind kind, const char *code)
{
    static const struct {
        const char *code;
        int status;
    } unary[] = { { "invalid_argument", 400 }, { "failed_precondition", 400 },
                  { "unauthenticated", 401 },  { "not_found", 404 },
                  { "already_exists", 409 },   { "resource_exhausted", 413 },
                  { "unimplemented", 501 },    { "deadline_exceeded", 504 },
                  { "internal", 500 } };

    if (kind == KIND_REST)
        return (int)strtol(code, NULL, 10);
    for (size_t i = 0; kind == KIND_UNARY && i < ARRAY_LEN(unary); i++)
        if (!strcmp(unary[i].code, code))
            return unary[i].status;
    return 200;
}

/* The error in the last envelope of a stream that told nothing else; or the body itself. */
static json_t *error_told(enum kind kind)
{
    struct str text = buf_str(&said.body);
    struct err err = { 0 };
    json_t *j;

    if (kind == KIND_STREAM) {
        CHECK(text.n > 5 && text.p[0] == 2);
        CHECK_INT((uint32_t)(unsigned char)text.p[1] << 24 |
                      (uint32_t)(unsigned char)text.p[2] << 16 |
                      (uint32_t)(unsigned char)text.p[3] << 8 | (unsigned char)text.p[4],
                  text.n - 5);
        text = (struct str){ text.p + 5, text.n - 5 };
    }
    j = json_read(text, &err);
    if (!j)
        test_fail(__FILE__, __LINE__, "%s: %.*s", err.msg, STR_ARG(text));
    if (kind == KIND_STREAM) {
        json_t *inner = json_incref(json_object_get(j, "error"));

        json_decref(j);
        j = inner;
    }
    return j;
}

static bool has_word(const char *text)
{
    int n = 0;

    for (; *text && n < 3; text++)
        n = isalnum((unsigned char)*text) || *text == '_' ? n + 1 : 0;
    return n == 3;
}

/* Is the answer the refusal it must be? code is a status for REST, Connect's name for the others;
 * each word of the list, which NULL ends, is in the message. Returns the message. */
static const char *refused_with(enum kind kind, const char *code, const char *const *words)
{
    static char message[8192];
    AUTO(json_dropp) json_t *e = NULL;
    const json_t *c;
    char told[64];

    if (said.status != status_of(kind, code))
        test_fail(__FILE__, __LINE__, "%s became %d: %s", code, said.status, buf_cstr(&said.body));
    CHECK_STR(header("Content-Type"),
              kind == KIND_STREAM ? "application/connect+json" : "application/json");
    e = error_told(kind);
    CHECK_INT(json_object_size(e), 2);
    c = json_object_get(e, "code");
    snprintf(told, sizeof(told), "%lld", (long long)json_integer_value(c));
    CHECK_STR(kind == KIND_REST ? told : json_string_value(c), code);
    CHECK(json_string_value(json_object_get(e, "message")) != NULL);
    snprintf(message, sizeof(message), "%s", json_string_value(json_object_get(e, "message")));
    for (; *words; words++)
        if (!strstr(message, *words))
            test_fail(__FILE__, __LINE__, "\"%s\" is not in \"%s\"", *words, message);
    CHECK(has_word(message));
    return message;
}

#define REFUSED(kind, code, ...)                                                                   \
    refused_with(kind, code, (const char *const[]){ __VA_ARGS__ __VA_OPT__(, ) NULL })

/* ---- the frame of a case ---- */

static char folder[32]; /* an empty directory for each case */

static int entries_of(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    CHECK(d != NULL);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void empty_folder(void)
{
    char command[64];

    if (!*folder)
        return;
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    CHECK_INT(system(command), 0); // NOLINT(cert-env33-c): a line of our own
    *folder = 0;
}

UNUSED static void make_folder(void)
{
    snprintf(folder, sizeof(folder), "/tmp/cove-guest-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
}

struct rig_case {
    void (*fn)(const void *row, const void *other);
    const void *row, *other;
};

static void rig_frame(void *arg)
{
    const struct rig_case *c = arg;

    c->fn(c->row, c->other);
    ask_head("GET", "/health", "");
    CHECK_INT(said.status, 204);
    hang_up();
}

static void in_guest(void (*fn)(const void *row, const void *other), const void *row,
                     const void *other)
{
    struct rig_case c = { fn, row, other };
    int open_before;

    if (rig_guest.root < 0) {
        log_set_level("off");
        rig_guest.root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        rig_guest.privileged = geteuid() == 0;
        rig_guest.default_user = user_default(&rig_guest);
    }
    open_before = entries_of("/proc/self/fd");
    test_co(rig_frame, &c);
    CHECK_INT(rig_server.conns, 0);
    for (int i = 0; i < 1000 && entries_of("/proc/self/fd") != open_before; i++)
        usleep(5000); /* a thread may close its own after it has ended for co_run() */
    CHECK_INT(entries_of("/proc/self/fd"), open_before);
    CHECK(access(NEVER_MADE, F_OK));
    empty_folder();
}

/* TEST_ROWS() whose body asks the guest. */
#define GUEST_ROWS(case_name, rows, others)                                                        \
    static void case_name##_asks(__attribute__((unused)) const typeof(*(rows)) *row,               \
                                 __attribute__((unused)) const typeof(*(others)) *other);          \
    static void case_name##_run(const void *row, const void *other)                                \
    {                                                                                              \
        case_name##_asks(row, other);                                                              \
    }                                                                                              \
    TEST_ROWS(case_name, rows, others) { in_guest(case_name##_run, row, other); }                  \
    static void case_name##_asks(__attribute__((unused)) const typeof(*(rows)) *row,               \
                                 __attribute__((unused)) const typeof(*(others)) *other)
#define GUEST_TEST(case_name) GUEST_ROWS(case_name, test_once, test_once)

#endif
