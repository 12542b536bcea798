/* backup.c - `cove backup` and `cove restore`: the server's database, and with --files what paused
 * sandboxes have written, as one file. The first works beside a running server, the second only
 * without one. */
#include "cli/backup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/setting.h"
#include "cli/commands.h"
#include "cli/dirs.h"
#include "cli/serve.h"
#include "jail/unpack.h"
#include "jail/volume.h"
#include "keep/statedir.h"
#include "store/store.h"

struct backup_options {
    const char *data;
    bool files, json;
    struct args_list set;
};

static char *data_of(const struct args *a)
{
    const struct backup_options *o = a->values;

    return o->data ? xstrdup(o->data) : dirs_data();
}

/* ---- what is said ---- */

static void put_ids(struct buf *b, const char *key, const struct backup_list *l, bool why)
{
    json_key(b, key);
    json_open(b, '[');
    for (size_t i = 0; i < l->n; i++) {
        json_open(b, '{');
        json_kv_str(b, "id", l->list[i].id);
        if (why)
            json_kv_str(b, "reason", l->list[i].why);
        json_close(b, '}');
    }
    json_close(b, ']');
}

static void print_json(const char *file, const char *database, const char *aside,
                       const struct backup_summary *s)
{
    AUTO(buf_free) struct buf b = { 0 };

    json_open(&b, '{');
    json_kv_str(&b, "file", file);
    json_kv_str(&b, "database", database);
    json_kv_str(&b, "replaced", aside);
    if (s) {
        put_ids(&b, "sandboxes", &s->in, false);
        put_ids(&b, "without_files", &s->out, true);
        json_kv_int(&b, "bytes", (int64_t)s->bytes);
        json_kv_int(&b, "left_out", (int64_t)s->left_out);
        if (s->squashed)
            json_kv_bool(&b, "owners_lost", true);
    }
    json_close(&b, '}');
    puts(buf_cstr(&b));
}

static void print_list(const char *title, const struct backup_list *l)
{
    if (l->n)
        printf("%s\n", title);
    for (size_t i = 0; i < l->n; i++)
        printf("  %s%s%s\n", l->list[i].id, *l->list[i].why ? ": " : "", l->list[i].why);
}

static void print_left_out(const struct backup_summary *s)
{
    if (s->left_out)
        printf("%llu names of over 4095 bytes, or attributes of over 768 KiB of one file, are not "
               "in it\n",
               (unsigned long long)s->left_out);
}

/* ---- backup ---- */

static void print_backup(const char *file, const char *database, const struct backup_summary *s)
{
    printf("%s: a copy of %s, checked\n", file, database);
    if (!s)
        return;
    print_list("with the files of these paused sandboxes:", &s->in);
    print_list("without the files of these:", &s->out);
    print_left_out(s);
}

static int run_backup(struct args *a)
{
    const struct backup_options *o = a->values;
    AUTO(freep) char *data = NULL, *path = NULL;
    AUTO(backup_summary_free) struct backup_summary summary = { 0 };
    const char *file = a->words[0];
    struct err err = { 0 };

    if (args_environment(a, &err))
        return args_fail(a, 2, &err);
    data = data_of(a);
    path = backup_database(data);
    if (o->files ? backup_files(data, file, &summary, &err) : store_sqlite_backup(path, file, &err))
        return args_fail(a, 1, &err);
    if (o->json)
        print_json(file, path, NULL, o->files ? &summary : NULL);
    else
        print_backup(file, path, o->files ? &summary : NULL);
    return 0;
}

/* ---- restore ---- */

/* On another machine, or after the loss of the disk, there is nothing yet. */
static int make_directories(const char *data, struct err *err)
{
    AUTO(buf_free) struct buf state = { 0 };

    buf_printf(&state, "%s/serve", data);
    if ((mkdir(data, 0700) && errno != EEXIST) || (mkdir(state.data, 0700) && errno != EEXIST))
        return err_sys(err, "make %s", state.data);
    return 0;
}

static int restore(const char *data, const char *file, int from, struct backup_summary *summary,
                   struct buf *aside, struct err *err)
{
    AUTO(freep) char *path = backup_database(data), *copy = xstrdup(data);
    struct serve s = { .lock = -1, .data_dir = copy };
    int r;

    if (schema_check(data, err))
        return -1;
    r = serve_lock(&s, err) || (summary ? restore_files(data, from, summary, aside, err)
                                        : store_sqlite_restore(file, path, aside, err));
    closep(&s.lock);
    return r ? -1 : 0;
}

static void print_restore(const char *file, const char *database, const struct buf *aside,
                          const struct backup_summary *s)
{
    printf("%s is now %s", database, s ? "that of " : "");
    printf("%s", file);
    if (!access(buf_cstr(aside), F_OK))
        printf("; what was there is %s", aside->data);
    putchar('\n');
    if (s) {
        print_list("these sandboxes are paused, with their files:", &s->in);
        print_list("these are as they were:", &s->out);
        if (s->squashed)
            puts("Owners are lost: all files are yours, as you have no subordinate ids to give "
                 "(/etc/subuid).");
    }
    puts("At the next start sandboxes that it does not know are set aside (cove orphans).");
}

static int apply_settings(const struct backup_options *o, struct err *err)
{
    static const struct setting *const tables[] = { volume_settings, unpack_settings, NULL };

    for (size_t i = 0; i < o->set.n; i++)
        if (setting_set(tables, o->set.items[i], err))
            return err_in(err, "--set");
    return 0;
}

static int run_restore(struct args *a)
{
    const struct backup_options *o = a->values;
    AUTO(freep) char *data = NULL, *path = NULL;
    AUTO(backup_summary_free) struct backup_summary summary = { 0 };
    AUTO(buf_free) struct buf aside = { 0 };
    AUTO(closep) int from = -1;
    const char *file = a->words[0];
    struct err err = { 0 };
    bool files;

    if (args_environment(a, &err) || apply_settings(o, &err))
        return args_fail(a, 2, &err);
    data = data_of(a);
    path = backup_database(data);
    from = open(file, O_RDONLY | O_CLOEXEC);
    files = from >= 0 && bundle_is(from);
    if (files && make_directories(data, &err))
        return args_fail(a, 1, &err);
    if (restore(data, file, from, files ? &summary : NULL, &aside, &err)) {
        if (files)
            err_in(&err, "%s", file);
        return args_fail(a, 1, &err);
    }
    if (o->json)
        print_json(file, path, access(buf_cstr(&aside), F_OK) ? NULL : aside.data,
                   files ? &summary : NULL);
    else
        print_restore(file, path, &aside, files ? &summary : NULL);
    return 0;
}

/* ---- the tables ---- */

#define DATA                                                                                       \
    OPTION(struct backup_options, data, "data", ARGS_DIR, .env = "COVE_DATA", .value = "DIR",      \
           .help = "the server's data directory (default /var/lib/cove)")
#define JSON                                                                                       \
    OPTION(struct backup_options, json, "json", ARGS_SWITCH, .help = "print the result as JSON")

static const struct args_option backup_options[] = {
    OPTION(struct backup_options, files, "files", ARGS_SWITCH,
           .help = "with the files of paused sandboxes"),
    JSON,
    DATA,
    {}
};

static const struct args_option restore_options[] = {
    OPTION(struct backup_options, set, "set", ARGS_TEXT, .value = "NAME=VALUE",
           .flags = ARGS_REPEAT,
           .help = "change a bound of the volume or of unpacking, as for cove serve"),
    JSON,
    DATA,
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
             "on. The database is checked first: of a damaged one there is no copy.\n\n"
             "With --files the copy is a tar archive that has what paused sandboxes have written, "
             "too. Those that run, and those that go on before it is made, are named and not in "
             "it; nobody waits. Templates and the administrator's key are not in it.",
    .options = backup_options,
    .size = sizeof(struct backup_options),
    .words = backup_words,
    .run = run_backup,
};

const struct command command_restore = {
    .name = "restore",
    .help = "put a copy in the database's place",
    .about = "The server must not be running. The file is checked first; the database that was "
             "there is kept beside it. Sandboxes that the copy does not know are set aside at the "
             "next start (cove orphans).\n\n"
             "Of a copy with files, paused sandboxes get theirs back; what is here already is "
             "left as it is and named. When it is interrupted, do it again.",
    .options = restore_options,
    .size = sizeof(struct backup_options),
    .words = restore_words,
    .run = run_restore,
};
