/* key.c - `cove key`: API keys, one's own, or for admins another's. */
#include "base/field.h"
#include "cli/columns.h"
#include "cli/commands.h"
#include "cli/remote.h"

struct key_options {
    struct remote_options remote;
    const char *user;
};

struct key {
    char *id, *key, *name, *begins, *created, *used;
};
static const struct field key_fields[] = {
    FIELD(struct key, id, F_STR),
    FIELD(struct key, key, F_STR),
    FIELD(struct key, name, F_STR),
    FIELD(struct key, begins, F_STR),
    FIELD(struct key, created, F_STR),
    FIELD(struct key, used, F_STR),
    {},
};

struct keys {
    struct objs keys;
};
static const struct field keys_fields[] = {
    FIELD(struct keys, keys, F_OBJS, .sub = key_fields, .sub_size = sizeof(struct key),
          .max = 1 << 20),
    {},
};

static void put_target(const struct remote *r, const char *id, struct buf *b)
{
    const struct key_options *o = r->args->values;

    buf_puts(b, "/v1/keys");
    if (id) {
        buf_putc(b, '/');
        remote_put_encoded(b, id);
    }
    if (o->user) {
        buf_puts(b, "?user=");
        remote_put_encoded(b, o->user);
    }
}

static int list(struct remote *r, struct err *err)
{
    static const char *const heads[] = { "ID", "NAME", "BEGINS", "CREATED", "USED", NULL };
    AUTO(buf_free) struct buf target = { 0 };
    AUTO(buf_free) struct buf reply = { 0 };
    AUTO(columns_finish) struct columns t;
    struct arena a = { 0 };
    struct keys all = { 0 };
    const struct key *k;
    int failed;

    columns_init(&t, heads);
    put_target(r, NULL, &target);
    if (remote_call(r, "GET", target.data, NULL, &reply, err))
        return -1;
    failed = field_decode_text(keys_fields, FIELDS_PROTO, buf_str(&reply), &a, &all, err);
    k = all.keys.items;
    for (size_t i = 0; i < all.keys.n; i++) {
        const char *cells[] = { k[i].id, k[i].name, k[i].begins, k[i].created,
                                k[i].used ? k[i].used : "never" };

        columns_row(&t, cells);
    }
    if (!failed && r->o->json)
        remote_print(&reply);
    else if (!failed)
        columns_print(&t);
    arena_free(&a);
    return failed ? err_in(err, "the server's answer") : 0;
}

static int add(struct remote *r, struct err *err)
{
    AUTO(buf_free) struct buf target = { 0 };
    AUTO(buf_free) struct buf body = { 0 };
    AUTO(buf_free) struct buf reply = { 0 };
    struct arena a = { 0 };
    struct key k = { 0 };
    int failed;

    put_target(r, NULL, &target);
    json_open(&body, '{');
    json_kv_str(&body, "name", r->args->n ? r->args->words[0] : NULL);
    json_close(&body, '}');
    if (remote_call(r, "POST", target.data, &body, &reply, err))
        return -1;
    failed = field_decode_text(key_fields, FIELDS_PROTO, buf_str(&reply), &a, &k, err);
    if (!failed && !k.key)
        failed = err_set(err, ERR_UPSTREAM, "the server's answer has no key");
    if (!failed && r->o->json) {
        remote_print(&reply);
    } else if (!failed) {
        puts(k.key);
        fprintf(stderr, "%s: this is the only time it is shown; its id is %s\n", r->args->path,
                k.id ? k.id : "?");
    }
    arena_free(&a);
    return failed;
}

static int remove_keys(struct remote *r, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };

    json_open(&json, '[');
    for (size_t i = 0; i < r->args->n; i++) {
        AUTO(buf_free) struct buf target = { 0 };

        put_target(r, r->args->words[i], &target);
        if (remote_call(r, "DELETE", target.data, NULL, NULL, err))
            return -1;
        json_put_str(&json, str_of(r->args->words[i]));
    }
    json_close(&json, ']');
    if (r->o->json)
        remote_print(&json);
    return 0;
}

/* ---- the tables ---- */

static const struct args_option options[] = {
    OPTION(struct key_options, user, "user", ARGS_TEXT, .letter = 'u', .value = "NAME",
           .help = "of this user, for admins (default: your own)"),
    REMOTE_OPTIONS(struct key_options, "print the result as JSON"),
    {}
};

static const struct args_word add_words[] = {
    { .name = "NAME", .help = "what it is for", .flags = ARGS_OPTIONAL }, {}
};
static const struct args_word remove_words[] = {
    { .name = "ID", .help = "which; `cove key list` shows them", .flags = ARGS_MANY }, {}
};

static int run_add(struct args *a)
{
    const struct key_options *o = a->values;

    return remote_command(a, &o->remote, add);
}

static int run_list(struct args *a)
{
    const struct key_options *o = a->values;

    return remote_command(a, &o->remote, list);
}

static int run_remove(struct args *a)
{
    const struct key_options *o = a->values;

    return remote_command(a, &o->remote, remove_keys);
}

static const struct command command_add = {
    .name = "add",
    .help = "make a key and print it, this once",
    .options = options,
    .size = sizeof(struct key_options),
    .words = add_words,
    .run = run_add,
};

static const struct command command_list = {
    .name = "list",
    .help = "show keys, without the secret part",
    .options = options,
    .size = sizeof(struct key_options),
    .run = run_list,
};

static const struct command command_remove = {
    .name = "remove",
    .help = "refuse keys from now on",
    .options = options,
    .size = sizeof(struct key_options),
    .words = remove_words,
    .run = run_remove,
};

static const struct command *const subs[] = { &command_add, &command_list, &command_remove, NULL };

const struct command command_key = {
    .name = "key",
    .help = "make, list and remove API keys",
    .about = "A key is what SDKs and this program show the server: E2B_API_KEY, COVE_API_KEY. Only "
             "its hash is kept.",
    .subs = subs,
};
