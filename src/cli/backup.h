/* backup.h - what `cove backup` and `cove restore` share: backups with files (keep/bundle.h). */
#ifndef CLI_BACKUP_H
#define CLI_BACKUP_H

#include "base/buf.h"
#include "keep/boxfile.h"
#include "keep/bundle.h"

struct backup_named { /* a sandbox, and what is to be said of it */
    char id[ORDER_ID];
    char why[160];
};

struct backup_list {
    struct backup_named *list; /* owned */
    size_t n, room;
};

void backup_list_free(struct backup_list *l);
void backup_list_add(struct backup_list *l, const char *id, const char *why);

struct backup_summary {
    struct backup_list in, out; /* sandboxes with their files, and those without */
    uint64_t bytes;             /* of the archive, or of the layers put back */
    uint64_t left_out;          /* names and attributes that no archive can hold */
    bool squashed;              /* put back as files of the caller, who has no other ids to give */
};

void backup_summary_free(struct backup_summary *s);

char *backup_database(const char *data); /* its path */

/* Of a data directory whose server may run. to: does not exist; whole or absent. */
int backup_files(const char *data, const char *to, struct backup_summary *out, struct err *err);

/* ours: this process mounted the volume, and takes it off again. */
struct volume;
int backup_volume_open(const char *data, struct volume **out, bool *ours, struct err *err);
void backup_volume_close(const char *data, struct volume *v, bool ours);

/* from: a backup with files, of which every byte is checked before anything changes. The lock of
 * the data directory is the caller's. aside: where the database went that was there. */
int restore_files(const char *data, int from, struct backup_summary *out, struct buf *aside,
                  struct err *err);

#endif
