/* note.c - <data>/paused/<id>: a note of each paused sandbox of a shared keeper.
 *
 * It says that the sandbox's files are on disk and whose they are, so that they are kept when its
 * processes are gone, because somebody killed them or the machine was restarted: the run directory
 * with the keeper's other records does not survive that. It is written when the files are on disk
 * and removed before the sandbox goes on. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "keep/keeper.h"
#include "keep/statedir.h"

int note_open(struct keeper *k, struct err *err)
{
    if (k->o.socket >= 0)
        return 0;
    k->notes = statedir_open(k->o.data_dir, "paused", err);
    return k->notes < 0 ? -1 : 0;
}

/* There is no half a note. */
int note_put(const struct keeper *k, const struct boxfile *n, struct str unknown, bool lasting,
             struct err *err)
{
    AUTO(buf_free) struct buf bytes = { 0 };

    if (boxfile_encode(n, BOXFILE_NOTE, unknown, &bytes, err) ||
        statedir_write(k->notes, n->id, buf_str(&bytes), lasting ? STATE_LASTING : STATE_WHOLE,
                       err))
        return err_in(err, "note that sandbox %s is paused", n->id);
    return 0;
}

static void fill_note(const struct box *b, struct boxfile *n)
{
    *n = (struct boxfile){ .order = b->order,
                           .family = b->family,
                           .pid = b->jail.pid,
                           .is = b->own_template ? BOXFILE_OWN : 0,
                           .started = b->started,
                           .deadline_ms = INT64_MAX };
    memcpy(n->id, b->id, sizeof(n->id));
    memcpy(n->name, b->name, sizeof(n->name));
    memcpy(n->python, b->python_id, sizeof(n->python));
    if (b->generation)
        memcpy(n->fingerprint, b->generation->host.fingerprint, sizeof(n->fingerprint));
    snprintf(n->run_dir, sizeof(n->run_dir), "%s", b->keeper->o.run_dir);
    adopt_boot(n->boot);
}

int note_write(const struct box *b, bool lasting, struct err *err)
{
    struct boxfile n;

    if (b->keeper->notes < 0)
        return 0;
    fill_note(b, &n);
    return note_put(b->keeper, &n, buf_str(&b->unknown), lasting, err);
}

void note_mark(const struct box *b)
{
    struct boxfile n;

    fill_note(b, &n);
    keep_layer_paused(b->layer, &n, buf_str(&b->unknown));
}

/* ---- writing one anew ---- */

struct renewal {
    struct pending reply;
    char id[ORDER_ID];
    int draft; /* the note, without a name yet */
    size_t n;
    char bytes[]; /* what is in it */
};

static int sync_draft(struct keeper *k, void *arg, struct err *err)
{
    const struct renewal *r = arg;

    (void)k;
    return fsync(r->draft) ? err_sys(err, "note that sandbox %s is paused", r->id) : 0;
}

static int encode_note(const struct box *b, struct buf *out, struct err *err)
{
    struct boxfile n;

    fill_note(b, &n);
    return boxfile_encode(&n, BOXFILE_NOTE, buf_str(&b->unknown), out, err);
}

/* 1: it is written; 0: it is to be written again, as what it says has changed meanwhile. */
static int place_draft(struct box *b, const struct renewal *r, struct err *err)
{
    AUTO(buf_free) struct buf now = { 0 };

    if (!b)
        return err_set(err, ERR_CONFLICT, "sandbox %s has ended meanwhile", r->id);
    if (!b->noted || b->waking) /* it goes on, and has a record */
        return 1;
    if (encode_note(b, &now, err))
        return -1;
    if (!str_eq(buf_str(&now), (struct str){ r->bytes, r->n }))
        return note_renew(b, &r->reply, err);
    if (statedir_place(b->keeper->notes, r->draft, r->id, err))
        return -1;
    if (b->phase == PHASE_ASLEEP) /* of others their record has said it */
        note_mark(b);
    return 1;
}

static void draft_synced(struct keeper *k, void *arg, const struct err *err)
{
    const struct renewal *r = arg;
    struct box *b = box_find(k, r->id);
    struct err failed = { 0 };
    struct keep_state state = { 0 };
    int done = err ? -1 : place_draft(b, r, &failed);

    close(r->draft);
    if (!done)
        return;
    if (b)
        box_state(b, &state);
    keeper_reply(&r->reply, r->id, done > 0 ? NULL : err ? err : &failed, &state);
}

/* The disk may take long, so a child waits for it; the name is ours to give: what a child wrote
 * under it might be there after the sandbox has been woken. */
int note_renew(struct box *b, const struct pending *reply, struct err *err)
{
    AUTO(buf_free) struct buf bytes = { 0 };
    struct renewal *r;
    int draft;

    if (encode_note(b, &bytes, err))
        return -1;
    draft = statedir_draft(b->keeper->notes, buf_str(&bytes), err);
    if (draft < 0)
        return -1;
    r = xcalloc(1, sizeof(*r) + bytes.len);
    *r = (struct renewal){ .reply = *reply, .draft = draft, .n = bytes.len };
    memcpy(r->id, b->id, sizeof(r->id));
    memcpy(r->bytes, bytes.data, bytes.len);
    if (!job_start(b->keeper, sync_draft, draft_synced, r, &r->reply, err))
        return 0;
    close(draft);
    return -1;
}

int note_sync(const struct keeper *k, struct err *err)
{
    return k->notes >= 0 && fsync(k->notes) ? err_sys(err, "write the notes of paused sandboxes")
                                            : 0;
}

int note_read(const struct keeper *k, const char *id, struct boxfile *out, struct buf *unknown,
              struct err *err)
{
    AUTO(buf_free) struct buf bytes = { 0 };

    if (k->notes < 0)
        return err_set(err, ERR_NOT_FOUND, "this keeper has no notes");
    if (statedir_read(k->notes, id, &bytes, err))
        return -1;
    /* it was made whole: an empty one is no note that was never written, but one that is lost */
    if (!bytes.len)
        return err_set(err, ERR_INVALID, "it is empty");
    return boxfile_decode(buf_str(&bytes), BOXFILE_NOTE, id, out, unknown, err);
}

bool note_exists(const struct keeper *k, const char *id)
{
    /* a disk that fails does not say that there is none */
    return k->notes >= 0 &&
           (!faccessat(k->notes, id, F_OK, AT_SYMLINK_NOFOLLOW) || errno != ENOENT);
}

int note_remove(const struct keeper *k, const char *id, struct err *err)
{
    return k->notes >= 0 && unlinkat(k->notes, id, 0) && errno != ENOENT
               ? err_sys(err, "remove the note of paused sandbox %s", id)
               : 0;
}
