/* store_fixture.h - the kinds of store that the conformance cases (STORE_TEST, STORE_PLACE_TEST)
 * run over, a
 * directory that goes when the program ends, and rows to put into a store. A new kind is a row in
 * `kinds`, and has to pass all of them. */
#ifndef TESTS_STORE_FIXTURE_H
#define TESTS_STORE_FIXTURE_H

#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store.h"
#include "test.h"

__attribute__((unused)) static struct err err;

static char scratch[] = "/tmp/cove-store-XXXXXX";
static pid_t scratch_owner;

static inline int scratch_rm(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static inline void scratch_end(void)
{
    if (getpid() == scratch_owner) /* not the children that a case forks */
        nftw(scratch, scratch_rm, 16, FTW_DEPTH | FTW_PHYS);
}

/* A path that was not used before; valid until the eighth call from now. */
static inline const char *scratch_path(const char *name)
{
    static char paths[8][128];
    static unsigned n;
    char *out = paths[n % 8];

    if (!scratch_owner) {
        CHECK(mkdtemp(scratch));
        scratch_owner = getpid();
        atexit(scratch_end);
    }
    snprintf(out, sizeof(paths[0]), "%s/%u-%s", scratch, n++, name);
    return out;
}

static inline struct sandbox sample(int64_t owner)
{
    static char template[] = "base", provider[] = "fake", node[] = "n1", facade[] = "e2b";
    struct sandbox b = {
        .owner = owner,
        .template = template,
        .provider = provider,
        .node = node,
        .facade = facade,
        .created_ms = 1700000000000,
    };

    sandbox_new_id(&b);
    return b;
}

static inline int64_t sample_user(struct store *s, const char *name)
{
    struct user u = { .role = ROLE_USER, .created_ms = 1 };

    snprintf(u.name, sizeof(u.name), "%s", name);
    CHECK_INT(s->ops->user_add(s, &u, &err), 0);
    return u.id;
}

/* ---- the kinds ---- */

struct place { /* one store, opened as often as a case likes; all zero is a new and empty one */
    char name[160];
};

static inline int open_sqlite(struct place *p, struct store **out)
{
    if (!p->name[0])
        snprintf(p->name, sizeof(p->name), "%s", scratch_path("store.db"));
    return store_open_sqlite(p->name, out, &err);
}

__attribute__((unused)) static const struct kind {
    const char *name;
    /* 1: not on this machine, and it said why */
    int (*open)(struct place *p, struct store **out);
    void (*remove)(struct place *p); /* what the end of the program would leave; may be NULL */
} kinds[] = {
    { "sqlite", open_sqlite, NULL },
};

/* The kind that the case runs over now. */
__attribute__((unused)) static const struct kind *kind_of_store = kinds;

static inline struct store *open_place(struct place *p)
{
    struct store *s = NULL;

    if (kind_of_store->open(p, &s))
        test_fail(__FILE__, __LINE__, "%s: %s", kind_of_store->name, err.msg);
    return s;
}

static inline void over_kinds(void (*fn)(struct store *s), void (*at)(struct place *p))
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        AUTO(store_closep) struct store *s = NULL;
        struct place p = { 0 };
        int r;

        kind_of_store = &kinds[i];
        r = kind_of_store->open(&p, &s);
        if (r < 0)
            test_fail(__FILE__, __LINE__, "%s: %s", kinds[i].name, err.msg);
        if (r)
            continue;
        CHECK_STR(s->ops->name, kinds[i].name);
        if (fn)
            fn(s);
        store_closep(&s);
        if (at)
            at(&p);
        if (kinds[i].remove)
            kinds[i].remove(&p);
    }
}

#define STORE_TEST(case_name)                                                                      \
    static void on_##case_name(struct store *s);                                                   \
    TEST(case_name) { over_kinds(on_##case_name, NULL); }                                          \
    static void on_##case_name(struct store *s)

/* For those that open it themselves, more than once. */
#define STORE_PLACE_TEST(case_name)                                                                \
    static void on_##case_name(struct place *p);                                                   \
    TEST(case_name) { over_kinds(NULL, on_##case_name); }                                          \
    static void on_##case_name(struct place *p)

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) < 0)                                                                            \
            test_fail(__FILE__, __LINE__, "%s: %s", #call, err.msg);                               \
    } while (0)
#define FAILS(call, want)                                                                          \
    do {                                                                                           \
        CHECK_INT((call), -1);                                                                     \
        CHECK_INT(err.code, (want));                                                               \
    } while (0)

/* ---- for those that look at the file ---- */

static inline struct store *open_at(const char *path)
{
    struct store *s = NULL;

    OK(store_open_sqlite(path, &s, &err));
    return s;
}

static inline int count(void *arg, const struct sandbox *b)
{
    CHECK(b->id[0]);
    return ++*(int *)arg, 0;
}

/* A store with some rows, closed again. */
static inline const char *filled(int rows)
{
    const char *path = scratch_path("store.db");
    struct store *s = open_at(path);
    int64_t owner = sample_user(s, "ann");

    for (int i = 0; i < rows; i++) {
        struct sandbox b = sample(owner);

        OK(s->ops->sandbox_add(s, &b, NULL, NULL, &err));
    }
    store_closep(&s);
    return path;
}

static inline int mode_of(const char *path, const char *suffix)
{
    char name[160];
    struct stat st;

    snprintf(name, sizeof(name), "%s%s", path, suffix);
    CHECK_INT(stat(name, &st), 0);
    return st.st_mode & 0777;
}

static inline void write_at(const char *path, off_t at, const void *p, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    CHECK(fd >= 0);
    CHECK_INT(pwrite(fd, p, n, at), n);
    close(fd);
}

#endif
