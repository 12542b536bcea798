/* orphans_export.h - a sandbox's own files, for people. */
#ifndef CLI_ORPHANS_EXPORT_H
#define CLI_ORPHANS_EXPORT_H

#include "cli/args.h"
#include "jail/pack.h"

extern const struct command command_orphans_export; /* a sub-command of `cove orphans` */

/* What a sandbox has changed against its template, as a tar archive: paths as inside, and what was
 * removed listed in ".cove-removed". Whether it runs, is paused, or has files only, and without a
 * server. Where the volume has snapshots one is read, so that the archive is of one moment; else a
 * sandbox that runs goes on under it, and out->changed says how often that showed. file: does not
 * exist; 0600; whole or absent. ERR_NOT_FOUND: there are no files of that sandbox. */
int orphans_export(const char *data_dir, const char *id, const char *file, struct pack_stats *out,
                   struct err *err);

#endif
