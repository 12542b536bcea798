/* The registry of templates: names, aliases, locks, and what a crash leaves. */
#include "jail/template.h"

#include <errno.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/mem.h"
#include "tar.h"

static const char *data;

static void begin(void) { data = tar_scratch(); }
static void end(void) { tar_scratch_end(data); }

static const char *below(const char *name)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%s", data, name);
    return path;
}

static int add(const char *name, const char *source, struct err *err)
{
    struct template_added added;
    struct template_spec spec = { .name = name, .source = source };

    return template_add(data, &spec, &added, err);
}

static int64_t kind_of(const char *name)
{
    struct template t = { 0 };
    struct err err = { 0 };
    int64_t kind;

    if (template_open(data, name, &t, &err) < 0)
        return -(int64_t)err.code;
    kind = t.kind;
    template_close(&t);
    return kind;
}

TEST(host_is_always_there_and_cannot_be_changed)
{
    struct err err = { 0 };

    begin();
    CHECK_INT(kind_of("host"), TEMPLATE_HOST);
    CHECK_INT(add("host", "/tmp", &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK_INT(template_remove(data, "host", NULL, NULL, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    end();
}

TEST(aliases_mean_host_until_one_of_that_name_is_added)
{
    static const char *const names[] = {
        "base",       "code-interpreter-v1",    "desktop", "mcp-gateway", "ubuntu",
        "qemux/qemu", "python-sandbox-template"
    };
    struct err err = { 0 };

    begin();
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        CHECK_INT(kind_of(names[i]), TEMPLATE_HOST);
    CHECK_INT(kind_of("my-e2b-template"), -ERR_NOT_FOUND);
    template_alias = "my-e2b-template";
    CHECK_INT(kind_of("my-e2b-template"), TEMPLATE_HOST);
    template_alias = NULL;
    CHECK_INT(mkdir(below("root"), 0755), 0);
    CHECK_INT(add("base", below("root"), &err), 0);
    CHECK_INT(kind_of("base"), TEMPLATE_DIRECTORY);
    CHECK_INT(kind_of("ubuntu"), TEMPLATE_HOST);
    CHECK_INT(template_remove(data, "base", NULL, NULL, &err), 0);
    CHECK_INT(kind_of("base"), TEMPLATE_HOST);
    end();
}

TEST(a_name_is_checked_before_it_meets_the_file_system)
{
    static const char *const bad[] = { "",  ".",   "..",  "../x", "a/b",  ".a",    "-a",
                                       "A", "a b", "a\n", "_x",   "\xff", "x\x1b", "a/../../b" };
    char longest[TEMPLATE_NAME_MAX + 2];
    struct err err = { 0 };

    begin();
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK_INT(kind_of(bad[i]), -ERR_INVALID);
        CHECK_INT(add(bad[i], "/tmp", &err), -1);
        CHECK_INT(err.code, ERR_INVALID);
        CHECK_INT(template_remove(data, bad[i], NULL, NULL, &err), -1);
        CHECK_INT(err.code, ERR_INVALID);
    }
    memset(longest, 'a', sizeof(longest));
    longest[TEMPLATE_NAME_MAX + 1] = 0;
    CHECK_INT(kind_of(longest), -ERR_INVALID);
    longest[TEMPLATE_NAME_MAX] = 0;
    CHECK_INT(kind_of(longest), -ERR_NOT_FOUND);
    CHECK_INT(kind_of("0.a_b-c"), -ERR_NOT_FOUND);
    end();
}

TEST(a_directory_may_be_named_by_its_path)
{
    struct template t = { 0 };
    struct err err = { 0 };

    begin();
    CHECK_INT(mkdir(below("root"), 0755), 0);
    CHECK_INT(symlink("root", below("link")), 0);
    CHECK_INT(template_open(data, below("root"), &t, &err), 0);
    CHECK_INT(t.kind, TEMPLATE_DIRECTORY);
    CHECK(t.root >= 0);
    CHECK_STR(t.root_path, below("root"));
    CHECK_INT(fcntl(t.root, F_GETFL) & O_PATH, O_PATH);
    template_close(&t);
    CHECK_INT(kind_of(below("link")), -ERR_INVALID);
    CHECK_INT(kind_of(below("none")), -ERR_NOT_FOUND);
    CHECK_INT(kind_of("/"), -ERR_INVALID);
    CHECK_INT(kind_of("//"), -ERR_INVALID);
    CHECK_INT(kind_of("/etc/passwd"), -ERR_INVALID);
    end();
}

TEST(a_template_keeps_what_it_was_added_with)
{
    struct template_added added;
    struct template t = { 0 };
    struct err err = { 0 };

    begin();
    CHECK_INT(mkdir(below("root"), 0755), 0);
    CHECK_INT(template_add(data,
                           &(struct template_spec){ .name = "x",
                                                    .source = below("root"),
                                                    .user = "ann",
                                                    .workdir = "/srv",
                                                    .limits = { .memory_bytes = 1 << 30 } },
                           &added, &err),
              0);
    CHECK(added.no_programs);
    CHECK_INT(template_open(data, "x", &t, &err), 0);
    CHECK_STR(t.name, "x");
    CHECK_STR(t.user, "ann");
    CHECK_STR(t.workdir, "/srv");
    CHECK(t.limits && t.created && !t.sha256);
    CHECK_INT(t.limits->memory_bytes, 1 << 30);
    CHECK_INT(t.limits->pids, 0);
    template_close(&t);
    CHECK_INT(add("x", below("root"), &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    end();
}

TEST(host_may_be_had_under_another_name_with_defaults_of_its_own)
{
    struct template_spec spec = { .name = "base",
                                  .user = "root",
                                  .kernels = TEMPLATE_KERNELS_WARM };
    struct template_added added;
    struct template t = { 0 }, *list;
    struct err err = { 0 };
    size_t n;

    begin();
    CHECK_INT(template_add(data, &spec, &added, &err), 0);
    CHECK_INT(template_open(data, "base", &t, &err), 0);
    CHECK_INT(t.kind, TEMPLATE_HOST);
    CHECK_INT(t.kernels, TEMPLATE_KERNELS_WARM);
    CHECK_STR(t.name, "base");
    CHECK_STR(t.user, "root");
    CHECK(t.root < 0 && t.lock >= 0 && !t.source);
    CHECK_INT(template_remove(data, "base", NULL, NULL, &err), -1); /* in use */
    CHECK_INT(err.code, ERR_CONFLICT);
    template_close(&t);
    CHECK_INT(template_open(data, "host", &t, &err), 0);
    CHECK_INT(t.kernels, TEMPLATE_KERNELS_ON_DEMAND);
    template_close(&t);
    CHECK_INT(template_list(data, &list, &n, &err), 0);
    CHECK_INT(n, 2);
    CHECK_STR(list[0].name,
              "host"); /* though "base" is of its kind, and before it in the alphabet */
    template_list_free(list, n);
    CHECK_INT(template_remove(data, "base", NULL, NULL, &err), 0);
    end();
}

static void unreadable(const char *name, const char *word)
{
    struct template t = { 0 };
    struct err err = { 0 };

    CHECK_INT(template_open(data, name, &t, &err), -1);
    CHECK_INT(err.code, ERR_PRECONDITION);
    if (!strstr(err.msg, word) || !strstr(err.msg, name))
        test_fail(__FILE__, __LINE__, "'%s' does not name %s of %s", err.msg, word, name);
}

/* An alias as well: who added a template of that name does not mean the machine's own files. */
TEST(a_template_that_cannot_be_read_is_an_error_by_whatever_name)
{
    static const char *const names[] = { "base", "ubuntu", "mine" };
    char root[256], elsewhere[256];
    struct err err = { 0 };

    begin();
    snprintf(root, sizeof(root), "%s", below("root"));
    snprintf(elsewhere, sizeof(elsewhere), "%s", below("elsewhere"));
    CHECK_INT(mkdir(root, 0755), 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char file[64];

        CHECK_INT(add(names[i], root, &err), 0);
        CHECK_INT(rename(root, elsewhere), 0); /* on a disk that is not mounted */
        unreadable(names[i], root);
        CHECK_INT(rename(elsewhere, root), 0);
        CHECK_INT(kind_of(names[i]), TEMPLATE_DIRECTORY);
        snprintf(file, sizeof(file), "templates/%s/template.json", names[i]);
        CHECK_INT(unlink(below(file)), 0);
        unreadable(names[i], "template.json");
    }
    end();
}

TEST(bad_defaults_are_refused_by_name)
{
    struct template_added added;
    struct template_spec spec = { .name = "x", .source = "/tmp", .limits = { .pids = 1 } };
    struct err err = { 0 };

    begin();
    CHECK_INT(template_add(data, &spec, &added, &err), -1);
    CHECK(strstr(err.msg, "limit 'pids'"));
    spec = (struct template_spec){ .name = "x", .source = "/tmp", .workdir = "srv" };
    CHECK_INT(template_add(data, &spec, &added, &err), -1);
    CHECK(strstr(err.msg, "workdir"));
    spec = (struct template_spec){ .name = "x", .source = "/tmp", .user = "a:b" };
    CHECK_INT(template_add(data, &spec, &added, &err), -1);
    CHECK(strstr(err.msg, "user"));
    end();
}

TEST(a_template_in_use_is_not_removed)
{
    struct template one = { 0 }, two = { 0 };
    struct err err = { 0 };

    begin();
    CHECK_INT(mkdir(below("root"), 0755), 0);
    CHECK_INT(add("x", below("root"), &err), 0);
    CHECK_INT(template_open(data, "x", &one, &err), 0);
    CHECK_INT(template_open(data, "x", &two, &err), 0); /* any number of users */
    template_close(&one);
    CHECK_INT(template_remove(data, "x", NULL, NULL, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    template_close(&two);
    CHECK_INT(template_remove(data, "x", NULL, NULL, &err), 0);
    CHECK_INT(kind_of("x"), -ERR_NOT_FOUND);
    CHECK_INT(template_remove(data, "x", NULL, NULL, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(access(below("root"), F_OK), 0); /* a directory template's source is not ours */
    end();
}

TEST(the_folder_is_for_its_owner_only)
{
    struct err err = { 0 };
    struct stat st;

    begin();
    CHECK_INT(mkdir(below("root"), 0755), 0);
    CHECK_INT(add("x", below("root"), &err), 0);
    CHECK_INT(stat(below("templates"), &st), 0);
    CHECK_INT(st.st_mode & 07777, 0700);
    end();
}

TEST(the_list_begins_with_host_and_is_in_order)
{
    struct template *list;
    struct err err = { 0 };
    size_t n;

    begin();
    CHECK_INT(template_list(data, &list, &n, &err), 0);
    CHECK_INT(n, 1);
    template_list_free(list, n);
    CHECK_INT(mkdir(below("root"), 0755), 0);
    CHECK_INT(add("zoo", below("root"), &err), 0);
    CHECK_INT(add("ant", below("root"), &err), 0);
    CHECK_INT(template_list(data, &list, &n, &err), 0);
    CHECK_INT(n, 3);
    CHECK_STR(list[0].name, "host");
    CHECK_STR(list[1].name, "ant");
    CHECK_STR(list[2].name, "zoo");
    template_list_free(list, n);
    end();
}

/* Names of a page of two behind `after`, joined. */
static const char *page_behind(const char *after)
{
    static char out[64];
    struct template page[2];
    struct err err = { 0 };
    size_t n;

    *out = 0;
    CHECK_INT(template_page(data, after, page, ARRAY_LEN(page), &n, &err), 0);
    for (size_t i = 0; i < n; i++) {
        size_t at = strlen(out);

        snprintf(out + at, sizeof(out) - at, "%s ", page[i].name);
        template_close(&page[i]);
    }
    return out;
}

TEST(the_list_can_be_read_in_pages)
{
    struct err err = { 0 };

    begin();
    CHECK_STR(page_behind(""), "host ");
    CHECK_STR(page_behind("host"), "");
    CHECK_INT(mkdir(below("root"), 0755), 0);
    CHECK_INT(add("zoo", below("root"), &err), 0);
    CHECK_INT(add("ant", below("root"), &err), 0);
    CHECK_INT(add("bee", below("root"), &err), 0);
    CHECK_INT(mkdir(below("templates/broken"), 0755), 0);
    CHECK_STR(page_behind(""), "host ant ");
    CHECK_STR(page_behind("host"), "ant bee ");
    CHECK_STR(page_behind("ant"), "bee zoo ");
    CHECK_STR(page_behind("bee"), "zoo ");
    CHECK_STR(page_behind("zoo"), "");
    CHECK(template_taken(data, "ant"));
    CHECK(!template_taken(data, "base") && !template_taken(data, "host"));
    end();
}

TEST(what_a_crash_left_goes_with_the_next_change_and_what_is_in_use_stays)
{
    struct err err = { 0 };
    int busy;

    begin();
    CHECK_INT(mkdir(below("root"), 0755), 0);
    CHECK_INT(mkdir(below("templates"), 0700), 0);
    CHECK_INT(mkdir(below("templates/.tmp.a.12345678"), 0700), 0);
    CHECK_INT(mkdir(below("templates/.tmp.a.12345678/rootfs"), 0000), 0);
    CHECK_INT(mkdir(below("templates/.gone.b.12345678"), 0700), 0);
    CHECK_INT(mkdir(below("templates/.tmp.c.12345678"), 0700), 0);
    busy = open(below("templates/.tmp.c.12345678"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK_INT(flock(busy, LOCK_EX), 0);
    CHECK_INT(add("x", below("root"), &err), 0);
    CHECK_INT(access(below("templates/.tmp.a.12345678"), F_OK), -1);
    CHECK_INT(access(below("templates/.gone.b.12345678"), F_OK), -1);
    CHECK_INT(access(below("templates/.tmp.c.12345678"), F_OK), 0);
    close(busy);
    end();
}

TEST(a_damaged_record_is_named_and_hides_no_other)
{
    struct template *list;
    struct err err = { 0 };
    struct template t = { 0 };
    size_t n;
    int fd;

    begin();
    CHECK_INT(mkdir(below("root"), 0755), 0);
    CHECK_INT(add("x", below("root"), &err), 0);
    CHECK_INT(add("y", below("root"), &err), 0);
    fd = open(below("templates/x/template.json"), O_WRONLY | O_TRUNC | O_CLOEXEC);
    CHECK_INT(write(fd, "{\"name\":", 8), 8);
    close(fd);
    CHECK_INT(template_open(data, "x", &t, &err), -1);
    CHECK(strstr(err.msg, "template 'x'") && strstr(err.msg, "template.json"));
    log_level = LOG_OFF; /* it says which one */
    CHECK_INT(template_list(data, &list, &n, &err), 0);
    log_level = LOG_INFO;
    CHECK_INT(n, 2);
    template_list_free(list, n);
    CHECK_INT(template_remove(data, "x", NULL, NULL, &err), 0);
    end();
}

TEST(a_refused_archive_leaves_nothing)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct err err = { 0 };
    int fd;

    begin();
    tar_add(&b, '0', "bin/sh", NULL, STR("x"));
    tar_add(&b, '0', "../escaped", NULL, STR("x"));
    tar_end(&b);
    fd = open(below("a.tar"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    CHECK_INT(write(fd, b.data, b.len), (ssize_t)b.len);
    close(fd);
    CHECK_INT(add("x", below("a.tar"), &err), -1);
    CHECK_INT(kind_of("x"), -ERR_NOT_FOUND);
    CHECK_INT(rmdir(below("templates")), 0); /* empty */
    end();
}
