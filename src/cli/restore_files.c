/* restore_files.c - putting a backup with files back, without a server.
 *
 * The whole archive is checked first. Then each layer is unpacked, by a process that sees nothing
 * else, under a name that any keeper sweeps; when all are there and on disk they get their notes
 * and names, and the database comes last. So until the names, nothing has changed; from there on a
 * restore that was interrupted is finished by doing it again: what has its name is there already.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/backup.h"
#include "jail/unpack.h"
#include "jail/volume.h"
#include "keep/keep.h"
#include "keep/statedir.h"
#include "store/store.h"

#define STAGED "run-restore-"

struct item {
    const struct bundle_member *layer;
    struct boxfile note;
    struct buf unknown;
    char staged[KEEP_NAME_ROOM];
    int fd; /* of its layer, locked; -1: it is not to be put back */
};

struct work {
    const char *data;
    int from, notes;
    struct bundle bundle;
    struct volume *volume;
    bool mounted; /* by us */
    struct item *items;
    size_t n;
    struct backup_summary *summary;
};

/* ---- what the archive says ---- */

/* A note of a stranger's: what it asks for is bounded as any order is, and the keeper judges mounts
 * and templates when the sandbox is resumed. It is of no boot and no process here. */
static int read_note(struct work *w, const struct bundle_member *m, struct item *item,
                     struct err *err)
{
    AUTO(buf_free) struct buf bytes = { 0 };
    char name[KEEP_NAME_ROOM];

    if (bundle_read(w->from, m, BOXFILE_MAX, &bytes, err) ||
        boxfile_decode(buf_str(&bytes), BOXFILE_NOTE, m->id, &item->note, &item->unknown, err) <
            0 ||
        order_check(&item->note.order, err))
        return err_in(err, "the note of sandbox %s", m->id);
    snprintf(name, sizeof(name), "box-%s", m->id);
    if (strcmp(name, item->note.name) != 0)
        return err_set(err, ERR_INVALID, "the note of sandbox %s names layer '%s', not '%s'", m->id,
                       item->note.name, name);
    item->note.pid = 0;
    item->note.started = 0;
    memset(item->note.boot, 0, sizeof(item->note.boot));
    memset(item->note.run_dir, 0, sizeof(item->note.run_dir));
    return 0;
}

static int read_notes(struct work *w, struct err *err)
{
    w->items = xcalloc(w->bundle.n, sizeof(*w->items));
    for (size_t i = 0; i < w->bundle.n; i++) {
        const struct bundle_member *m = &w->bundle.list[i];

        if (m->kind != BUNDLE_NOTE)
            continue;
        w->items[w->n].fd = -1;
        w->items[w->n].layer = bundle_find(&w->bundle, BUNDLE_LAYER, m->id);
        if (read_note(w, m, &w->items[w->n++], err))
            return -1;
    }
    return 0;
}

/* The database as a file of its own, which is looked at before anything changes. */
static int extract_database(struct work *w, const char *to, struct err *err)
{
    const struct bundle_member *m = bundle_find(&w->bundle, BUNDLE_DATABASE, NULL);
    AUTO(closep) int fd = -1;
    AUTO(buf_free) struct buf checked = { 0 };
    off_t at = (off_t)m->at;

    unlink(to); /* of one that was interrupted */
    fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(err, "make %s", to);
    for (uint64_t left = m->size; left;) {
        ssize_t n = copy_file_range(w->from, &at, fd, NULL, (size_t)MIN(left, 1ULL << 30), 0);
        char chunk[16384];

        if (n < 0) { /* between two kinds of file systems */
            n = pread(w->from, chunk, (size_t)MIN(left, (uint64_t)sizeof(chunk)), at);
            if (n > 0 && write(fd, chunk, (size_t)n) != n)
                return err_sys(err, "write %s", to);
            at += n;
        }
        if (n <= 0)
            return err_sys(err, "write %s", to);
        left -= (uint64_t)n;
    }
    buf_printf(&checked, "%s.checked", to);
    unlink(checked.data);
    if (store_sqlite_backup(to, checked.data, err)) /* of a damaged one there is no copy */
        return err_in(err, "its database");
    unlink(checked.data);
    return 0;
}

/* ---- layers ---- */

static uint32_t new_family(void)
{
    uint32_t f = 0;

    while (!f)
        if (getrandom(&f, sizeof(f), 0) != sizeof(f))
            f = 0;
    return f;
}

static void grow(void *arg, const struct unpack_stats *so_far)
{
    struct err ignored;

    (void)so_far;
    (void)volume_grow_if_low(arg, 0, &ignored); /* else the disk says that it is full */
}

static bool is_directory(int dir, const char *name)
{
    struct stat st;

    return !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode);
}

static int unpack_layer(struct work *w, struct item *item, struct err *err)
{
    AUTO(buf_free) struct buf path = { 0 };
    struct unpack_request r = {
        .archive = w->from, .layer_bytes = item->layer->size, .progress = grow, .arg = w->volume
    };
    struct unpack_result result;

    buf_printf(&path, "%s/volume/layers/%s", w->data, item->staged);
    r.target = path.data;
    grow(w->volume, NULL);
    if (!item->layer->size || lseek(w->from, (off_t)item->layer->at, SEEK_SET) < 0)
        return err_set(err, ERR_INVALID, "its layer is empty");
    if (unpack_run(&r, &result, err))
        return -1;
    if (!is_directory(item->fd, "r") || !is_directory(item->fd, "u"))
        return err_set(err, ERR_INVALID, "its layer has no r/ and u/");
    w->summary->bytes += item->layer->size;
    w->summary->squashed |= result.squashed;
    return 0;
}

/* Without a limit until all is there: what it was charged elsewhere need not be what it is here.
 * A family of its own: the number in the note may be somebody else's by now. */
static int stage(struct work *w, struct item *item, struct err *err)
{
    struct err ignored;

    snprintf(item->staged, sizeof(item->staged), STAGED "%s", item->note.id);
    if (layer_delete(w->volume, item->staged, &ignored) && ignored.code != ERR_NOT_FOUND) {
        *err = ignored;
        return -1;
    }
    item->note.family = new_family();
    item->fd = layer_create(w->volume, item->staged, item->note.family, 0, err);
    if (item->fd < 0)
        return -1;
    if (flock(item->fd, LOCK_SH | LOCK_NB))
        return err_sys(err, "lock layer %s", item->staged);
    return unpack_layer(w, item, err) || layer_quota_set(w->volume, item->note.family,
                                                         item->note.order.limits.disk_bytes, err)
               ? -1
               : 0;
}

static int stage_all(struct work *w, struct err *err)
{
    for (size_t i = 0; i < w->n; i++) {
        struct item *item = &w->items[i];
        struct err missing = { 0 };
        int there = layer_open(w->volume, item->note.name, &missing);

        if (there >= 0 && keep_layer_ended(there)) {
            close(there);
            if (layer_delete(w->volume, item->note.name, err))
                return -1;
        } else if (there >= 0) {
            close(there);
            backup_list_add(&w->summary->out, item->note.id,
                            faccessat(w->notes, item->note.id, F_OK, AT_SYMLINK_NOFOLLOW)
                                ? "there are files of it here, and no note that it is paused: they "
                                  "were left as they are"
                                : "its files are here already, and were left as they are");
            continue;
        }
        if (there < 0 && missing.code != ERR_NOT_FOUND) { /* a disk that fails is no witness */
            *err = missing;
            return -1;
        }
        if (stage(w, item, err))
            return err_in(err, "sandbox %s", item->note.id);
    }
    return volume_sync(w->volume, err);
}

/* ---- notes and names ---- */

/* The note first: a note without a layer is nobody's, and made again; a layer without a note could
 * be that of a sandbox that runs. */
static int publish(struct work *w, struct item *item, struct err *err)
{
    AUTO(buf_free) struct buf bytes = { 0 };

    if (boxfile_encode(&item->note, BOXFILE_NOTE, buf_str(&item->unknown), &bytes, err) ||
        statedir_write(w->notes, item->note.id, buf_str(&bytes), STATE_LASTING, err))
        return -1;
    if (fsync(w->notes))
        return err_sys(err, "write the notes of paused sandboxes");
    keep_layer_paused(item->fd, &item->note, buf_str(&item->unknown));
    if (layer_rename(w->volume, item->staged, item->note.name, err))
        return -1;
    item->staged[0] = 0;
    backup_list_add(&w->summary->in, item->note.id, "");
    return 0;
}

static int publish_all(struct work *w, struct err *err)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->items[i].fd >= 0 && publish(w, &w->items[i], err))
            return err_in(err, "sandbox %s", w->items[i].note.id);
    return volume_sync(w->volume, err);
}

/* Its own name is on disk before any note is: else a loss of power could leave layers alone. */
static int open_notes(struct work *w, struct err *err)
{
    AUTO(closep) int data = open(w->data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    w->notes = statedir_open(w->data, "paused", err);
    if (w->notes < 0)
        return -1;
    return data < 0 || fsync(data) ? err_sys(err, "write %s", w->data) : 0;
}

static int put_back(struct work *w, struct err *err)
{
    if (!w->n)
        return 0;
    if (backup_volume_open(w->data, &w->volume, &w->mounted, err) || open_notes(w, err))
        return -1;
    return stage_all(w, err) || publish_all(w, err) ? -1 : 0;
}

static void finish(struct work *w)
{
    struct err err;

    for (size_t i = 0; i < w->n; i++) {
        closep(&w->items[i].fd);
        if (w->items[i].fd >= 0 && *w->items[i].staged)
            layer_delete(w->volume, w->items[i].staged, &err); /* else the next keeper does */
        buf_free(&w->items[i].unknown);
    }
    free(w->items);
    bundle_free(&w->bundle);
    closep(&w->notes);
    if (w->volume)
        backup_volume_close(w->data, w->volume, w->mounted);
}

int restore_files(const char *data, int from, struct backup_summary *out, struct buf *aside,
                  struct err *err)
{
    struct work w = { .data = data, .from = from, .notes = -1, .summary = out };
    AUTO(freep) char *database = backup_database(data);
    AUTO(buf_free) struct buf copy = { 0 };
    int r;

    buf_printf(&copy, "%s.restored", database);
    r = bundle_check(from, &w.bundle, err) || read_notes(&w, err) ||
        extract_database(&w, copy.data, err) || put_back(&w, err) ||
        store_sqlite_restore(copy.data, database, aside, err);
    unlink(copy.data);
    finish(&w);
    return r ? -1 : 0;
}
