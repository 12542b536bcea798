/* test_model.c - the life of a sandbox as a table, its names, and those of users and keys. */
#include "base/mem.h"
#include "model/door.h"
#include "model/order.h"
#include "model/sandbox.h"
#include "model/user.h"
#include "test.h"

/* The table once more, as a picture: from a row to a column. */
static const char *const picture[SANDBOX_STATES] = {
    /*             C R P P R E E
     *             r u a a e n n
     *             e n u u s d d
     *             a n s s u i e
     *             t i i e m n d */
    /* creating */ ".x...xx",
    /* running  */ "..x.xxx",
    /* pausing  */ ".x.x.xx",
    /* paused   */ "....xxx",
    /* resuming */ ".x.x.xx",
    /* ending   */ "......x",
    /* ended    */ ".......",
};

TEST(every_move_of_a_sandbox_is_allowed_or_not_as_the_picture_says)
{
    for (int from = 0; from < SANDBOX_STATES; from++)
        for (int to = 0; to < SANDBOX_STATES; to++)
            if (sandbox_may((enum sandbox_state)from, (enum sandbox_state)to) !=
                (picture[from][to] == 'x'))
                test_fail(__FILE__, __LINE__, "%s to %s", sandbox_state_names[from],
                          sandbox_state_names[to]);
}

TEST(what_is_no_state_can_neither_be_left_nor_reached)
{
    for (int other = 0; other < SANDBOX_STATES; other++) {
        CHECK(!sandbox_may(SANDBOX_STATES, (enum sandbox_state)other));
        CHECK(!sandbox_may((enum sandbox_state)other, SANDBOX_STATES));
        CHECK(!sandbox_may((enum sandbox_state) - 1, (enum sandbox_state)other));
        CHECK(!sandbox_may((enum sandbox_state)other, (enum sandbox_state) - 1));
    }
}

/* Walks every path of moves: all of them end, none is longer than the states it passes allow. */
static bool reaches_end(enum sandbox_state from)
{
    unsigned seen = 1U << from, before = 0;

    while (seen != before) {
        before = seen;
        for (int a = 0; a < SANDBOX_STATES; a++)
            for (int b = 0; b < SANDBOX_STATES; b++)
                if (before & 1U << a && sandbox_may((enum sandbox_state)a, (enum sandbox_state)b))
                    seen |= 1U << b;
    }
    return seen & 1U << SANDBOX_ENDED;
}

TEST(an_end_can_be_reached_from_every_state_and_left_from_none)
{
    for (int from = 0; from < SANDBOX_STATES; from++) {
        CHECK(reaches_end((enum sandbox_state)from));
        CHECK(!sandbox_may(SANDBOX_ENDED, (enum sandbox_state)from));
        CHECK(!sandbox_may((enum sandbox_state)from, SANDBOX_CREATING));
    }
}

TEST(every_state_network_expiry_and_role_has_a_name_of_its_own)
{
    for (int i = 0; i < SANDBOX_STATES; i++)
        for (int k = 0; k < i; k++)
            CHECK(strcmp(sandbox_state_names[i], sandbox_state_names[k]));
    CHECK_STR(sandbox_network_names[NETWORK_NONE], "none");
    CHECK_STR(sandbox_network_names[NETWORK_OPEN], "open");
    CHECK_STR(sandbox_expiry_names[EXPIRY_KILL], "kill");
    CHECK_STR(sandbox_expiry_names[EXPIRY_PAUSE], "pause");
    CHECK_STR(user_role_names[ROLE_ADMIN], "admin");
    CHECK_STR(user_role_names[ROLE_USER], "user");
}

TEST(new_ids_have_their_form_and_are_never_the_same)
{
    static char seen[200][SANDBOX_ID + 1];

    for (size_t i = 0; i < ARRAY_LEN(seen); i++) {
        struct sandbox s = { 0 };

        sandbox_new_id(&s);
        CHECK_INT(strlen(s.id), SANDBOX_ID);
        CHECK_INT(strlen(s.uuid), SANDBOX_UUID);
        CHECK(sandbox_id_valid(str_of(s.id)) && sandbox_id_valid(str_of(s.uuid)));
        CHECK_INT(s.uuid[14], '4'); /* version and variant of RFC 4122 */
        CHECK(strchr("89ab", s.uuid[19]));
        memcpy(seen[i], s.id, sizeof(s.id));
        for (size_t k = 0; k < i; k++)
            CHECK(strcmp(seen[i], seen[k]));
    }
}

TEST(what_is_not_an_id_by_form_is_refused)
{
    static const char *const bad[] = {
        "",
        "i",
        "iabcdefghij012345678",   /* one short */
        "iabcdefghij01234567890", /* one long */
        "xabcdefghij0123456789",
        "iabcdefghij012345678A",
        "iabcdefghij012345678-",
        "iabcdefghij/../456789",
        "01234567-89ab-4def-8123-456789abcde",
        "01234567-89ab-4def-8123-456789abcdeg",
        "01234567-89AB-4def-8123-456789abcdef",
        "0123456789ab-4def-8123-456789abcdef0",
        "01234567-89ab-4def-8123456789abcdef-",
    };

    CHECK(sandbox_id_valid(STR("iabcdefghij0123456789")));
    CHECK(sandbox_id_valid(STR("01234567-89ab-4def-8123-456789abcdef")));
    CHECK(!sandbox_id_valid(STR("iabcdefghij01234567\0"
                                "9")));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (sandbox_id_valid(str_of(bad[i])))
            test_fail(__FILE__, __LINE__, "'%s' passed", bad[i]);
}

TEST(a_copy_shares_nothing_with_what_it_was_copied_from)
{
    struct map_item env[] = { { xstrdup("A"), xstrdup("1") }, { xstrdup("B"), xstrdup("") } };
    struct sandbox_mount mounts[] = { { xstrdup("/srv/x"), xstrdup("/x"), true } };
    struct sandbox_forward forwards[] = { { 8080, 80 } };
    struct sandbox from = { .owner = 7,
                            .template = xstrdup("base"),
                            .reason = xstrdup("because"),
                            .env = { 2, env },
                            .mounts = { 1, mounts },
                            .forwards = { 1, forwards } },
                   to;
    const struct sandbox_mount *m;

    sandbox_new_id(&from);
    sandbox_copy(&to, &from);
    for (size_t i = 0; i < ARRAY_LEN(env); i++) {
        free(env[i].key);
        free(env[i].value);
    }
    free(mounts[0].host);
    free(mounts[0].guest);
    memset(mounts, 0xff, sizeof(mounts));
    memset(forwards, 0xff, sizeof(forwards));
    free(from.template);
    free(from.reason);
    CHECK_STR(to.id, from.id);
    CHECK_INT(to.owner, 7);
    CHECK_STR(to.template, "base");
    CHECK_STR(to.reason, "because");
    CHECK(!to.label && !to.idem_key && !to.metadata.items);
    CHECK_STR(map_get(&to.env, "A"), "1");
    CHECK_STR(map_get(&to.env, "B"), "");
    m = to.mounts.items;
    CHECK_STR(m->host, "/srv/x");
    CHECK_STR(m->guest, "/x");
    CHECK(m->ro);
    CHECK_INT(((struct sandbox_forward *)to.forwards.items)->host_port, 8080);
    sandbox_finish(&to);
    CHECK(!to.template && !to.env.n && !to.id[0]);
    sandbox_finish(&to); /* twice is harmless */
}

TEST(names_of_users_are_short_lower_case_and_safe_in_a_path)
{
    static const char *const good[] = { "a", "0", "admin", "j.doe", "x_y-z.9", "a..b" };
    static const char *const bad[] = { "",    ".a",  "-a",  "_a",   "A",        "aB",
                                       "a b", "a/b", "a\n", "a\\b", "\xc3\xa4", "a:" };
    char name[USER_NAME + 2];

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        CHECK(user_name_valid(str_of(good[i])));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(!user_name_valid(str_of(bad[i])));
    CHECK(!user_name_valid((struct str){ "a\0b", 3 }));
    memset(name, 'a', sizeof(name));
    CHECK(user_name_valid((struct str){ name, USER_NAME }));
    CHECK(!user_name_valid((struct str){ name, USER_NAME + 1 }));
}

TEST(a_key_has_the_sdks_form_and_its_hash_is_sha256)
{
    char one[64], two[64], hash[KEY_HASH + 1];

    api_key_new(one);
    api_key_new(two);
    CHECK_INT(strlen(one), 44);
    CHECK(!strncmp(one, "e2b_", 4) && strcmp(one, two));
    CHECK_INT(strspn(one + 4, "0123456789abcdef"), 40);
    api_key_hash(STR("abc"), hash); /* FIPS 180-2, B.1 */
    CHECK_STR(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    api_key_hash(STR(""), hash);
    CHECK_STR(hash, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(a_door_is_where_a_service_waits_as_the_environment_has_it)
{
    static struct {
        char key[32], value[8];
        int port;
        bool door;
    } rows[] = {
        { "A", "b", 8765, true },
        { "A", "b", 8888, true },
        { "A", "b", 49999, true },
        { "A", "b", 8080, false },
        { "A", "b", 49983, false }, /* the guest's, which asks for the token itself */
        { "COVE_REST_PORT", "9000", 9000, true },
        { "COVE_REST_PORT", "9000", 8765, false },
        { "COVE_REST_PORT", "many", 8765, true },
        { "COVE_REST_PORT", "0", 8765, true },
        { "COVE_REST_PORT", "65536", 8765, true },
        { "PORT", "8080", 8080, false }, /* the user's own server */
        { "JUPYTER_KERNEL_GATEWAY_APP_PORT", "80", 80, true },
        { "COVE_INTERPRETER_PORT", "81", 81, true },
        { "COVE_SERVICES", "none", 8765, false },
        { "COVE_SERVICES", "none", 49999, false },
        { "COVE_SERVICES", "rest", 8765, true },
        { "COVE_SERVICES", "rest", 8888, false },
        { "COVE_SERVICES", "all", 8888, true },
        { "COVE_SERVICES", "", 8888, true },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct map_item item = { rows[i].key, rows[i].value };
        struct sandbox s = { .env = { 1, &item } };

        if (door_of_sandbox(&s, (uint16_t)rows[i].port) != rows[i].door)
            test_fail(__FILE__, __LINE__, "%s=%s: port %d", rows[i].key, rows[i].value,
                      rows[i].port);
    }
}

static const struct allowed_row {
    const char *name, *path, *decides; /* of the list below */
} allowed_rows[] = {
    { "the directory itself", "/srv/team", "/srv/team:group" },
    { "what is below it", "/srv/team/a/b", "/srv/team:group" },
    { "the deepest decides, wherever it stands", "/srv/team/private/x", "/srv/team/private/" },
    { "a name that only begins so", "/srv/teams", "/srv" },
    { "a name that ends like the word", "/srv/x:group", "/srv" },
    { "nothing above it", "/etc", NULL },
    { "above all of them", "/", NULL },
};

TEST_ROWS(the_deepest_directory_that_is_allowed_decides, allowed_rows, test_once)
{
    static const char *const list[] = { "/srv", "/srv/team/private/", "/srv/team:group", NULL };
    const char *found = order_mount_allowed(list, row->path);

    CHECK_STR(found ? found : "none", row->decides ? row->decides : "none");
    CHECK(!order_mount_allowed(NULL, row->path));
}

TEST(an_allowed_directory_may_say_that_groups_are_allowed_too)
{
    static const struct {
        const char *text, *dir;
        bool group;
    } rows[] = {
        { "/srv", "/srv", false },
        { "/srv:group", "/srv", true },
        { "/srv/:group", "/srv", true },
        { "/", "/", false },
        { "/:group", "/", true },
        { ":group", ":group", false },
        { "/a:groups", "/a:groups", false },
        { "/a//", "/a", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        bool group = !rows[i].group;
        struct str dir = order_mount_prefix(rows[i].text, &group);

        CHECK_INT(group, rows[i].group);
        CHECK(str_is(dir, rows[i].dir));
    }
}
