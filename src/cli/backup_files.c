/* backup_files.c - a backup with the files of paused sandboxes.
 *
 * Beside a running server, and without asking it: what a note in <data>/paused says is paused has
 * its files on disk, and the note goes before the sandbox goes on. So what has the same note before
 * and behind the reading was paused all the time. Where the volume is btrfs a snapshot is read,
 * which takes a moment for all of them; then the database is copied; and whoever has gone on by
 * then is left out. On plain directories the files themselves are read, and one that has gone on
 * meanwhile is taken out of the archive again. Nobody is ever kept waiting by a backup. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/backup.h"
#include "jail/pack.h"
#include "jail/volume.h"
#include "keep/statedir.h"
#include "store/store.h"

/* A layer of a private sandbox by its name: when we are killed, the next keeper sweeps it. */
#define SNAPSHOT "run-backup-"

static const char gone_on[] = "it went on while the backup was made";

struct item { /* a paused sandbox */
    char id[ORDER_ID];
    struct buf note;
    struct stat noted;
    char snapshot[KEEP_NAME_ROOM]; /* "": none */
    int layer;
    bool out;
};

struct work {
    const char *data, *to;
    struct volume *volume;
    bool mounted; /* by us */
    int notes, file;
    struct item *items;
    size_t n, room;
    struct bundle bundle;
    struct backup_summary *summary;
};

/* ---- lists ---- */

void backup_list_free(struct backup_list *l) { free(l->list); }

void backup_list_add(struct backup_list *l, const char *id, const char *why)
{
    struct backup_named *x;

    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 16;
        l->list = xrealloc(l->list, l->room * sizeof(*l->list));
    }
    x = &l->list[l->n++];
    snprintf(x->id, sizeof(x->id), "%s", id);
    snprintf(x->why, sizeof(x->why), "%s", why);
}

void backup_summary_free(struct backup_summary *s)
{
    backup_list_free(&s->in);
    backup_list_free(&s->out);
}

char *backup_database(const char *data)
{
    struct buf b = { 0 };

    buf_printf(&b, "%s/serve/cove.db", data);
    return b.data;
}

/* ---- the volume ---- */

int backup_volume_open(const char *data, struct volume **out, bool *ours, struct err *err)
{
    AUTO(buf_free) struct buf path = { 0 };
    struct stat inside, outside;

    buf_printf(&path, "%s/volume", data);
    *ours = stat(path.data, &inside) || stat(data, &outside) || inside.st_dev == outside.st_dev;
    if (volume_open(data, out, err))
        return -1;
    *ours = *ours && volume_kind(*out) == VOLUME_BTRFS_LOOP;
    return 0;
}

void backup_volume_close(const char *data, struct volume *v, bool ours)
{
    struct err err;

    volume_close(v);
    if (ours && volume_detach(data, &err) && err.code != ERR_CONFLICT)
        fprintf(stderr, "cove: the volume stays mounted: %s\n", err.msg);
}

/* ---- which are paused ---- */

static void leave_out(struct work *w, struct item *item, const char *why)
{
    item->out = true;
    backup_list_add(&w->summary->out, item->id, why);
}

/* Is it the very note that was read? Another one has another inode, or another time. */
static bool still_noted(const struct work *w, const struct item *item)
{
    struct stat st;

    return !fstatat(w->notes, item->id, &st, AT_SYMLINK_NOFOLLOW) &&
           st.st_ino == item->noted.st_ino && st.st_ctim.tv_sec == item->noted.st_ctim.tv_sec &&
           st.st_ctim.tv_nsec == item->noted.st_ctim.tv_nsec;
}

static int open_layer(struct work *w, struct item *item, const struct boxfile *note,
                      struct err *err)
{
    struct layer_usage use = { 0 };
    struct err ignored;
    int layer = layer_open(w->volume, note->name, err), fd;

    if (layer < 0 || !volume_has_snapshots(w->volume))
        return layer;
    if (layer_usage(w->volume, note->family, &use, &ignored))
        use.limit = note->order.limits.disk_bytes;
    snprintf(item->snapshot, sizeof(item->snapshot), SNAPSHOT "%s", item->id);
    if (layer_delete(w->volume, item->snapshot, &ignored) && ignored.code != ERR_NOT_FOUND)
        log_warn("a snapshot of a former backup stays", KV("error", ignored.msg));
    fd = layer_snapshot(w->volume, item->snapshot, layer, note->family, use.limit, true, err);
    close(layer);
    if (fd < 0)
        item->snapshot[0] = 0;
    else if (flock(fd, LOCK_SH | LOCK_NB)) /* nobody sweeps it meanwhile */
        err_sys(err, "lock a snapshot");
    return fd;
}

static int take_item(struct work *w, struct item *item, struct err *err)
{
    struct boxfile note;

    if (fstatat(w->notes, item->id, &item->noted, AT_SYMLINK_NOFOLLOW) ||
        statedir_read(w->notes, item->id, &item->note, err))
        return err_in(err, "its note");
    if (boxfile_decode(buf_str(&item->note), BOXFILE_NOTE, item->id, &note, NULL, err) < 0)
        return err_in(err, "its note");
    item->layer = open_layer(w, item, &note, err);
    return item->layer < 0 ? -1 : 0;
}

static bool is_id(const char *name)
{
    char id[ORDER_ID] = "";

    if (strlen(name) > ORDER_ID_MAX)
        return false;
    snprintf(id, sizeof(id), "%.*s", ORDER_ID_MAX, name);
    return order_id_valid(id);
}

static void add_item(struct work *w, const char *id) /* is_id() */
{
    struct err err = { 0 };
    struct item *item;

    if (w->n == w->room) {
        w->room = w->room ? 2 * w->room : 16;
        w->items = xrealloc(w->items, w->room * sizeof(*w->items));
    }
    item = &w->items[w->n++];
    *item = (struct item){ .layer = -1 };
    memcpy(item->id, id, strlen(id) + 1);
    if (take_item(w, item, &err))
        leave_out(w, item, err.msg);
}

static int collect(struct work *w, struct err *err)
{
    AUTO(buf_free) struct buf path = { 0 };
    const struct dirent *e;
    DIR *d;

    buf_printf(&path, "%s/paused", w->data);
    w->notes = open(path.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->notes < 0)
        return errno == ENOENT ? 0 : err_sys(err, "open %s", path.data);
    if (backup_volume_open(w->data, &w->volume, &w->mounted, err))
        return -1;
    d = opendir(path.data);
    while (d && (e = readdir(d)))
        if (is_id(e->d_name))
            add_item(w, e->d_name);
    if (!d)
        return err_sys(err, "read %s", path.data);
    closedir(d);
    return 0;
}

/* All that has gone on since it was looked at. */
static void look_again(struct work *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (!w->items[i].out && !still_noted(w, &w->items[i]))
            leave_out(w, &w->items[i], gone_on);
}

/* ---- the database ---- */

/* A sandbox of which there is no note runs, or was paused a moment later. */
static int name_living(void *arg, const struct sandbox *s)
{
    struct work *w = arg;

    for (size_t i = 0; i < w->n; i++)
        if (!strcmp(w->items[i].id, s->id))
            return 0;
    backup_list_add(&w->summary->out, s->id,
                    s->state == SANDBOX_PAUSED ? "it was paused after the backup had begun"
                                               : "it runs: pause it to have its files");
    return 0;
}

/* The copy is in the archive already: what opening it changes is nobody's. */
static int name_rest(struct work *w, const char *copy, struct err *err)
{
    AUTO(buf_free) struct buf node = { 0 };
    struct store *s = NULL;
    int r;

    if (store_open_sqlite(copy, &s, err))
        return -1;
    r = s->ops->value_get(s, "node", &node, err);
    if (r && err->code == ERR_NOT_FOUND)
        r = 0; /* no server has used it yet */
    else if (!r)
        r = s->ops->sandbox_live(s, buf_cstr(&node), name_living, w, err);
    s->ops->close(s);
    return r;
}

static void remove_copy(const char *copy)
{
    static const char *const suffixes[] = { "", "-wal", "-shm" };

    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        AUTO(buf_free) struct buf path = { 0 };

        buf_printf(&path, "%s%s", copy, suffixes[i]);
        unlink(path.data);
    }
}

static int put_copy(struct work *w, const char *copy, struct err *err)
{
    AUTO(closep) int fd = open(copy, O_RDONLY | O_CLOEXEC);
    char chunk[16384];
    ssize_t n = 0;

    if (fd < 0)
        return err_sys(err, "open %s", copy);
    if (bundle_begin(w->file, &w->bundle, BUNDLE_DATABASE, NULL, err))
        return -1;
    while ((n = read(fd, chunk, sizeof(chunk))) > 0)
        if (write(w->file, chunk, (size_t)n) != n)
            return err_sys(err, "write the backup");
    return n < 0 ? err_sys(err, "read %s", copy) : bundle_end(w->file, &w->bundle, err);
}

static int put_database(struct work *w, struct err *err)
{
    AUTO(freep) char *path = backup_database(w->data);
    AUTO(buf_free) struct buf copy = { 0 };
    int r;

    buf_printf(&copy, "%s.database", w->to);
    remove_copy(copy.data); /* of one that was interrupted */
    r = store_sqlite_backup(path, copy.data, err);
    if (!r) {
        look_again(w);
        r = put_copy(w, copy.data, err) || name_rest(w, copy.data, err);
    }
    remove_copy(copy.data);
    return r ? -1 : 0;
}

/* ---- the archive ---- */

/* Out of the archive again: its note and what there is of its files. */
static int take_back(struct work *w, struct item *item, const char *why, struct err *err)
{
    leave_out(w, item, why);
    return bundle_drop_last(w->file, &w->bundle, err) || bundle_drop_last(w->file, &w->bundle, err)
               ? -1
               : 1;
}

/* 0; 1: it was not paused all the time, or cannot be read, and is not in the archive; -1. */
static int put_item(struct work *w, struct item *item, struct err *err)
{
    struct pack_request r = { .layer = item->layer, .out = w->file, .style = PACK_LAYER };
    struct pack_stats stats;
    struct err failed = { 0 };

    if (bundle_put(w->file, &w->bundle, BUNDLE_NOTE, item->id, buf_str(&item->note), err) ||
        bundle_begin(w->file, &w->bundle, BUNDLE_LAYER, item->id, err))
        return -1;
    if (pack_run(&r, &stats, &failed)) {
        /* one file that cannot be read must not cost the others their backup; a full disk does */
        if (failed.code != ERR_NO_SPACE)
            return take_back(w, item, failed.msg, err);
        *err = failed;
        return -1;
    }
    if (!*item->snapshot && !still_noted(w, item))
        return take_back(w, item, gone_on, err);
    w->summary->left_out += stats.left_out;
    return bundle_end(w->file, &w->bundle, err);
}

static void let_go(struct work *w, struct item *item)
{
    struct err err;

    buf_free(&item->note);
    closep(&item->layer);
    if (*item->snapshot && layer_delete(w->volume, item->snapshot, &err))
        log_warn("a snapshot stays until somebody sweeps", KV("error", err.msg));
    item->snapshot[0] = 0;
    item->layer = -1;
}

static int put_all(struct work *w, struct err *err)
{
    if (bundle_put(w->file, &w->bundle, BUNDLE_VERSION, NULL, STR(BUNDLE_FORMAT), err) ||
        put_database(w, err))
        return -1;
    for (size_t i = 0; i < w->n; i++) {
        int r = w->items[i].out ? 1 : put_item(w, &w->items[i], err);

        if (r < 0)
            return -1;
        if (!r)
            backup_list_add(&w->summary->in, w->items[i].id, "");
        let_go(w, &w->items[i]);
    }
    return bundle_finish(w->file, &w->bundle, err);
}

static int sync_parent(const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    AUTO(freep) char *dir = slash ? xstrndup(path, (size_t)(slash - path) + 1) : xstrdup(".");
    AUTO(closep) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 || fsync(fd) ? err_sys(err, "write the directory of %s", path) : 0;
}

static int write_file(struct work *w, const char *part, struct err *err)
{
    struct stat st;

    w->file = open(part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (w->file < 0)
        return err_sys(err, "make %s", part);
    if (collect(w, err) || put_all(w, err) || fstat(w->file, &st))
        return -1;
    w->summary->bytes = (uint64_t)st.st_size;
    if (renameat2(AT_FDCWD, part, AT_FDCWD, w->to, RENAME_NOREPLACE))
        return err_sys(err, "name the backup %s", w->to);
    return sync_parent(w->to, err);
}

int backup_files(const char *data, const char *to, struct backup_summary *out, struct err *err)
{
    struct work w = { .data = data, .to = to, .notes = -1, .file = -1, .summary = out };
    AUTO(buf_free) struct buf part = { 0 };
    int r;

    if (!access(to, F_OK))
        return err_set(err, ERR_CONFLICT, "%s exists: choose a name that is free", to);
    buf_printf(&part, "%s.part", to);
    unlink(part.data); /* of a backup that was interrupted */
    r = write_file(&w, part.data, err);
    if (r)
        unlink(part.data);
    for (size_t i = 0; i < w.n; i++)
        let_go(&w, &w.items[i]);
    free(w.items);
    bundle_free(&w.bundle);
    closep(&w.notes);
    closep(&w.file);
    if (w.volume)
        backup_volume_close(data, w.volume, w.mounted);
    return r;
}
