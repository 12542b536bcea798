/* note.c - <data>/paused/<id>: a note of each paused sandbox of a shared keeper.
 *
 * It says that the sandbox's files are on disk and whose they are, so that they are kept when its
 * processes are gone, because somebody killed them or the machine was restarted: the run directory
 * with the keeper's other records does not survive that. It is written when the files are on disk
 * and removed before the sandbox goes on. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "keep/keeper.h"

enum { NOTE_MAGIC = 0x6e6f7431, DRAFT = KEEP_ID + 2 };

int note_open(struct keeper *k, struct err *err)
{
    AUTO(freep) char *path = NULL;

    if (k->o.socket >= 0)
        return 0;
    if (asprintf(&path, "%s/paused", k->o.data_dir) < 0)
        abort();
    if (mkdir(path, 0700) && errno != EEXIST)
        return err_sys(err, "make %s", path);
    k->notes = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return k->notes < 0 ? err_sys(err, "open %s", path) : 0;
}

/* Another name until it is whole: there is no half a note. */
int note_write(const struct box *b, bool lasting, struct err *err)
{
    const struct keeper *k = b->keeper;
    struct note n = { .magic = NOTE_MAGIC,
                      .size = sizeof(n),
                      .spec = b->spec,
                      .family = b->family,
                      .pid = b->jail.pid,
                      .started = b->started };
    AUTO(closep) int fd = -1;
    char draft[DRAFT];

    if (k->notes < 0)
        return 0;
    memcpy(n.id, b->id, sizeof(n.id));
    memcpy(n.name, b->name, sizeof(n.name));
    snprintf(n.run_dir, sizeof(n.run_dir), "%s", k->o.run_dir);
    adopt_boot(n.boot);
    snprintf(draft, sizeof(draft), ".%s", b->id);
    fd = openat(k->notes, draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, &n, sizeof(n)) != sizeof(n) || (lasting && fsync(fd)) ||
        renameat(k->notes, draft, k->notes, b->id))
        return err_sys(err, "write the note of paused sandbox %s", b->id);
    return 0;
}

int note_sync(const struct keeper *k, struct err *err)
{
    return k->notes >= 0 && fsync(k->notes) ? err_sys(err, "write the notes of paused sandboxes")
                                            : 0;
}

int note_read(const struct keeper *k, const char *id, struct note *out)
{
    AUTO(closep)
    int fd = k->notes < 0 ? -1 : openat(k->notes, id, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0 || read(fd, out, sizeof(*out)) != sizeof(*out) || out->magic != NOTE_MAGIC ||
        out->size != sizeof(*out) || strncmp(out->id, id, sizeof(out->id)) ||
        !record_id_valid(out->id) || !memchr(out->name, 0, sizeof(out->name)) ||
        !layer_name_ok(out->name) || !out->family)
        return -1;
    return 0;
}

bool note_exists(const struct keeper *k, const char *id)
{
    return k->notes >= 0 && !faccessat(k->notes, id, F_OK, AT_SYMLINK_NOFOLLOW);
}

void note_remove(const struct keeper *k, const char *id)
{
    if (k->notes >= 0)
        unlinkat(k->notes, id, 0);
}
