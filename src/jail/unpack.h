/* unpack.h - an archive from a stranger becomes a directory.
 *
 * Who does what: the caller's process opens the archive, hashes it and pushes its bytes through a
 * pipe. A child parses and writes. It lives in user, mount, pid, net, ipc and uts namespaces of its
 * own, its root is the target directory and nothing else, and of its capabilities only those over
 * that directory's files are left. A hole in a decompressor is worth the template being unpacked.
 *
 * Started by root, the child's ids are 65,536 otherwise unused ones, and the directory is an
 * idmapped mount: files land with the archive's own owners (0, 1000). Started by anybody else, all
 * files become the caller's, and the result says so. */
#ifndef JAIL_UNPACK_H
#define JAIL_UNPACK_H

#include <stdint.h>

#include "base/err.h"
#include "base/setting.h"

struct unpack_stats { /* every number is as the child says: for people, not for decisions */
    uint64_t entries; /* made: those of the archive, and directories it only implied */
    uint64_t bytes;   /* of all files together, holes included */
    uint64_t written; /* of them, without holes */
    uint64_t devices, sockets, whiteouts; /* entries that were left out */
    uint64_t xattrs;                      /* attributes and ACLs that were left out */
    uint64_t owners;   /* entries whose owner is beyond 65535 and became nobody */
    uint64_t stripped; /* absolute names that became relative */
};

struct unpack_request {
    int archive;        /* read from its offset to its end: tar, plain or gzip, bzip2, xz, zstd */
    const char *target; /* an empty directory */
    /* Of a sandbox, by pack.h, and so many bytes of the archive; 0: a template. It comes back as it
     * was, whiteouts, attributes and (where there are ids for them) owners included; what cannot
     * be is an error. No compression, and no bound but the archive's own size. */
    uint64_t layer_bytes;
    void (*progress)(void *arg, const struct unpack_stats *so_far); /* about 10 a second; or NULL */
    void *arg;
};

struct unpack_result {
    struct unpack_stats stats;
    uint64_t archive_bytes;
    char sha256[65]; /* of all the archive's bytes */
    bool squashed;   /* all files belong to the caller */
};

extern const struct setting unpack_settings[];

/* For a process without threads. On failure the target holds what had been written by then; the
 * caller removes it. Errors that are the archive's name the entry. */
int unpack_run(const struct unpack_request *request, struct unpack_result *out, struct err *err);

#endif
