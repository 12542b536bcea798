/* test_control_users.c - users, keys and passwords. */
#include <crypt.h>

#include "control_rig.h"

static int count_key(void *arg, const struct api_key *k)
{
    CHECK(strlen(k->shown) >= 4 && strlen(k->shown) <= KEY_PREFIX_SHOWN);
    ++*(int *)arg;
    return 0;
}

static void keys(void)
{
    struct api_key k, second;
    struct actor a;
    struct err err = { 0 };
    char text[64], other[64];
    int n = 0;

    CHECK_INT(control_key_add(w.c, w.alice.user, "laptop", NULL, &k, text, &err), 0);
    CHECK_INT(strncmp(text, "e2b_", 4), 0);
    for (int i = 0; i < 3; i++) { /* the second time from memory */
        a = (struct actor){ 0 };
        CHECK_INT(control_actor_by_key(w.c, str_of(text), &a, &err), 0);
        CHECK_STR(a.name, "alice");
        CHECK_INT(a.user, w.alice.user);
        CHECK(!a.admin);
    }
    CHECK_INT(control_actor_by_key(w.c, STR("e2b_nonsense"), &a, &err), -1);
    CHECK_INT(err.code, ERR_UNAUTHENTICATED);
    CHECK_INT(control_actor_by_key(w.c, STR(""), &a, &err), -1);
    CHECK_INT(err.code, ERR_UNAUTHENTICATED);
    CHECK_INT(
        control_key_add(w.c, w.admin.user, NULL, "chosen-by-the-operator", &second, other, &err),
        0);
    CHECK_STR(other, "chosen-by-the-operator");
    CHECK_INT(control_actor_by_key(w.c, str_of(other), &a, &err), 0);
    CHECK(a.admin);
    CHECK_INT(control_key_add(w.c, w.admin.user, NULL, "short", &second, other, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK_INT(control_key_list(w.c, w.alice.user, count_key, &n, &err), 0);
    CHECK_INT(n, 1);
    CHECK_INT(control_key_remove(w.c, w.bob.user, k.id, &err), -1); /* not his */
    CHECK_INT(control_actor_by_key(w.c, str_of(text), &a, &err), 0);
    CHECK_INT(control_key_remove(w.c, w.alice.user, k.id, &err), 0);
    CHECK_INT(control_actor_by_key(w.c, str_of(text), &a, &err), -1); /* at once */
}

TEST(a_key_stands_for_its_user_until_it_is_removed) { run(keys, 0); }

static void locked(void)
{
    struct user_change change = USER_UNCHANGED;
    struct api_key k;
    struct actor a;
    struct user u = { 0 };
    struct err err = { 0 };
    char text[64];

    CHECK_INT(control_key_add(w.c, w.bob.user, NULL, NULL, &k, text, &err), 0);
    CHECK_INT(control_actor_by_key(w.c, str_of(text), &a, &err), 0);
    CHECK_INT(control_user_get(w.c, "bob", &u, &err), 0);
    change.locked = true;
    CHECK_INT(control_user_change(w.c, &u, &change, &err), 0);
    CHECK_INT(control_actor_by_key(w.c, str_of(text), &a, &err), -1);
    CHECK_INT(err.code, ERR_DENIED);
    change.locked = false;
    change.role = ROLE_ADMIN;
    CHECK_INT(control_user_change(w.c, &u, &change, &err), 0);
    CHECK_INT(control_actor_by_key(w.c, str_of(text), &a, &err), 0);
    CHECK(a.admin);
}

TEST(a_locked_user_is_refused_at_once) { run(locked, 0); }

static bool password_set;

static void give_password(void *arg)
{
    struct err err = { 0 };

    (void)arg;
    CHECK_INT(control_user_password(w.c, "bob", "open-sesame-1", &err), 0);
    password_set = true;
}

/* A password is hashed for some 40 ms, in which bob is locked. */
static void locked_meanwhile(void)
{
    struct user_change change = USER_UNCHANGED;
    struct user u = { 0 };
    struct err err = { 0 };

    change.locked = true;
    change.role = ROLE_ADMIN;
    password_set = false;
    CHECK_INT(control_user_get(w.c, "bob", &u, &err), 0);
    CHECK_INT(co_go(give_password, NULL, NULL), 0);
    co_sleep(co_in(10));
    CHECK_INT(control_user_change(w.c, &u, &change, &err), 0);
    test_await(&password_set);
    CHECK_INT(control_user_get(w.c, "bob", &u, &err), 0);
    CHECK(u.locked && u.role == ROLE_ADMIN && u.password[0]);
}

TEST(a_lock_is_not_undone_by_a_password_that_is_set_meanwhile) { run(locked_meanwhile, 0); }

static int count_user(void *arg, const struct user *u)
{
    (void)u;
    ++*(int *)arg;
    return 0;
}

static void users(void)
{
    struct crypt_data *data = xcalloc(1, sizeof(*data));
    struct user u = { 0 };
    struct err err = { 0 };
    char first[160];
    int n = 0;

    CHECK_INT(control_user_add(w.c, "carol", ROLE_USER, "correct horse", &u, &err), 0);
    CHECK_INT(strncmp(u.password, "$y$", 3), 0);
    CHECK_STR(crypt_r("correct horse", u.password, data), u.password);
    memcpy(first, u.password, sizeof(first));
    CHECK_INT(control_user_password(w.c, "carol", "battery staple", &err), 0);
    CHECK_INT(control_user_get(w.c, "carol", &u, &err), 0);
    CHECK(strcmp(first, u.password) != 0);
    CHECK_STR(crypt_r("battery staple", u.password, data), u.password);
    CHECK_INT(control_user_add(w.c, "carol", ROLE_USER, NULL, &u, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK_INT(control_user_add(w.c, "No Name", ROLE_USER, NULL, &u, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK_INT(control_user_add(w.c, "dave", ROLE_USER, "short", &u, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK_INT(control_user_get(w.c, "dave", &u, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(control_user_list(w.c, count_user, &n, &err), 0);
    CHECK_INT(n, 4);
    free(data);
}

TEST(users_have_names_and_yescrypt_passwords) { run(users, 0); }
