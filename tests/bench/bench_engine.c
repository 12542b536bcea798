/* bench_engine.c - sandboxes through a keeper that runs already.
 *
 *   bench-engine DATA_DIR cold COUNT PROGRAM    create with all limits, run, gone; COUNT times
 *   bench-engine DATA_DIR exec COUNT PROGRAM    in one sandbox, in turns with a bare posix_spawn
 *   bench-engine DATA_DIR hold COUNT PROGRAM    COUNT idle ones; memory, then PROGRAM in some of
 * them
 *
 * "gone" ends when the keeper has answered: no process, cgroup, mount or network namespace of it is
 * left; its layer is with the reaper. `hold` prints bytes per sandbox, not nanoseconds. */
#include "bench_guest.h"

#include "base/log.h"
#include "keep/keep.h"

enum { WARM_UP = 20, SAMPLED = 200 };

static struct keep keep;
static char request[1024];
static size_t request_size;

static void name_of(int i, char id[ORDER_ID]) { snprintf(id, ORDER_ID, "bench%d", i); }

static void call(struct keep_request *q, struct keep_reply *r, int *fd)
{
    struct err err = { 0 };
    size_t n = fd ? 1 : 0;

    if (keep_call(&keep, q, r, fd, fd ? &n : NULL, NULL, NULL, &err))
        die("%s", err.msg);
    if (fd && n != 1)
        die("the keeper gave no connection");
}

/* Returns a connection to its guest. */
static int create(int i)
{
    struct keep_request q = { .verb = KEEP_CREATE, .u.create.flags = ORDER_EAGER };
    struct keep_reply r;
    int fd;

    name_of(i, q.id);
    snprintf(q.u.create.template, sizeof(q.u.create.template), "host");
    call(&q, &r, &fd);
    fcntl(fd, F_SETFL, 0); /* blocking: we wait for one thing at a time */
    return fd;
}

static int dial(int i)
{
    struct keep_request q = { .verb = KEEP_SOCKET, .u.socket.count = 1 };
    struct keep_reply r;
    int fd;

    name_of(i, q.id);
    call(&q, &r, &fd);
    fcntl(fd, F_SETFL, 0);
    return fd;
}

static void end(int i)
{
    struct keep_request q = { .verb = KEEP_KILL };
    struct keep_reply r;

    name_of(i, q.id);
    call(&q, &r, NULL);
}

static void cold(int count)
{
    for (int i = -WARM_UP; i < count; i++) {
        int64_t began = now_ns(), made, ran, gone;
        int fd = create(i + WARM_UP);

        made = now_ns();
        time_guest(fd, request, request_size);
        close(fd);
        ran = now_ns();
        end(i + WARM_UP);
        gone = now_ns();
        if (i < 0)
            continue;
        sample("create", made - began);
        sample("run", ran - made);
        sample("gone", gone - ran);
        sample("total", gone - began);
    }
}

static void exec_in_one(int count, char *program)
{
    posix_spawn_file_actions_t streams;
    int fd;

    open_null(&streams);
    fd = create(0);
    for (int i = -WARM_UP; i < count; i++) {
        int64_t guest = time_guest(fd, request, request_size), bare = time_bare(program, &streams);

        if (i < 0)
            continue;
        sample("guest", guest);
        sample("bare", bare);
    }
    close(fd);
    end(0);
}

/* What is gone from MemAvailable: pages of processes and of the kernel alike. */
static int64_t available(void)
{
    char line[128];
    long long kib = 0;
    FILE *f = fopen("/proc/meminfo", "re");

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %lld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib << 10;
}

static void hold(int count)
{
    int64_t before, began;

    close(create(count));
    end(count);
    sleep(2);
    before = available();
    began = now_ns();
    for (int i = 0; i < count; i++)
        close(create(i));
    sample("fill", (now_ns() - began) / count);
    for (int i = 0; i < count; i++) { /* each has served its first request */
        int fd = dial(i);
        const char health[] = "GET /health HTTP/1.1\r\nHost: guest\r\n\r\n";
        char answer[512];

        if (write(fd, health, sizeof(health) - 1) < 0 || read(fd, answer, sizeof(answer)) <= 0)
            die("sandbox %d does not answer", i);
        close(fd);
    }
    sleep(4);
    sample("bytes", (before - available()) / count);
    for (int i = 0; i < count; i += count / SAMPLED + 1) {
        int fd = dial(i);

        time_guest(fd, request, request_size); /* the first one touches what the sandbox shares */
        sample("exec", time_guest(fd, request, request_size));
        close(fd);
    }
    for (int i = 0; i < count; i++) {
        began = now_ns();
        end(i);
        sample("gone", now_ns() - began);
    }
}

int main(int argc, char **argv)
{
    struct keep_options o = { .socket = 0 };
    struct err err = { 0 };
    int count;

    if (argc != 5)
        die("usage: bench-engine DATA_DIR cold|exec|hold COUNT PROGRAM");
    log_level = LOG_WARN;
    o.data_dir = argv[1];
    o.ahead = 4;
    count = count_of(argv[3]);
    request_size = build_request(request, sizeof(request), argv[4]);
    if (keep_private(&keep, &o, &err))
        die("%s", err.msg);
    if (!strcmp(argv[2], "cold"))
        cold(count);
    else if (!strcmp(argv[2], "exec"))
        exec_in_one(count, argv[4]);
    else if (!strcmp(argv[2], "hold"))
        hold(count);
    else
        die("no mode '%s'", argv[2]);
    keep_close(&keep);
    return 0;
}
