/* pack.h - the writable layer of a sandbox becomes a tar archive: owners, modes, times, hard links,
 * extended attributes and holes as they are.
 *
 *   PACK_LAYER    for unpack.h: r/ and u/ as on disk, with overlayfs's whiteouts and its mark of
 *                 directories that hide what the template has in their place
 *   PACK_EXPORT   for people: paths as inside; what was removed is a list in ".cove-removed"
 *
 * Nothing of a sandbox is followed, opened for longer than it is read, or believed. Without root it
 * is done by a child that is root over the caller's subordinate ids: others could not read it. */
#ifndef JAIL_PACK_H
#define JAIL_PACK_H

#include <stdint.h>

#include "base/err.h"

enum pack_style { PACK_LAYER, PACK_EXPORT };

struct pack_request {
    int layer; /* its directory */
    int out;   /* a regular file, written from its offset on; without an end mark in no style */
    enum pack_style style;
};

struct pack_stats {
    uint64_t entries, bytes; /* bytes: of the archive */
    uint64_t removed;        /* whiteouts, and directories that replace the template's */
    uint64_t sockets;        /* left out: they mean nothing without the process behind them */
    uint64_t left_out;       /* names of over 4095 bytes, attributes of over 768 KiB together */
    uint64_t changed;        /* files that became shorter while they were read: ended by zeros */
};

/* For a process without threads. */
int pack_run(const struct pack_request *request, struct pack_stats *out, struct err *err);

#endif
