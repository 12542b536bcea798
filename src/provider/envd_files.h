/* envd_files.h - files of a guest: describing, listing, reading, writing. The same protocol as
 * envd.h; names and sizes come from inside a sandbox and may be anything. */
#ifndef PROVIDER_ENVD_FILES_H
#define PROVIDER_ENVD_FILES_H

#include "base/field.h"
#include "provider/envd.h"

enum envd_file_type { ENVD_FILE, ENVD_DIRECTORY, ENVD_LINK, ENVD_OTHER };

struct envd_entry {    /* strings live in the arena given */
    char *name, *path; /* as the guest calls it */
    enum envd_file_type type;
    int64_t size, mode; /* permission bits; of a link: nothing to go by */
    char *link;         /* LINK: its text; NULL where the guest does not say */
    bool leads_to_dir;  /* LINK: to a directory */
};

struct envd_entries {
    size_t n;
    struct envd_entry *items;
};

/* user NULL: the guest's default. A path that is not absolute lies below the user's home. */
int envd_stat(struct envd *e, const char *user, const char *path, struct arena *a,
              struct envd_entry *out, struct err *err);
int envd_list(struct envd *e, const char *user, const char *path, struct arena *a,
              struct envd_entries *out, struct err *err); /* one level, by name */
/* With its parents. One that exists is ERR_CONFLICT. */
int envd_make_dir(struct envd *e, const char *user, const char *path, struct err *err);
int envd_set_mode(struct envd *e, const char *user, const char *path, int64_t mode,
                  struct err *err);
int envd_make_link(struct envd *e, const char *user, const char *path, const char *target,
                   struct err *err);

/* Reading: x->body is the file; the caller closes. */
struct exchange *envd_read(struct envd *e, const char *user, const char *path, struct err *err);
/* Writing: client_write() the bytes (size of them, or CLIENT_CHUNKED), then envd_written(), which
 * closes. The file appears whole, or not at all. mode -1: the guest's. */
struct exchange *envd_write(struct envd *e, const char *user, const char *path, int64_t mode,
                            int64_t size, struct err *err);
/* failed: a client_write() was refused; the guest may have said why before it stopped reading. */
int envd_written(struct exchange *x, bool failed, struct err *err);

#endif
