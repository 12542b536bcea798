/* test_store_lasts.c - what every kind of store promises about lasting: closing and opening,
 * several who have it open, kill -9 at any moment. */
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/id.h"
#include "store_fixture.h"

STORE_PLACE_TEST(what_was_written_is_there_after_closing_and_opening)
{
    struct store *s = open_place(p);
    struct job j = { .topic = "t", .key = "k", .payload = STR("p"), .due_ms = 1 }, got;
    struct arena a = { 0 };
    AUTO(buf_free) struct buf value = { 0 };
    struct user u;
    int n = 0;

    for (int64_t owner = sample_user(s, "ann"), i = 0; i < 3; i++) {
        struct sandbox b = sample(owner);

        OK(s->ops->sandbox_add(s, &b, NULL, NULL, &err));
    }
    OK(s->ops->value_set(s, "v", STR("some value"), &err));
    CHECK_INT(s->ops->job_push(s, &j, JOB_REPLACE, 1, &err), 1);
    store_closep(&s);
    s = open_place(p);
    OK(s->ops->user_get(s, "ann", &u, &err));
    OK(s->ops->sandbox_live(s, "n1", count, &n, &err));
    CHECK_INT(n, 3);
    OK(s->ops->value_get(s, "v", &value, &err));
    CHECK_STR(buf_cstr(&value), "some value");
    CHECK_INT(s->ops->job_claim(s, "t", 1, 1, 1, &got, &a, &err), 1);
    arena_free(&a);
    store_closep(&s);
    CHECK(!s);
    store_closep(&s); /* nothing is harmless */
}

STORE_PLACE_TEST(two_who_have_one_store_open_see_each_other_and_agree)
{
    struct store *a = open_place(p), *b = open_place(p);
    AUTO(buf_free) struct buf first = { 0 }, second = { 0 };
    struct user u;

    OK(a->ops->value_once(a, "node", STR("a"), &first, &err));
    OK(b->ops->value_once(b, "node", STR("b"), &second, &err));
    CHECK_STR(buf_cstr(&second), "a");
    sample_user(b, "ann");
    OK(a->ops->user_get(a, "ann", &u, &err));
    store_closep(&a);
    sample_user(b, "bob"); /* closing the other took no lock of ours away */
    store_closep(&b);
}

/* ---- kill -9 ---- */

/* Says each id when it is acknowledged, until it is killed. */
static void write_for_ever(struct place *p, int64_t owner, int out)
{
    struct store *s = NULL;

    if (kind_of_store->open(p, &s))
        _exit(1);
    for (;;) {
        struct event e = { .kind = "created", .actor = "ann", .text = "made" };
        struct sandbox b = sample(owner);

        if (s->ops->sandbox_add(s, &b, &e, NULL, &err))
            _exit(2);
        b.state = SANDBOX_RUNNING;
        if (s->ops->sandbox_save(s, &b, SANDBOX_CREATING, &e, &err))
            _exit(3);
        if (write(out, b.id, SANDBOX_ID) != SANDBOX_ID)
            _exit(4);
    }
}

static void check_acknowledged(struct place *p, const struct buf *ids)
{
    AUTO(store_closep) struct store *s = open_place(p); /* SQLite: checks the whole file */

    for (size_t at = 0; at + SANDBOX_ID <= ids->len; at += SANDBOX_ID) {
        char id[SANDBOX_ID + 1] = { 0 };
        struct sandbox b;

        memcpy(id, ids->data + at, SANDBOX_ID);
        OK(s->ops->sandbox_get(s, id, &b, &err));
        CHECK_INT(b.state, SANDBOX_RUNNING);
        sandbox_finish(&b);
    }
}

/* One writer, killed at a moment that nobody chose: how many rows it was told of. */
static size_t kill_one(struct place *p, int64_t owner)
{
    AUTO(buf_free) struct buf ids = { 0 };
    unsigned char delay;
    char block[4096];
    int pipes[2], status;
    ssize_t n;
    pid_t pid;

    id_bytes(&delay, 1);
    CHECK_INT(pipe(pipes), 0);
    fcntl(pipes[1], F_SETPIPE_SZ, 1 << 20); /* the child never waits for us */
    pid = fork();
    if (!pid)
        write_for_ever(p, owner, pipes[1]);
    close(pipes[1]);
    poll(&(struct pollfd){ .fd = pipes[0], .events = POLLIN }, 1, 10000); /* it is at work */
    usleep(delay * 150U);
    kill(pid, SIGKILL);
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status));
    while ((n = read(pipes[0], block, sizeof(block))) > 0)
        buf_add(&ids, block, (size_t)n);
    close(pipes[0]);
    CHECK(ids.len);
    check_acknowledged(p, &ids);
    return ids.len / SANDBOX_ID;
}

STORE_PLACE_TEST(what_was_acknowledged_survives_kill_9_at_any_moment)
{
    struct store *s = open_place(p);
    int64_t owner = sample_user(s, "ann");
    size_t all = 0;

    store_closep(&s); /* a child may not use what its parent has open */
    for (int round = 0; round < 50; round++)
        all += kill_one(p, owner);
    printf("# 50 kills, %zu rows acknowledged and found\n", all);
}
