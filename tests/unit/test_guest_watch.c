/* test_guest_watch.c - watches that cannot see everything say so, and one that breaks ends. */
#include "guest/watch.h"

#include "guest_rig.h"

#define CREATE "/filesystem.Filesystem/CreateWatcher"
#define EVENTS "/filesystem.Filesystem/GetWatcherEvents"
#define REMOVE "/filesystem.Filesystem/RemoveWatcher"

static char watcher[128]; /* {"watcherId":"..."} */

static void create(const char *path)
{
    AUTO(buf_free) struct buf json = { 0 };

    buf_printf(&json, "{\"path\":\"%s\",\"recursive\":true}", path);
    ask_message(KIND_UNARY, CREATE, "", json.data);
    CHECK_INT(said.status, 200);
    CHECK(said.body.len < sizeof(watcher));
    memcpy(watcher, said.body.data, said.body.len);
    watcher[said.body.len] = 0;
}

static const char *events(void)
{
    ask_message(KIND_UNARY, EVENTS, "", watcher);
    return buf_cstr(&said.body);
}

/* Below folder, so deep that the innermost has no path any more. */
static void make_deep(int parent)
{
    int at = fcntl(parent, F_DUPFD_CLOEXEC, 3);
    char name[201];

    memset(name, 'd', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    for (int i = 0; i < 22; i++) {
        int next;

        CHECK(!mkdirat(at, name, 0755));
        next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = next;
    }
    close(at);
}

GUEST_TEST(a_tree_with_a_directory_that_cannot_be_watched_says_look_again)
{
    AUTO(closep) int at = -1;

    make_folder();
    at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    make_deep(at);
    create(folder);
    CHECK(strstr(events(), "\"overflow\":true"));
    CHECK_STR(events(), "{\"events\":[]}"); /* once */
    ask_message(KIND_UNARY, REMOVE, "", watcher);
    CHECK_INT(said.status, 200);
}

GUEST_TEST(one_that_appears_later_says_so_too)
{
    AUTO(closep) int apart = -1;
    char elsewhere[] = "/tmp/cove-guest-deep-XXXXXX", moved[64];
    int tries = 0;

    make_folder();
    create(folder);
    CHECK_STR(events(), "{\"events\":[]}");
    CHECK(mkdtemp(elsewhere) != NULL);
    apart = open(elsewhere, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    make_deep(apart);
    snprintf(moved, sizeof(moved), "%s/moved", folder);
    CHECK(!rename(elsewhere, moved));
    while (!strstr(events(), "\"overflow\":true") && tries++ < 1000)
        CHECK(!co_sleep(co_in(5)));
    CHECK(tries < 1000);
    ask_message(KIND_UNARY, REMOVE, "", watcher);
    CHECK_INT(said.status, 200);
}

/* Its descriptor is not left behind: the rig counts them. */
GUEST_TEST(a_watcher_whose_reading_failed_says_so_and_is_freed)
{
    struct watcher *w;

    make_folder();
    create(folder);
    w = CONTAINER_OF(rig_guest.watchers.next, struct watcher, all);
    co_cancel(w->reader); /* what a read error is to it */
    while (!w->failed)
        CHECK(!co_sleep(co_in(1)));
    CHECK(strstr(events(), "\"overflow\":true"));
    events();
    REFUSED(KIND_UNARY, "internal", "watch again", folder);
    ask_message(KIND_UNARY, REMOVE, "", watcher);
    CHECK_INT(said.status, 200);
}
