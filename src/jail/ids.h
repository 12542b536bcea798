/* ids.h - the machine-wide numbers of sandboxes: each stands for a range of 65,536 host ids and for
 * one address of the sandbox network.
 *
 * A number is a locked file, so a keeper that is killed gives back what only it used. A sandbox
 * that outlives its keeper leaves a note in the file, the path of its record: while that exists the
 * number stays taken. */
#ifndef JAIL_IDS_H
#define JAIL_IDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum { IDS_RANGE = 65536, IDS_NUMBERS = 49152 };
enum { IDS_PEOPLE = 1000 };   /* below: the machine's own users and groups */
#define IDS_FIRST 0x30000000u /* far above the ranges distributions give to people */

struct ids_interval {
    uint64_t first, last;
};

struct ids {
    int dir;
    int root; /* notes are paths from here: of the mounts that we came from */
    uint32_t next;
    struct ids_interval *foreign; /* owned: ranges of /etc/subuid and subgid in our reach */
    size_t nforeign;
};

struct ids_claim {
    uint32_t number;
    int lock; /* -1: none */
};

int ids_open(struct ids *ids, const char *dir, struct err *err); /* makes it, 0700 */
void ids_close(struct ids *ids);
int ids_take(struct ids *ids, struct ids_claim *out, struct err *err);
int ids_note(const struct ids_claim *claim, const char *note, struct err *err);
/* For adoption: this number, whose note is ours. */
int ids_retake(struct ids *ids, uint32_t number, struct ids_claim *out, struct err *err);
/* The note of this number, if it is `from`, is `to` from now on. */
int ids_renote(const struct ids *ids, uint32_t number, const char *from, const char *to,
               struct err *err);
void ids_put(const struct ids *ids, struct ids_claim *claim); /* forgets the note too */
void ids_sweep(
    const struct ids *ids); /* removes what killed keepers left: files that stand for nothing */
static inline uint32_t ids_host(uint32_t number) { return IDS_FIRST + number * IDS_RANGE; }
/* Is this host id one that a sandbox, whichever, has or may have? */
static inline bool ids_of_sandboxes(uint32_t id)
{
    return id >= IDS_FIRST && id - IDS_FIRST < (uint32_t)IDS_NUMBERS * IDS_RANGE;
}

/* Adds the ranges that a file like /etc/subuid names to ids->foreign (bad lines are skipped). */
void ids_read_foreign(struct ids *ids, struct str text);

#endif
