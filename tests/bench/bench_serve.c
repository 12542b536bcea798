/* bench_serve.c - sandboxes over the API of a running server, as an SDK asks for them but without
 * an SDK's own cost: one kept connection per client, E2B's requests.
 *
 *   bench-serve PORT each COUNT PROGRAM    create, run, kill; one after the other, and a bare
 *                                              posix_spawn between them
 *   bench-serve PORT burst COUNT PROGRAM   COUNT at once, each having run; then all are ended
 *   bench-serve PORT flow COUNT PROGRAM    COUNT of them by CLIENTS clients without a pause
 *
 * each: "create" until the answer, "ran" until the command's end has arrived, "total" until the
 * answer to the kill. burst and flow: nanoseconds of the whole. PAUSE_MS in the environment: what
 * `each` waits between two, so that a pool can be filled again. */
#include "bench_guest.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>

enum { WARM_UP = 10, CLIENTS = 2, ANSWER = 16 << 10, ID = 64 };

static const char *key;
static in_port_t port;
static char *program;

struct box {
    int fd;
    char id[ID], token[ID];
};

static int dial(void)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
        die("connect: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
    return fd;
}

/* Sends and reads one answer with a Content-Length, or without a body. */
static void ask(int fd, const char *request, size_t size, const char *want, char answer[ANSWER])
{
    size_t n = 0, whole = 0;

    if (write(fd, request, size) != (ssize_t)size)
        die("write: %s", strerror(errno));
    while (!whole || n < whole) {
        ssize_t r = read(fd, answer + n, ANSWER - 1 - n);
        const char *body, *length;

        if (r <= 0)
            die("the server closed after %zu bytes", n);
        n += (size_t)r;
        answer[n] = 0;
        body = strstr(answer, "\r\n\r\n");
        if (whole || !body)
            continue;
        length = strcasestr(answer, "\r\ncontent-length:");
        whole = (size_t)(body + 4 - answer) +
                (length && length < body ? strtoul(length + 17, NULL, 10) : 0);
    }
    if (strncmp(answer + 9, want, 3) != 0)
        die("not %s: %.300s", want, answer);
}

static void take(const char *answer, const char *name, char out[ID])
{
    const char *p = strstr(answer, name);
    size_t n;

    if (!p)
        die("no %s in %.300s", name, answer);
    p = strchr(p + strlen(name), ':') + 1;
    p += strspn(p, " \"");
    n = strcspn(p, "\"");
    if (n >= ID)
        die("a long %s", name);
    memcpy(out, p, n);
    out[n] = 0;
}

static void create(struct box *b)
{
    static const char body[] = "{\"templateID\":\"base\",\"timeout\":300}";
    char request[512], answer[ANSWER];
    int n = snprintf(request, sizeof(request),
                     "POST /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\n"
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                     key, sizeof(body) - 1, body);

    ask(b->fd, request, (size_t)n, "201", answer);
    take(answer, "\"sandboxID\"", b->id);
    take(answer, "\"envdAccessToken\"", b->token);
}

/* The guest's request with the router's headers in front. */
static void run(const struct box *b)
{
    char plain[1024], request[1400];
    size_t size = build_request(plain, sizeof(plain), program);
    char *headers = memmem(plain, size, "Host:", 5);
    size_t first = (size_t)(headers - plain);
    int n = snprintf(request, sizeof(request),
                     "%.*sE2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: %s\r\n",
                     (int)first, plain, b->id, b->token);

    memcpy(request + n, headers, size - first);
    time_guest(b->fd, request, (size_t)n + size - first);
}

static void end(const struct box *b)
{
    char request[512], answer[ANSWER];
    int n = snprintf(request, sizeof(request),
                     "DELETE /sandboxes/%s HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\n\r\n",
                     b->id, key);

    ask(b->fd, request, (size_t)n, "204", answer);
}

static void each(int count)
{
    const char *pause = getenv("PAUSE_MS");
    useconds_t us = pause ? (useconds_t)strtoul(pause, NULL, 10) * 1000 : 0;
    posix_spawn_file_actions_t streams;
    struct box b = { .fd = dial() };

    open_null(&streams);
    for (int i = -WARM_UP; i < count; i++) {
        int64_t began = now_ns(), made, ran, gone, bare;

        create(&b);
        made = now_ns();
        run(&b);
        ran = now_ns();
        end(&b);
        gone = now_ns();
        usleep(us);
        bare = time_bare(program, &streams);
        if (i < 0)
            continue;
        sample("create", made - began);
        sample("ran", ran - began);
        sample("total", gone - began);
        sample("bare", bare);
    }
    close(b.fd);
}

static pthread_barrier_t ready, done;

static void *burst_one(void *arg)
{
    struct box *b = arg;

    pthread_barrier_wait(&ready);
    create(b);
    run(b);
    pthread_barrier_wait(&done);
    end(b);
    close(b->fd);
    return NULL;
}

static void burst(int count)
{
    struct box *boxes = calloc((size_t)count, sizeof(*boxes));
    pthread_t *threads = calloc((size_t)count, sizeof(*threads));
    int64_t began;

    if (!boxes || !threads)
        die("no memory");
    pthread_barrier_init(&ready, NULL, (unsigned)count + 1);
    pthread_barrier_init(&done, NULL, (unsigned)count + 1);
    for (int i = 0; i < count; i++) {
        boxes[i].fd = dial();
        if (pthread_create(&threads[i], NULL, burst_one, &boxes[i]))
            die("no thread");
    }
    pthread_barrier_wait(&ready);
    began = now_ns();
    pthread_barrier_wait(&done);
    sample("burst", now_ns() - began);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    free(boxes);
    free(threads);
}

static void *flow_one(void *count)
{
    struct box b = { .fd = dial() };

    for (int i = 0; i < *(int *)count; i++) {
        create(&b);
        run(&b);
        end(&b);
    }
    close(b.fd);
    return NULL;
}

static void flow(int count)
{
    pthread_t threads[CLIENTS];
    int share = count / CLIENTS;
    int64_t began = now_ns();

    for (int i = 0; i < CLIENTS; i++)
        if (pthread_create(&threads[i], NULL, flow_one, &share))
            die("no thread");
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    sample("flow", (now_ns() - began) / (share * CLIENTS));
}

int main(int argc, char **argv)
{
    int count;

    key = getenv("COVE_API_KEY");
    if (argc != 5 || !key)
        die("usage: bench-serve PORT each|burst|flow COUNT PROGRAM, with COVE_API_KEY");
    port = (in_port_t)count_of(argv[1]);
    program = argv[4];
    count = count_of(argv[3]);
    if (!strcmp(argv[2], "each"))
        each(count);
    else if (!strcmp(argv[2], "burst"))
        burst(count);
    else if (!strcmp(argv[2], "flow"))
        flow(count);
    else
        die("no mode '%s'", argv[2]);
    return 0;
}
