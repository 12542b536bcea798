/* test_guest_files.c - files of a whole guest while others use them too, and by more names than
 * one: nothing that somebody else wrote is lost. */
#include <sched.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/wait.h>

#include "guest_rig.h"

#define COMPOSE   "/files/compose"
#define MARK      "xxBOUNDARYxx"
#define MULTIPART "Content-Type: multipart/form-data; boundary=" MARK "\r\n"

static const char *in_folder(const char *name)
{
    static char path[4][256];
    static int next;
    char *out = path[next++ & 3];

    snprintf(out, sizeof(path[0]), "%s/%s", folder, name);
    return out;
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "we");

    CHECK(f && fputs(text, f) >= 0 && !fclose(f));
}

static const char *content(const char *name)
{
    static char text[64];
    FILE *f = fopen(in_folder(name), "re");
    size_t n;

    if (!f)
        return "(missing)";
    n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = 0;
    return text;
}

/* In a process of its own, like any program in the sandbox. */
static pid_t apart(void (*fn)(void))
{
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid)
        return pid;
    alarm(60);
    fn();
    _exit(0);
}

static void ended(pid_t pid)
{
    int status;

    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
}

static void upload(const char *name, struct str bytes)
{
    char target[300];

    snprintf(target, sizeof(target), "/files?path=%s", in_folder(name));
    ask_with(target, OCTET, bytes);
    CHECK_INT(said.status, 200);
}

/* ---- one file by two names ---- */

static const struct {
    const char *name, *source;
    bool stays; /* it is another name of the result */
} spellings[] = {
    { "the_same", "d/a", true },         { "slashes", "d//a", true },
    { "a_dot", "d/./a", true },          { "up_and_down", "d/../d/a", true },
    { "linked_directory", "l/a", true }, { "hard_link", "d/hard", true },
    { "link_to_it", "d/link", false },
};

GUEST_ROWS(what_is_composed_is_not_removed_as_its_own_source, spellings, test_once)
{
    AUTO(buf_free) struct buf json = { 0 };
    struct stat st;

    make_folder();
    CHECK(!mkdir(in_folder("d"), 0755) && !symlink("d", in_folder("l")));
    put("d/a", "one ");
    put("d/b", "two");
    CHECK(!link(in_folder("d/a"), in_folder("d/hard")));
    CHECK(!symlink("a", in_folder("d/link")));
    buf_printf(&json, "{\"source_paths\":[\"%s\",\"%s\"],\"destination\":\"%s\"}",
               in_folder(row->source), in_folder("d/b"), in_folder("d/a"));
    ask_with(COMPOSE, PLAIN, buf_str(&json));
    CHECK_INT(said.status, 200);
    CHECK_STR(content("d/a"), "one two");
    CHECK_STR(content("d/b"), "(missing)");
    CHECK_INT(!lstat(in_folder(row->source), &st), row->stays);
}

GUEST_TEST(compose_takes_a_name_twice_and_a_link_away)
{
    AUTO(buf_free) struct buf json = { 0 };

    make_folder();
    put("a", "1");
    put("elsewhere", "2");
    CHECK(!symlink("elsewhere", in_folder("link")));
    buf_printf(&json, "{\"source_paths\":[\"%s\",\"%s\",\"%s\"],\"destination\":\"%s\"}",
               in_folder("a"), in_folder("link"), in_folder("a"), in_folder("out"));
    ask_with(COMPOSE, PLAIN, buf_str(&json));
    CHECK_INT(said.status, 200);
    CHECK_STR(content("out"), "121");
    CHECK_STR(content("elsewhere"), "2");
    CHECK_INT(entries_of(folder), 2);
}

enum { LARGE = 16 << 20 };

static void put_large(char byte, size_t size)
{
    AUTO(closep) int fd = open(in_folder("large"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    char *bytes = xmalloc(size);

    memset(bytes, byte, size);
    CHECK_INT(write(fd, bytes, size), size);
    free(bytes);
}

/* When `first` has been read, and the large one behind it is. */
static void wait_for_first(void)
{
    int in = inotify_init1(IN_CLOEXEC);
    char event[300];

    if (inotify_add_watch(in, in_folder("first"), IN_CLOSE_NOWRITE) < 0 ||
        mkdir(in_folder("ready"), 0755) || read(in, event, sizeof(event)) <= 0)
        _exit(1);
}

static void add_to_first(void)
{
    int fd;

    wait_for_first();
    fd = open(in_folder("first"), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (write(fd, "+", 1) != 1)
        _exit(1);
}

static void replace_first(void)
{
    wait_for_first();
    if (rename(in_folder("other"), in_folder("first")))
        _exit(1);
}

static const struct {
    const char *name;
    void (*fn)(void);
    int status;
    const char *first;
} changes[] = { { "added", add_to_first, 409, "1+" }, { "replaced", replace_first, 200, "other" } };

GUEST_ROWS(compose_keeps_a_source_that_changed_since_it_was_read, changes, test_once)
{
    AUTO(buf_free) struct buf json = { 0 };
    struct stat st;
    pid_t pid;

    make_folder();
    put("first", "1");
    put("other", "other");
    put_large('l', LARGE);
    pid = apart(row->fn);
    while (access(in_folder("ready"), F_OK))
        CHECK(!co_sleep(co_in(1)));
    buf_printf(&json, "{\"source_paths\":[\"%s\",\"%s\"],\"destination\":\"%s\"}",
               in_folder("first"), in_folder("large"), in_folder("out"));
    ask_with(COMPOSE, PLAIN, buf_str(&json));
    ended(pid);
    CHECK_INT(said.status, row->status);
    if (row->status == 409)
        REFUSED(KIND_REST, "409", "first", "stays");
    CHECK_STR(content("first"), row->first);
    CHECK(!stat(in_folder("out"), &st) && st.st_size == LARGE + 1);
}

static const char *const twice[] = { "f", "/f", "./f", "d/../f", "link", "hard" };

GUEST_ROWS(two_parts_for_one_file_are_refused_however_it_is_called, twice, test_once)
{
    AUTO(buf_free) struct buf body = { 0 };

    make_folder();
    CHECK(!mkdir(in_folder("d"), 0755) && !symlink("f", in_folder("link")));
    put("f", "old");
    CHECK(!link(in_folder("f"), in_folder("hard")));
    for (int i = 0; i < 2; i++)
        buf_printf(&body,
                   "--" MARK "\r\nContent-Disposition: form-data; name=\"file\"; "
                   "filename=\"%s/%s\"\r\n\r\n%d\r\n",
                   folder, i ? *row : "f", i);
    buf_puts(&body, "--" MARK "--\r\n");
    ask_with("/files", MULTIPART, buf_str(&body));
    REFUSED(KIND_REST, "400", "two parts", *row);
    CHECK_STR(content("f"), "0");
}

/* ---- somebody adds to what was uploaded ---- */

enum { NEW_FILES = 200 };

static void add_to_each(void)
{
    for (int i = 0; i < NEW_FILES; i++) {
        char name[16];
        int fd;

        snprintf(name, sizeof(name), "n%d", i);
        while ((fd = open(in_folder(name), O_WRONLY | O_APPEND | O_CLOEXEC)) < 0)
            sched_yield();
        if (write(fd, "+", 1) != 1)
            _exit(1);
        close(fd);
    }
}

GUEST_TEST(what_is_added_to_a_new_file_as_soon_as_it_is_there_stays)
{
    char name[16];
    pid_t pid;

    make_folder();
    pid = apart(add_to_each);
    for (int i = 0; i < NEW_FILES; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        upload(name, STR("new"));
    }
    ended(pid);
    for (int i = 0; i < NEW_FILES; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        CHECK_STR(content(name), "new+");
    }
}

static void add_behind_the_first_byte(void)
{
    int fd = open(in_folder("large"), O_RDWR | O_APPEND | O_CLOEXEC);
    char first = 'o';

    while (first == 'o' && pread(fd, &first, 1, 0) == 1) {}
    if (first != 'n' || write(fd, "+", 1) != 1)
        _exit(1);
}

GUEST_TEST(what_is_added_to_a_file_that_is_written_over_stays)
{
    char *bytes = xmalloc(LARGE), last;
    struct stat st;
    pid_t pid;
    int fd;

    make_folder();
    put_large('o', LARGE + 1);
    fd = open(in_folder("large"), O_RDONLY | O_CLOEXEC);
    memset(bytes, 'n', LARGE);
    pid = apart(add_behind_the_first_byte);
    upload("large", (struct str){ bytes, LARGE });
    ended(pid);
    CHECK(!fstat(fd, &st) && st.st_size == LARGE + 1);
    CHECK(pread(fd, &last, 1, LARGE) == 1 && last == '+');
    CHECK(pread(fd, &last, 1, LARGE - 1) == 1 && last == 'n');
    close(fd);
    free(bytes);
}

/* ---- others make and remove it meanwhile ---- */

static void make_and_remove(void)
{
    for (;;) {
        int fd = open(in_folder("flapping"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        if (fd >= 0)
            close(fd);
        unlink(in_folder("flapping"));
    }
}

GUEST_TEST(an_upload_over_a_name_that_comes_and_goes_is_whole)
{
    pid_t pid;

    make_folder();
    pid = apart(make_and_remove);
    for (int i = 0; i < 100; i++)
        upload("flapping", STR("whole"));
    CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
    upload("flapping", STR("whole"));
    CHECK_STR(content("flapping"), "whole");
    CHECK_INT(entries_of(folder), 1); /* nothing of ours lies beside it */
}

/* ---- listings ---- */

GUEST_TEST(a_listing_that_cannot_be_whole_is_an_error)
{
    AUTO(buf_free) struct buf json = { 0 };
    char name[201];
    int at;

    make_folder();
    memset(name, 'd', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 22; i++) { /* longer than a path can be */
        int next;

        CHECK(!mkdirat(at, name, 0755));
        next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = next;
    }
    close(at);
    buf_printf(&json, "{\"path\":\"%s\",\"depth\":10}", folder);
    ask_message(KIND_UNARY, "/filesystem.Filesystem/ListDir", "", json.data);
    CHECK_INT(said.status, 200);
    json.len = 0;
    buf_printf(&json, "{\"path\":\"%s\",\"depth\":100}", folder);
    ask_message(KIND_UNARY, "/filesystem.Filesystem/ListDir", "", json.data);
    REFUSED(KIND_UNARY, "invalid_argument", "list", "File name too long");
}
