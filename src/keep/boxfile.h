/* boxfile.h - what the keeper writes down of a sandbox, as bytes. One table, two kinds of file:
 *
 *   record   <place>/boxes/<id>   of one with processes: enough to find and end them
 *   note     <data>/paused/<id>   of a paused one: its files are on disk, and whose they are
 *
 * A file is a head (magic, schema, kind, length, sum) and tagged fields (base/tag.h). Fields that
 * we do not know are kept and written back. Pure: bytes in, a struct or a reason out. */
#ifndef KEEP_BOXFILE_H
#define KEEP_BOXFILE_H

#include "jail/host.h"
#include "jail/layers.h"
#include "jail/volume.h"
#include "model/order.h"

enum {
    KEEP_SCHEMA = 4, /* of all the keeper's files. Another number only for what a release before
                        would misread: a field more or less is none */
    KEEP_NAME_ROOM = LAYER_NAME_MAX + 1,
    BOOT_ID = 40,
    BOXFILE_MAX = 64 << 10,
};

enum boxfile_kind { BOXFILE_RECORD = 1, BOXFILE_NOTE };
enum { BOXFILE_ORDER = 4 }; /* the tag of its order */
/* how it is; OWN: built on a template of its own, not on host, which is all that a release before
 * this did not say. ASTRAY, of a note: only its files were found, and nothing said that they stay
 */
enum { BOXFILE_FROZEN = 1, BOXFILE_FRESH = 2, BOXFILE_OWN = 4, BOXFILE_ASTRAY = 8 };

struct boxfile {
    char id[ORDER_ID], name[KEEP_NAME_ROOM], boot[BOOT_ID];
    struct order order;
    uint32_t family;
    int32_t pid;      /* of its first process; 0: it was being built */
    uint64_t started; /* when that began, in clock ticks since boot */
    /* a record */
    char fingerprint[HOST_FINGERPRINT]; /* a note's too: of the processes that stand still */
    uint32_t number, is;
    /* by the monotonic clock, which is one for all processes between two boots: setting the
     * machine's clock while no keeper runs ends nothing */
    int64_t deadline_ms;
    uint64_t oom_kills, pids_refused;
    int32_t client; /* the process that it is tied to (ORDER_TIED); 0: none */
    uint64_t client_started;
    /* a note */
    char run_dir[ORDER_PATH];
    /* both */
    char python[LAYERS_ID]; /* the Python layer below it, "-" none; "": a release before this wrote
                               it */
};
extern const struct tag_field boxfile_fields[];

int boxfile_encode(const struct boxfile *f, enum boxfile_kind kind, struct str unknown,
                   struct buf *out, struct err *err);

/* unknown: appended, may be NULL. 0; 1 it is in the form of the release before, and wants to be
 * written anew; -1: ERR_INVALID it is damaged, ERR_UNSUPPORTED a newer release wrote it,
 * ERR_NOT_FOUND it is empty: nothing had been made yet. */
int boxfile_decode(struct str in, enum boxfile_kind kind, const char *id, struct boxfile *out,
                   struct buf *unknown, struct err *err);

#endif
