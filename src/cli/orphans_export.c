/* orphans_export.c - see orphans_export.h. Reads the data directory alone: neither the server nor a
 * keeper is asked, and none has to live. */
#include "cli/orphans_export.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/backup.h"
#include "cli/dirs.h"
#include "jail/volume.h"

/* Of a private sandbox by its name: when we are killed, the next keeper sweeps it. */
#define SNAPSHOT "run-export-"

static int write_part(int layer, const char *part, const char *file, struct pack_stats *out,
                      struct err *err)
{
    AUTO(closep)
    int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct pack_request r = { .layer = layer, .out = fd, .style = PACK_EXPORT };

    if (fd < 0)
        return err_sys(err, "make %s", part);
    if (pack_run(&r, out, err))
        return -1;
    if (fsync(fd) || renameat2(AT_FDCWD, part, AT_FDCWD, file, RENAME_NOREPLACE))
        return err_sys(err, "name the archive %s", file);
    return 0;
}

static int write_file(int layer, const char *file, struct pack_stats *out, struct err *err)
{
    AUTO(buf_free) struct buf part = { 0 };
    int r;

    buf_printf(&part, "%s.part", file);
    unlink(part.data); /* of one that was interrupted */
    r = write_part(layer, part.data, file, out, err);
    if (r)
        unlink(part.data);
    return r;
}

/* It lives in a family of its own for the moment that it lives: whose the layer is, only a note or
 * a record could tell, and there need be neither. */
static int take_snapshot(struct volume *v, const char *name, int layer, struct err *err)
{
    struct err ignored;
    uint32_t family = 0;
    int fd;

    while (!family)
        if (getrandom(&family, sizeof(family), 0) != sizeof(family))
            family = 0;
    if (layer_delete(v, name, &ignored) && ignored.code != ERR_NOT_FOUND)
        log_warn("a snapshot of a former export stays", KV("error", ignored.msg));
    fd = layer_snapshot(v, name, layer, family, 0, true, err);
    if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB)) { /* nobody sweeps it meanwhile */
        err_sys(err, "lock a snapshot");
        close(TAKE(fd, -1));
    }
    return fd;
}

static int export_layer(struct volume *v, const char *id, const char *file, struct pack_stats *out,
                        struct err *err)
{
    char name[KEEP_NAME_ROOM], snapshot[KEEP_NAME_ROOM];
    AUTO(closep) int layer = -1;
    AUTO(closep) int copy = -1;
    struct err ignored;
    int r;

    snprintf(name, sizeof(name), "box-%s", id);
    snprintf(snapshot, sizeof(snapshot), SNAPSHOT "%s", id);
    layer = layer_open(v, name, err);
    if (layer < 0)
        return err->code == ERR_NOT_FOUND
                   ? err_set(err, ERR_NOT_FOUND, "there are no files of a sandbox %s", id)
                   : -1;
    if (!volume_has_snapshots(v))
        return write_file(layer, file, out, err);
    copy = take_snapshot(v, snapshot, layer, err);
    if (copy < 0)
        return -1;
    r = write_file(copy, file, out, err);
    if (layer_delete(v, snapshot, &ignored))
        log_warn("a snapshot stays until somebody sweeps", KV("error", ignored.msg));
    return r;
}

int orphans_export(const char *data_dir, const char *id, const char *file, struct pack_stats *out,
                   struct err *err)
{
    struct volume *v = NULL;
    char checked[ORDER_ID] = "";
    bool ours = false;
    int r;

    if (strlen(id) > ORDER_ID_MAX)
        return err_set(err, ERR_INVALID, "a sandbox's id has at most %d characters", ORDER_ID_MAX);
    snprintf(checked, sizeof(checked), "%.*s", ORDER_ID_MAX, id);
    if (order_check_id("id", checked, err))
        return -1;
    if (!access(file, F_OK))
        return err_set(err, ERR_CONFLICT, "%s exists: choose a name that is free", file);
    if (backup_volume_open(data_dir, &v, &ours, err))
        return -1;
    r = export_layer(v, checked, file, out, err);
    backup_volume_close(data_dir, v, ours);
    return r;
}

/* ---- the command ---- */

struct export_options {
    const char *data;
    bool json;
};

static void print_stats(const struct pack_stats *s, const char *file, bool json)
{
    AUTO(buf_free) struct buf b = { 0 };

    if (!json) {
        printf("%s: %llu entries, %.1f MB, %llu names that were removed\n", file,
               (unsigned long long)s->entries, (double)s->bytes / 1e6,
               (unsigned long long)s->removed);
        if (s->changed)
            printf("it ran meanwhile: %llu files changed or went while they were read\n",
                   (unsigned long long)s->changed);
        if (s->left_out)
            printf("%llu names of over 4095 bytes, or attributes of over 768 KiB of one file, are "
                   "not in it\n",
                   (unsigned long long)s->left_out);
        return;
    }
    json_open(&b, '{');
    json_kv_str(&b, "file", file);
    json_kv_int(&b, "entries", (int64_t)s->entries);
    json_kv_int(&b, "bytes", (int64_t)s->bytes);
    json_kv_int(&b, "removed", (int64_t)s->removed);
    json_kv_int(&b, "changed", (int64_t)s->changed);
    json_kv_int(&b, "left_out", (int64_t)s->left_out);
    json_close(&b, '}');
    puts(buf_cstr(&b));
}

static int run_export(struct args *a)
{
    const struct export_options *o = a->values;
    AUTO(freep) char *data = NULL;
    struct pack_stats stats = { 0 };
    struct err err = { 0 };

    if (args_environment(a, &err))
        return args_fail(a, 2, &err);
    data = o->data ? xstrdup(o->data) : dirs_data();
    if (orphans_export(data, a->words[0], a->words[1], &stats, &err))
        return args_fail(a, 1, &err);
    print_stats(&stats, a->words[1], o->json);
    return 0;
}

static const struct args_option export_options[] = {
    OPTION(struct export_options, json, "json", ARGS_SWITCH, .help = "print the result as JSON"),
    OPTION(struct export_options, data, "data", ARGS_DIR, .env = "COVE_DATA", .value = "DIR",
           .help = "the server's data directory (default /var/lib/cove)"),
    {}
};

static const struct args_word export_words[] = {
    { .name = "ID", .help = "the sandbox" },
    { .name = "FILE", .help = "where the tar archive goes; it must not exist", .type = ARGS_FILE },
    {}
};

const struct command command_orphans_export = {
    .name = "export",
    .help = "copy a sandbox's own files to a tar archive",
    .about = "What it has changed against its template, with paths as inside; what was removed is "
             "a list in .cove-removed: a line per name, with a slash at the end for a directory "
             "that took the place of the template's. Of any sandbox that has files, whether it "
             "runs, is paused, or is not known to any database; no server has to run.",
    .options = export_options,
    .size = sizeof(struct export_options),
    .words = export_words,
    .run = run_export,
};
