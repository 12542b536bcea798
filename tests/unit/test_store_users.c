/* test_store_users.c - what every kind of store promises about users, keys and values, and about
 * many rows and many threads. */
#include <pthread.h>

#include "base/clock.h"
#include "store_fixture.h"

/* ---- users ---- */

static struct user make_user(const char *name)
{
    struct user u = { .role = ROLE_ADMIN, .locked = true, .created_ms = 1700000000000 };

    snprintf(u.name, sizeof(u.name), "%s", name);
    memset(u.password, '$', sizeof(u.password) - 1);
    return u;
}

static void check_user(const struct user *got, const struct user *want)
{
    CHECK_INT(got->id, want->id);
    CHECK_STR(got->name, want->name);
    CHECK_INT(got->role, want->role);
    CHECK_STR(got->password, want->password);
    CHECK_INT(got->locked, want->locked);
    CHECK_INT(got->created_ms, want->created_ms);
}

STORE_TEST(a_user_comes_back_by_name_and_by_id_and_can_be_changed)
{
    struct user u = make_user("ann"), got;

    OK(s->ops->user_add(s, &u, &err));
    CHECK(u.id > 0); /* 0 means nobody */
    OK(s->ops->user_get(s, "ann", &got, &err));
    check_user(&got, &u);
    OK(s->ops->user_by_id(s, u.id, &got, &err));
    check_user(&got, &u);
    u.role = ROLE_USER;
    u.locked = false;
    u.password[0] = 0;
    OK(s->ops->user_change(s, u.id, &(struct user_change){ ROLE_USER, false, -1, "" }, &err));
    OK(s->ops->user_by_id(s, u.id, &got, &err));
    check_user(&got, &u);
    FAILS(s->ops->user_get(s, "ANN", &got, &err), ERR_NOT_FOUND);
}

STORE_TEST(a_change_of_a_user_leaves_what_it_does_not_name)
{
    static const struct user_change nothing = USER_UNCHANGED;
    struct user_change lock = nothing, demote = nothing, password = nothing, several = nothing;
    struct user u = make_user("ann"), other = make_user("bob"), got;

    u.locked = other.locked = false;
    OK(s->ops->user_add(s, &u, &err));
    OK(s->ops->user_add(s, &other, &err));
    lock.locked = true;
    demote.role = ROLE_USER;
    password.password = "$y$new";
    several.multi_login = true;
    OK(s->ops->user_change(s, u.id, &lock, &err)); /* each knows of no other */
    OK(s->ops->user_change(s, u.id, &password, &err));
    OK(s->ops->user_change(s, u.id, &demote, &err));
    OK(s->ops->user_change(s, u.id, &several, &err));
    OK(s->ops->user_change(s, u.id, &nothing, &err));
    OK(s->ops->user_by_id(s, u.id, &got, &err));
    u.locked = true;
    u.role = ROLE_USER;
    snprintf(u.password, sizeof(u.password), "$y$new");
    check_user(&got, &u);
    CHECK(got.multi_login);
    OK(s->ops->user_by_id(s, other.id, &got, &err));
    check_user(&got, &other);
}

STORE_TEST(a_name_belongs_to_one_user)
{
    struct user u = make_user("ann"), again = make_user("ann"), other = make_user("bob"),
                ghost = make_user("ghost");

    OK(s->ops->user_add(s, &u, &err));
    FAILS(s->ops->user_add(s, &again, &err), ERR_CONFLICT);
    CHECK(strstr(err.msg, "'ann'"));
    CHECK_INT(again.id, 0);
    OK(s->ops->user_add(s, &other, &err));
    FAILS(s->ops->user_change(s, 4711, &(struct user_change)USER_UNCHANGED, &err), ERR_NOT_FOUND);
    FAILS(s->ops->user_change(s, u.id, &(struct user_change){ .role = 99 }, &err), ERR_INVALID);
    FAILS(s->ops->user_by_id(s, 4711, &ghost, &err), ERR_NOT_FOUND);
    ghost.role = 99;
    FAILS(s->ops->user_add(s, &ghost, &err), ERR_INVALID);
}

static int count_user(void *arg, const struct user *u)
{
    int *n = arg;

    CHECK(u->id > 0);
    return ++*n == 2;
}

STORE_TEST(a_list_stops_when_it_is_told_to)
{
    int n = 0;

    OK(s->ops->user_list(s, count_user, &n, &err));
    CHECK_INT(n, 0);
    sample_user(s, "ann");
    sample_user(s, "bob");
    sample_user(s, "eve");
    OK(s->ops->user_list(s, count_user, &n, &err));
    CHECK_INT(n, 2);
}

/* ---- keys ---- */

static struct api_key make_key(int64_t user, const char *id)
{
    struct api_key k = { .user = user, .created_ms = 10 };
    char key[64];

    api_key_new(key);
    api_key_hash(str_of(key), k.hash);
    snprintf(k.id, sizeof(k.id), "%s", id);
    snprintf(k.shown, sizeof(k.shown), "%.*s", KEY_PREFIX_SHOWN, key);
    snprintf(k.name, sizeof(k.name), "laptop");
    return k;
}

static void check_key(const struct api_key *got, const struct api_key *want)
{
    CHECK_STR(got->id, want->id);
    CHECK_INT(got->user, want->user);
    CHECK_STR(got->hash, want->hash);
    CHECK_STR(got->shown, want->shown);
    CHECK_STR(got->name, want->name);
    CHECK_INT(got->created_ms, want->created_ms);
    CHECK_INT(got->used_ms, want->used_ms);
}

STORE_TEST(a_key_is_found_by_its_hash_until_it_is_removed)
{
    struct api_key k = make_key(sample_user(s, "ann"), "k1"), got;

    OK(s->ops->key_add(s, &k, &err));
    OK(s->ops->key_by_hash(s, k.hash, &got, &err));
    check_key(&got, &k);
    OK(s->ops->key_used(s, "k1", 77, &err));
    OK(s->ops->key_used(s, "k1", 55, &err)); /* threads may come in another order */
    k.used_ms = 77;
    OK(s->ops->key_by_hash(s, k.hash, &got, &err));
    check_key(&got, &k);
    OK(s->ops->key_remove(s, k.user, "k1", &err));
    FAILS(s->ops->key_by_hash(s, k.hash, &got, &err), ERR_NOT_FOUND);
    FAILS(s->ops->key_remove(s, k.user, "k1", &err), ERR_NOT_FOUND);
    FAILS(s->ops->key_used(s, "k1", 1, &err), ERR_NOT_FOUND);
}

STORE_TEST(a_key_needs_a_user_and_an_id_and_hash_of_its_own)
{
    int64_t ann = sample_user(s, "ann");
    struct api_key k = make_key(ann, "k1"), same_id = make_key(ann, "k1"),
                   same_hash = make_key(ann, "k2"), orphan = make_key(ann + 99, "k3");

    OK(s->ops->key_add(s, &k, &err));
    memcpy(same_hash.hash, k.hash, sizeof(k.hash));
    FAILS(s->ops->key_add(s, &same_id, &err), ERR_CONFLICT);
    FAILS(s->ops->key_add(s, &same_hash, &err), ERR_CONFLICT);
    FAILS(s->ops->key_add(s, &orphan, &err), ERR_NOT_FOUND);
}

static int count_key(void *arg, const struct api_key *k)
{
    CHECK(k->id[0]);
    return ++*(int *)arg, 0;
}

static int keys_of(struct store *s, int64_t user)
{
    int n = 0;

    OK(s->ops->key_list(s, user, count_key, &n, &err));
    return n;
}

STORE_TEST(a_user_sees_and_removes_own_keys_only_and_nobody_means_anybody)
{
    int64_t ann = sample_user(s, "ann"), bob = sample_user(s, "bob");
    struct api_key k1 = make_key(ann, "k1"), k2 = make_key(ann, "k2"), k3 = make_key(bob, "k3");

    OK(s->ops->key_add(s, &k1, &err));
    OK(s->ops->key_add(s, &k2, &err));
    OK(s->ops->key_add(s, &k3, &err));
    CHECK_INT(keys_of(s, ann), 2);
    CHECK_INT(keys_of(s, bob), 1);
    CHECK_INT(keys_of(s, 0), 3);
    FAILS(s->ops->key_remove(s, bob, "k1", &err), ERR_NOT_FOUND);
    CHECK_INT(keys_of(s, ann), 2);
    OK(s->ops->key_remove(s, 0, "k1", &err));
    CHECK_INT(keys_of(s, ann), 1);
}

/* ---- values ---- */

static void check_value(struct store *s, const char *name, struct str want)
{
    AUTO(buf_free) struct buf got = { 0 };

    OK(s->ops->value_get(s, name, &got, &err));
    CHECK(str_eq(buf_str(&got), want));
}

STORE_TEST(a_value_is_any_bytes_and_the_last_set_wins)
{
    static const char bytes[] = "\0\xff'\"\0;";
    AUTO(buf_free) struct buf got = { 0 };

    FAILS(s->ops->value_get(s, "jwt", &got, &err), ERR_NOT_FOUND);
    CHECK_INT(got.len, 0);
    OK(s->ops->value_set(s, "jwt", (struct str){ bytes, sizeof(bytes) }, &err));
    check_value(s, "jwt", (struct str){ bytes, sizeof(bytes) });
    OK(s->ops->value_set(s, "jwt", STR("short"), &err));
    check_value(s, "jwt", STR("short"));
    OK(s->ops->value_set(s, "jwt", (struct str){ NULL, 0 }, &err));
    check_value(s, "jwt", STR(""));
    FAILS(s->ops->value_get(s, "JWT", &got, &err), ERR_NOT_FOUND);
}

STORE_TEST(a_value_that_is_set_once_is_what_the_first_one_said)
{
    AUTO(buf_free) struct buf first = { 0 }, second = { 0 };

    OK(s->ops->value_once(s, "node", STR("one"), &first, &err));
    OK(s->ops->value_once(s, "node", STR("two"), &second, &err));
    CHECK_STR(buf_cstr(&first), "one");
    CHECK_STR(buf_cstr(&second), "one");
    check_value(s, "node", STR("one"));
}

/* ---- many ---- */

static int count_sandbox(void *arg, const struct sandbox *b)
{
    CHECK(b->id[0]);
    return ++*(int *)arg, 0;
}

STORE_TEST(ten_thousand_rows_are_written_found_and_forgotten)
{
    enum { ROWS = 10000 };
    static char ids[ROWS][SANDBOX_ID + 1];
    int64_t owner = sample_user(s, "ann"), began = clock_us(), wrote;
    int n = 0;

    for (int i = 0; i < ROWS; i++) {
        struct sandbox b = sample(owner);

        memcpy(ids[i], b.id, sizeof(b.id));
        OK(s->ops->sandbox_add(s, &b, NULL, NULL, &err));
        b.state = i % 10 ? SANDBOX_ENDED : SANDBOX_RUNNING;
        b.ended_ms = i;
        OK(s->ops->sandbox_save(s, &b, SANDBOX_CREATING, NULL, &err));
    }
    wrote = clock_us() - began;
    for (int i = 0; i < ROWS; i += 7) {
        struct sandbox got;

        OK(s->ops->sandbox_get(s, ids[i], &got, &err));
        CHECK_INT(got.ended_ms, i);
        sandbox_finish(&got);
    }
    OK(s->ops->sandbox_live(s, "n1", count_sandbox, &n, &err));
    CHECK_INT(n, ROWS / 10);
    n = 0;
    OK(s->ops->sandbox_ended(s, owner, ROWS, count_sandbox, &n, &err));
    CHECK_INT(n, ROWS - ROWS / 10);
    CHECK_INT(s->ops->sandbox_prune(s, ROWS, &err), ROWS - ROWS / 10);
    printf("# %lld us per sandbox made and saved\n", (long long)wrote / ROWS);
}

struct hammer {
    struct store *s;
    int64_t owner, failed;
    pthread_t thread;
};

/* Everything at once on rows of its own; no CHECK here, which would jump to another stack. */
static void *hammer(void *arg)
{
    struct hammer *h = arg;
    struct store *s = h->s;

    for (int i = 0; i < 300; i++) {
        struct event e = { .at_ms = i, .kind = "created", .actor = "ann", .text = "made" };
        struct sandbox b = sample(h->owner), got = { 0 };
        struct buf value = { 0 };
        struct err why;
        int n = 0;

        h->failed += s->ops->sandbox_add(s, &b, &e, NULL, &why) < 0;
        b.state = SANDBOX_RUNNING;
        h->failed += s->ops->sandbox_save(s, &b, SANDBOX_CREATING, &e, &why) < 0;
        h->failed += s->ops->sandbox_get(s, b.uuid, &got, &why) < 0;
        h->failed += got.state != SANDBOX_RUNNING; /* what was written is read by the next call */
        sandbox_finish(&got);
        if (i % 20 == 0) {
            h->failed += s->ops->value_set(s, "x", str_of(b.id), &why) < 0;
            h->failed += s->ops->value_get(s, "x", &value, &why) < 0 || value.len != SANDBOX_ID;
            h->failed += s->ops->sandbox_live(s, "n1", count_sandbox, &n, &why) < 0 || !n;
        }
        buf_free(&value);
        b.state = SANDBOX_ENDED;
        h->failed += s->ops->sandbox_save(s, &b, SANDBOX_RUNNING, &e, &why) < 0;
        if (i % 100 == 99)
            h->failed += s->ops->sandbox_prune(s, -1, &why) < 0;
    }
    return NULL;
}

STORE_TEST(threads_that_do_everything_at_once_do_not_disturb_each_other)
{
    struct hammer h[4];
    int n = 0;

    for (size_t i = 0; i < ARRAY_LEN(h); i++) {
        char name[16];

        snprintf(name, sizeof(name), "user%zu", i);
        h[i] = (struct hammer){ .s = s, .owner = sample_user(s, name) };
        CHECK_INT(pthread_create(&h[i].thread, NULL, hammer, &h[i]), 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(h); i++)
        pthread_join(h[i].thread, NULL);
    for (size_t i = 0; i < ARRAY_LEN(h); i++)
        CHECK_INT(h[i].failed, 0);
    OK(s->ops->sandbox_ended(s, 0, 10000, count_sandbox, &n, &err));
    CHECK_INT(n, 1200);
    n = 0;
    OK(s->ops->sandbox_live(s, "n1", count_sandbox, &n, &err));
    CHECK_INT(n, 0);
}

/* ---- logins ---- */

static struct session login_of(int64_t user, const char *id, int64_t expires_ms)
{
    struct session x = { .user = user, .created_ms = 1000, .expires_ms = expires_ms };

    snprintf(x.id, sizeof(x.id), "%s", id);
    return x;
}

STORE_TEST(a_login_is_there_until_it_is_removed_or_replaced)
{
    int64_t anna = sample_user(s, "anna"), bert = sample_user(s, "bert");
    struct session a = login_of(anna, "a", 5000), b = login_of(anna, "b", 6000);
    struct session his = login_of(bert, "h", 5000), got;

    OK(s->ops->session_add(s, &a, "", false, &err));
    OK(s->ops->session_add(s, &b, "", false, &err));
    OK(s->ops->session_add(s, &his, "", true, &err));
    OK(s->ops->session_get(s, "a", &got, &err));
    CHECK_STR(got.id, "a");
    CHECK_INT(got.user, anna);
    CHECK_INT(got.created_ms, 1000);
    CHECK_INT(got.expires_ms, 5000);
    b = login_of(anna, "c", 7000);
    OK(s->ops->session_add(s, &b, "", true, &err)); /* alone: in the place of all of hers */
    FAILS(s->ops->session_get(s, "a", &got, &err), ERR_NOT_FOUND);
    FAILS(s->ops->session_get(s, "b", &got, &err), ERR_NOT_FOUND);
    OK(s->ops->session_get(s, "h", &got, &err));
    OK(s->ops->session_remove(s, "c", &err));
    FAILS(s->ops->session_remove(s, "c", &err), ERR_NOT_FOUND);
    OK(s->ops->session_remove(s, "h", &err));
}

STORE_TEST(a_login_that_expired_goes_with_the_next_one)
{
    int64_t anna = sample_user(s, "anna");
    struct session old = login_of(anna, "old", 900), now = login_of(anna, "now", 5000), got;

    OK(s->ops->session_add(s, &old, "", false, &err));
    OK(s->ops->session_add(s, &now, "", false, &err));
    FAILS(s->ops->session_get(s, "old", &got, &err), ERR_NOT_FOUND);
    OK(s->ops->session_get(s, "now", &got, &err));
    FAILS(s->ops->session_add(s, &now, "", false, &err), ERR_CONFLICT);
    now.user = 999;
    snprintf(now.id, sizeof(now.id), "stray");
    FAILS(s->ops->session_add(s, &now, "", false, &err), ERR_DENIED);
}

STORE_TEST(a_login_is_renewed_once)
{
    int64_t anna = sample_user(s, "anna"), bert = sample_user(s, "bert");
    struct session a = login_of(anna, "a", 5000), b = login_of(anna, "b", 6000);
    struct session next = login_of(anna, "a2", 7000), got;

    OK(s->ops->session_add(s, &a, "", false, &err));
    OK(s->ops->session_add(s, &b, "", false, &err));
    OK(s->ops->session_renew(s, "a", &next, false, &err));
    OK(s->ops->session_get(s, "a2", &got, &err));
    CHECK_INT(got.expires_ms, 7000);
    FAILS(s->ops->session_get(s, "a", &got, &err), ERR_NOT_FOUND);
    next = login_of(anna, "a3", 7000);
    FAILS(s->ops->session_renew(s, "a", &next, true, &err), ERR_NOT_FOUND); /* that one is gone */
    FAILS(s->ops->session_get(s, "a3", &got, &err), ERR_NOT_FOUND);
    OK(s->ops->session_get(s, "b", &got, &err)); /* and nothing was done */
    next.user = bert;
    FAILS(s->ops->session_renew(s, "a2", &next, false, &err), ERR_NOT_FOUND);
    next.user = anna;
    OK(s->ops->session_renew(s, "a2", &next, true, &err));
    FAILS(s->ops->session_get(s, "b", &got, &err), ERR_NOT_FOUND);
    OK(s->ops->session_get(s, "a3", &got, &err));
}

STORE_TEST(whether_a_user_may_have_several_logins_is_kept)
{
    struct user u = { 0 };

    sample_user(s, "anna");
    OK(s->ops->user_get(s, "anna", &u, &err));
    CHECK(!u.multi_login);
    OK(s->ops->user_change(s, u.id, &(struct user_change){ -1, -1, true, NULL }, &err));
    OK(s->ops->user_by_id(s, u.id, &u, &err));
    CHECK(u.multi_login);
}

/* A login looks at the password long before it is written, and so does one who changes it. */
STORE_TEST(a_change_of_the_password_or_a_lock_ends_logins_before_it_and_behind_it)
{
    struct user_change password = USER_UNCHANGED, lock = USER_UNCHANGED, role = USER_UNCHANGED;
    int64_t anna = sample_user(s, "anna"), bert = sample_user(s, "bert");
    struct session a = login_of(anna, "a", 5000), b = login_of(anna, "b", 6000);
    struct session his = login_of(bert, "h", 5000), got;

    password.password = "$y$new";
    lock.locked = true;
    role.role = ROLE_ADMIN;
    OK(s->ops->session_add(s, &a, "", false, &err));
    OK(s->ops->session_add(s, &his, "", false, &err));
    OK(s->ops->user_change(s, anna, &role, &err));
    OK(s->ops->session_get(s, "a", &got, &err));
    OK(s->ops->user_change(s, anna, &password, &err));
    FAILS(s->ops->session_get(s, "a", &got, &err), ERR_NOT_FOUND);
    FAILS(s->ops->session_add(s, &a, "", false, &err), ERR_DENIED);
    OK(s->ops->session_add(s, &b, "$y$new", false, &err));
    FAILS(s->ops->session_add(s, &a, "", true, &err), ERR_DENIED);
    OK(s->ops->session_get(s, "b", &got, &err)); /* and nothing was done */
    OK(s->ops->user_change(s, anna, &lock, &err));
    FAILS(s->ops->session_get(s, "b", &got, &err), ERR_NOT_FOUND);
    FAILS(s->ops->session_add(s, &b, "$y$new", false, &err), ERR_DENIED);
    lock.locked = false;
    OK(s->ops->user_change(s, anna, &lock, &err));
    FAILS(s->ops->session_get(s, "b", &got, &err), ERR_NOT_FOUND);
    OK(s->ops->session_get(s, "h", &got, &err)); /* which is another's */
}
