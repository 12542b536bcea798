/* refuse.c - see refuse.h. The body has the keys that clients of FastAPI (detail), of Jupyter
 * (message, reason) and of E2B (code, message) look for: nobody here knows yet who is asking. */
#include "guest/services/refuse.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/conn.h"

enum { AT_ONCE = 64, LINGER_MS = 1000 };

void refuse_write(struct buf *out, const char *service, const char *why)
{
    AUTO(buf_free) struct buf json = { 0 }, text = { 0 };

    buf_printf(&text, "service %s is not available: %s", service, why);
    json_open(&json, '{');
    json_kv_int(&json, "code", 503);
    json_kv_str(&json, "message", buf_cstr(&text));
    json_kv_str(&json, "detail", buf_cstr(&text));
    json_kv_str(&json, "reason", "Service Unavailable");
    json_close(&json, '}');
    buf_printf(out,
               "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\nAccess-Control-Allow-Origin: *\r\nRetry-After: 1\r\n"
               "Connection: close\r\n\r\n%s",
               json.len, buf_cstr(&json));
}

struct refusal {
    int fd;
    struct buf text;
};

static void refuse_one(void *arg)
{
    struct refusal *r = arg;
    struct conn c;

    conn_init(&c, r->fd);
    if (!conn_put(&c, r->text.data, r->text.len, co_in(LINGER_MS)) &&
        !conn_flush(&c, co_in(LINGER_MS)))
        conn_linger(&c, co_in(LINGER_MS)); /* what it still sends must not turn into a reset */
    conn_finish(&c);
    buf_free(&r->text);
    free(r);
}

void refuse_waiting(const int listener[SERVICE_PORTS], const char *service, const char *why)
{
    for (int i = 0; i < SERVICE_PORTS; i++)
        for (int n = 0; listener[i] >= 0 && n < AT_ONCE; n++) {
            int fd = accept4(listener[i], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            struct refusal *r;

            if (fd < 0)
                break;
            r = xcalloc(1, sizeof(*r));
            r->fd = fd;
            refuse_write(&r->text, service, why);
            if (co_go(refuse_one, r, NULL)) {
                close(fd);
                buf_free(&r->text);
                free(r);
            }
        }
}
