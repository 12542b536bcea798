/* unpack_archive.h - libarchive, loaded on first use: a machine without it runs Cove all the same.
 *
 * One table of the functions we call; their types come from its header, so that a wrong call does
 * not compile. Only the tar format and four compressions are switched on: the fewer parsers a
 * hostile file can choose from, the better. */
#ifndef JAIL_UNPACK_ARCHIVE_H
#define JAIL_UNPACK_ARCHIVE_H

#include <archive.h>
#include <archive_entry.h>
#include <stdbool.h>

#include "base/err.h"

#define UNPACK_ARCHIVE_FUNCTIONS(X)                                                                \
    X(error_string)                                                                                \
    X(filter_bytes)                                                                                \
    X(read_new)                                                                                    \
    X(read_free)                                                                                   \
    X(read_open)                                                                                   \
    X(read_next_header)                                                                            \
    X(read_data_block)                                                                             \
    X(read_data_skip)                                                                              \
    X(read_support_filter_gzip)                                                                    \
    X(read_support_filter_bzip2)                                                                   \
    X(read_support_filter_xz)                                                                      \
    X(read_support_filter_zstd)                                                                    \
    X(read_support_format_tar)                                                                     \
    X(entry_acl_count)                                                                             \
    X(entry_filetype)                                                                              \
    X(entry_gid)                                                                                   \
    X(entry_hardlink)                                                                              \
    X(entry_hardlink_utf8)                                                                         \
    X(entry_mtime)                                                                                 \
    X(entry_mtime_nsec)                                                                            \
    X(entry_pathname)                                                                              \
    X(entry_pathname_utf8)                                                                         \
    X(entry_perm)                                                                                  \
    X(entry_rdevmajor)                                                                             \
    X(entry_rdevminor)                                                                             \
    X(entry_size)                                                                                  \
    X(entry_symlink)                                                                               \
    X(entry_symlink_utf8)                                                                          \
    X(entry_uid)                                                                                   \
    X(entry_xattr_next)                                                                            \
    X(entry_xattr_reset)

struct unpack_archive {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declarator takes no parentheses there
#define UNPACK_ARCHIVE_MEMBER(name) __typeof__(archive_##name) *name;
    UNPACK_ARCHIVE_FUNCTIONS(UNPACK_ARCHIVE_MEMBER)
#undef UNPACK_ARCHIVE_MEMBER
};

/* NULL with err: the library is not installed, which package has it. Loaded once, never unloaded.
 */
const struct unpack_archive *unpack_archive_load(struct err *err);

/* A reader of the format above, and of the compressions if wanted. Never NULL. */
struct archive *unpack_archive_new(const struct unpack_archive *lib, bool compressed);

#endif
