/* sqlite_lib.c - the functions of SQLite that we call; see base/lazy.h. */
#include <sqlite3.h>

#include "store/sqlite.h"

#define FUNCTIONS(X)                                                                               \
    X(sqlite3_backup_finish)                                                                       \
    X(sqlite3_backup_init)                                                                         \
    X(sqlite3_backup_step)                                                                         \
    X(sqlite3_bind_blob64)                                                                         \
    X(sqlite3_bind_int64)                                                                          \
    X(sqlite3_bind_null)                                                                           \
    X(sqlite3_bind_text64)                                                                         \
    X(sqlite3_busy_timeout)                                                                        \
    X(sqlite3_changes)                                                                             \
    X(sqlite3_close_v2)                                                                            \
    X(sqlite3_column_blob)                                                                         \
    X(sqlite3_column_bytes)                                                                        \
    X(sqlite3_column_int64)                                                                        \
    X(sqlite3_column_name)                                                                         \
    X(sqlite3_column_text)                                                                         \
    X(sqlite3_column_type)                                                                         \
    X(sqlite3_db_config)                                                                           \
    X(sqlite3_db_readonly)                                                                         \
    X(sqlite3_errcode)                                                                             \
    X(sqlite3_errmsg)                                                                              \
    X(sqlite3_errstr)                                                                              \
    X(sqlite3_exec)                                                                                \
    X(sqlite3_extended_result_codes)                                                               \
    X(sqlite3_file_control)                                                                        \
    X(sqlite3_finalize)                                                                            \
    X(sqlite3_get_autocommit)                                                                      \
    X(sqlite3_last_insert_rowid)                                                                   \
    X(sqlite3_open_v2)                                                                             \
    X(sqlite3_prepare_v2)                                                                          \
    X(sqlite3_prepare_v3)                                                                          \
    X(sqlite3_reset)                                                                               \
    X(sqlite3_step)                                                                                \
    X(sqlite3_stricmp)                                                                             \
    X(sqlite3_system_errno)                                                                        \
    X(sqlite3_wal_checkpoint_v2)                                                                   \
    X(sqlite3_wal_hook)

LAZY_LIBRARY(lazy_sqlite, "libsqlite3.so.0", "libsqlite3-0", FUNCTIONS)
