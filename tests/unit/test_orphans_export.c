/* A sandbox's own files for people (cli/orphans_export.h), from a volume of each kind. */
#include "cli/orphans_export.h"

#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "volume_fixture.h"

static void put_file(int layer, const char *name, const char *text)
{
    AUTO(closep) int fd = openat(layer, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);

    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static void fill_layer(int layer)
{
    AUTO(closep) int etc = -1;

    CHECK_INT(mkdirat(layer, "r", 0755) || mkdirat(layer, "u", 0755) ||
                  mkdirat(layer, "r/home", 0755) || mkdirat(layer, "r/etc", 0755),
              0);
    put_file(layer, "r/home/file", "text\n");
    put_file(layer, "u/tool", "tool\n");
    CHECK_INT(mknodat(layer, "r/home/gone", S_IFCHR, makedev(0, 0)), 0);
    etc = openat(layer, "r/etc", O_RDONLY | O_CLOEXEC);
    CHECK_INT(fsetxattr(etc, "user.overlay.opaque", "y", 1, 0), 0);
}

static void export_from(const char *dir)
{
    struct volume *v = must_open(dir);
    struct pack_stats stats;
    char file[128], command[256];
    struct stat st;
    int layer = layer_create(v, "box-a1", 7, LIMIT, &err);

    CHECK(layer >= 0);
    fill_layer(layer);
    close(layer);
    snprintf(file, sizeof(file), "%s/export.tar", dir);
    if (orphans_export(dir, "a1", file, &stats, &err))
        test_fail(__FILE__, __LINE__, "export: %s", err.msg);
    CHECK_INT(stats.removed, 2);
    CHECK_INT(stat(file, &st), 0);
    CHECK_INT(st.st_mode & 07777, 0600);
    snprintf(command, sizeof(command),
             "cd %s && tar -xf export.tar && cat home/file usr/tool && LC_ALL=C sort .cove-removed",
             dir);
    CHECK_INT(count_lines(command), 4);
    snprintf(command, sizeof(command),
             "cd %s && [ \"$(LC_ALL=C sort .cove-removed | tr '\\n' ' ')\" = 'etc/ home/gone ' ] "
             "&& echo same",
             dir);
    CHECK_INT(count_lines(command), 1);
    CHECK_INT(orphans_export(dir, "a1", file, &stats, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    unlink(file);
    CHECK_INT(orphans_export(dir, "a2", file, &stats, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(orphans_export(dir, "../a1", file, &stats, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK(access(file, F_OK));
    if (volume_has_snapshots(v)) /* nothing of it is left */
        CHECK_INT(layer_open(v, "run-export-a1", &err), -1);
    CHECK_INT(layer_delete(v, "box-a1", &err), 0);
    volume_close(v);
}

TEST(files_are_exported_from_a_volume) { export_from(new_dir()); }

TEST(files_are_exported_from_plain_directories)
{
    const char *dir = new_dir();
    char path[128];

    snprintf(path, sizeof(path), "%s/volume", dir);
    CHECK_INT(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/volume/layers", dir);
    CHECK_INT(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/volume/layers/other", dir); /* so it stays plain */
    CHECK_INT(mkdir(path, 0700), 0);
    export_from(dir);
}
