/* test_layers.c - layers for all sandboxes: added whole, named by their contents, kept while used.
 */
#include "jail/layers.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "test.h"

static char data[] = "/tmp/cove-layers-XXXXXX";

__attribute__((format(printf, 1, 2))) static void shell(const char *format, ...)
{
    char *command = NULL;
    va_list ap;

    va_start(ap, format);
    CHECK(vasprintf(&command, format, ap) > 0);
    va_end(ap);
    CHECK_INT(system(command), 0); /* NOLINT(cert-env33-c): a script of this test */
    free(command);
}

static int add(const char *tree, struct layers_added *out, struct err *err)
{
    char path[128];
    int fd, r;

    shell("cd %s && rm -rf t && mkdir -p t && cd t && %s && "
          "tar --sort=name --mtime=@0 --owner=0 --group=0 -cf ../t.tar .",
          data, tree);
    snprintf(path, sizeof(path), "%s/t.tar", data);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    r = layers_add(data, "python", fd, "\"more\":1", NULL, NULL, out, err);
    close(fd);
    return r;
}

static bool there(const char *id)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/layers/%s", data, id);
    return !access(path, F_OK);
}

static bool is_named(void *id, const char *what) { return !strcmp(id, what); }

#define TREE(text) "mkdir -p opt/cove/python && echo " text " > opt/cove/python/file"

TEST(a_layer_is_named_by_its_contents_and_kept_while_it_is_held)
{
    struct layers_held held = LAYERS_NONE;
    struct layers_added one, again, two;
    struct err err = { 0 };
    struct buf json = { 0 };
    char id[LAYERS_ID];

    CHECK(mkdtemp(data));
    layers_current(data, "python", id);
    CHECK_STR(id, "");
    CHECK_INT(layers_describe(data, "python", &json, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    if (add(TREE("one"), &one, &err)) {
        printf("# skipped: %s\n", err.msg); /* no user namespaces here */
        shell("rm -rf %s", data);
        return;
    }
    layers_current(data, "python", id);
    CHECK_STR(id, one.id);
    CHECK_INT(layers_describe(data, "python", &json, &err), 0);
    CHECK(strstr(buf_cstr(&json), "\"more\":1}"));
    CHECK_INT(add(TREE("one"), &again, &err), 0);
    CHECK(again.same);
    CHECK_STR(again.id, one.id);

    CHECK_INT(layers_hold(data, one.id, &held, &err), 0);
    CHECK_INT(add(TREE("two"), &two, &err), 0);
    CHECK(strcmp(two.id, one.id) != 0);
    CHECK(there(one.id)); /* a sandbox uses it */
    layers_release(&held);
    CHECK_INT(layers_remove(data, "python", is_named, one.id, &err), 0);
    CHECK(there(one.id) && !there(two.id)); /* a file of one names it */
    CHECK_INT(add(TREE("two"), &two, &err), 0);
    CHECK_INT(layers_remove(data, "python", NULL, NULL, &err), 0);
    CHECK(!there(one.id) && !there(two.id) && !there("python"));
    CHECK_INT(layers_remove(data, "python", NULL, NULL, &err), -1);
    CHECK_INT(layers_hold(data, two.id, &held, &err), -1);
    buf_free(&json);
    shell("rm -rf %s", data);
}

TEST(a_layer_with_files_elsewhere_is_refused_and_leaves_nothing)
{
    struct layers_added added;
    struct err err = { 0 };

    memcpy(data + sizeof(data) - 7, "XXXXXX", 6);
    CHECK(mkdtemp(data));
    CHECK_INT(add("mkdir -p opt/cove/python etc && echo x > etc/passwd", &added, &err), -1);
    CHECK_INT(add("mkdir -p opt/cove/other", &added, &err), -1);
    CHECK_INT(add("mkdir -p opt/cove && ln -s / opt/cove/python", &added, &err), -1);
    CHECK(!there("python"));
    shell("test -z \"$(ls -A %s/layers)\"", data);
    shell("rm -rf %s", data);
}
