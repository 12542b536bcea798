/* backup.c - `cove backup` and `cove restore`: the server's database as one file. The first works
 * beside a running server, the second only without one. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/dirs.h"
#include "cli/serve.h"
#include "store/store.h"

struct backup_options {
    const char *data;
};

static char *data_of(const struct args *a)
{
    const struct backup_options *o = a->values;

    return o->data ? xstrdup(o->data) : dirs_data();
}

static char *database_of(const char *data)
{
    struct buf b = { 0 };

    buf_printf(&b, "%s/serve/cove.db", data);
    return b.data;
}

static int run_backup(struct args *a)
{
    AUTO(freep) char *data = NULL, *path = NULL;
    struct err err = { 0 };

    if (args_environment(a, &err))
        return args_fail(a, 2, &err);
    data = data_of(a);
    path = database_of(data);
    if (store_sqlite_backup(path, a->words[0], &err))
        return args_fail(a, 1, &err);
    printf("%s: a copy of %s, checked\n", a->words[0], path);
    return 0;
}

static int run_restore(struct args *a)
{
    AUTO(freep) char *data = NULL, *path = NULL;
    AUTO(buf_free) struct buf aside = { 0 };
    struct serve s = { .lock = -1 };
    struct err err = { 0 };
    int r;

    if (args_environment(a, &err))
        return args_fail(a, 2, &err);
    s.data_dir = data = data_of(a);
    path = database_of(data);
    r = serve_lock(&s, &err) || store_sqlite_restore(a->words[0], path, &aside, &err);
    closep(&s.lock);
    if (r)
        return args_fail(a, 1, &err);
    printf("%s is now %s; what was there is %s\n"
           "At the next start sandboxes that it does not know are set aside (cove orphans).\n",
           path, a->words[0], access(aside.data, F_OK) ? "nothing" : aside.data);
    return 0;
}

static const struct args_option options[] = {
    OPTION(struct backup_options, data, "data", ARGS_DIR, .env = "COVE_DATA", .value = "DIR",
           .help = "the server's data directory (default /var/lib/cove)"),
    {}
};

static const struct args_word backup_words[] = {
    { .name = "FILE", .help = "where the copy goes; it must not exist", .type = ARGS_FILE }, {}
};

static const struct args_word restore_words[] = {
    { .name = "FILE", .help = "made by `cove backup`", .type = ARGS_FILE }, {}
};

const struct command command_backup = {
    .name = "backup",
    .help = "copy the server's database to a file",
    .about = "Users, keys, sandboxes' records and events, as of one moment, while the server goes "
             "on. The database is checked first: of a damaged one there is no copy. Files of "
             "sandboxes are not in it.",
    .options = options,
    .size = sizeof(struct backup_options),
    .words = backup_words,
    .run = run_backup,
};

const struct command command_restore = {
    .name = "restore",
    .help = "put a copy in the database's place",
    .about = "The server must not be running. The file is checked first; the database that was "
             "there is kept beside it. Sandboxes that the copy does not know are set aside at the "
             "next start (cove orphans).",
    .options = options,
    .size = sizeof(struct backup_options),
    .words = restore_words,
    .run = run_restore,
};
