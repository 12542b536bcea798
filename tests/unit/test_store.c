/* test_store.c - what every kind of store promises about sandboxes and their events. */
#include "store_fixture.h"

/* ---- sandboxes ---- */

static void check_map(const struct map *got, const struct map *want)
{
    CHECK_INT(got->n, want->n);
    for (size_t i = 0; i < want->n; i++) {
        CHECK_STR(got->items[i].key, want->items[i].key);
        CHECK_STR(got->items[i].value, want->items[i].value);
    }
}

static void check_text(const char *got, const char *want)
{
    CHECK_INT(!got, !want);
    if (want)
        CHECK_STR(got, want);
}

static void check_lists(const struct sandbox *got, const struct sandbox *want)
{
    const struct sandbox_mount *m = got->mounts.items, *wm = want->mounts.items;
    const struct sandbox_forward *f = got->forwards.items, *wf = want->forwards.items;

    check_map(&got->metadata, &want->metadata);
    check_map(&got->env, &want->env);
    CHECK_INT(got->mounts.n, want->mounts.n);
    for (size_t i = 0; i < want->mounts.n; i++) {
        CHECK_STR(m[i].host, wm[i].host);
        CHECK_STR(m[i].guest, wm[i].guest);
        CHECK_INT(m[i].ro, wm[i].ro);
    }
    CHECK_INT(got->forwards.n, want->forwards.n);
    for (size_t i = 0; i < want->forwards.n; i++) {
        CHECK_INT(f[i].host_port, wf[i].host_port);
        CHECK_INT(f[i].port, wf[i].port);
        CHECK_INT(f[i].public, wf[i].public);
    }
}

static void check_same(const struct sandbox *got, const struct sandbox *want)
{
    CHECK_STR(got->id, want->id);
    CHECK_STR(got->uuid, want->uuid);
    CHECK_INT(got->owner, want->owner);
    CHECK_INT(got->state, want->state);
    CHECK_INT(got->network, want->network);
    check_text(got->template, want->template);
    check_text(got->provider, want->provider);
    check_text(got->node, want->node);
    check_text(got->label, want->label);
    check_text(got->facade, want->facade);
    check_text(got->idem_key, want->idem_key);
    check_text(got->idem_hash, want->idem_hash);
    check_text(got->reason, want->reason);
    for (enum limit_id id = 0; id < LIMIT_COUNT; id++)
        CHECK_INT(limits_get(&got->limits, id), limits_get(&want->limits, id));
    CHECK_INT(got->life.timeout_ms, want->life.timeout_ms);
    CHECK_INT(got->life.idle_ms, want->life.idle_ms);
    CHECK_INT(got->life.expiry, want->life.expiry);
    CHECK_INT(got->life.auto_resume, want->life.auto_resume);
    CHECK_INT(got->life.restart, want->life.restart);
    CHECK_INT(got->secure, want->secure);
    CHECK_INT(got->strict, want->strict);
    CHECK_INT(got->public, want->public);
    CHECK_STR(got->token, want->token);
    CHECK_STR(got->traffic_token, want->traffic_token);
    CHECK_INT(got->created_ms, want->created_ms);
    CHECK_INT(got->started_ms, want->started_ms);
    CHECK_INT(got->ended_ms, want->ended_ms);
    CHECK_INT(got->end_ms, want->end_ms);
    check_lists(got, want);
}

static void check_stored(struct store *s, const struct sandbox *want)
{
    struct sandbox got;

    OK(s->ops->sandbox_get(s, want->id, &got, &err));
    check_same(&got, want);
    sandbox_finish(&got);
    OK(s->ops->sandbox_get(s, want->uuid, &got, &err));
    check_same(&got, want);
    sandbox_finish(&got);
}

#define HOSTILE                                                                                    \
    "\xe2\x80\xae snowman \xe2\x98\x83 \xf0\x9f\x90\xb3 '; DROP TABLE sandboxes; -- \" \\ \t\r\n"  \
    "\x01\x7f ?1 :id %s {\"a\":[1]} </script>"

STORE_TEST(every_field_of_a_sandbox_comes_back_as_it_was_given)
{
    static char text[] = HOSTILE, empty[] = "", key[] = "retry-1", host[] = "/srv/a b",
                guest[] = "/m";
    struct map_item metadata[] = { { text, text }, { empty, empty }, { key, host } };
    struct map_item env[] = { { key, text } };
    struct sandbox_mount mounts[] = { { host, guest, true }, { guest, text, false } };
    struct sandbox_forward forwards[] = { { 8080, 80, false }, { 0, 65535, true } };
    struct sandbox b = sample(sample_user(s, "ann"));

    b.network = NETWORK_NONE;
    b.template = text;
    b.label = text;
    b.idem_key = key;
    b.idem_hash = text;
    b.life = (struct life){ 300000, 7200000, EXPIRY_PAUSE, true, true };
    b.secure = b.strict = b.public = true;
    memset(b.token, 't', SANDBOX_TOKEN);
    memset(b.traffic_token, 'u', SANDBOX_TOKEN);
    b.metadata = (struct map){ ARRAY_LEN(metadata), metadata };
    b.env = (struct map){ ARRAY_LEN(env), env };
    b.mounts = (struct objs){ ARRAY_LEN(mounts), mounts };
    b.forwards = (struct objs){ ARRAY_LEN(forwards), forwards };
    OK(s->ops->sandbox_add(s, &b, NULL, NULL, &err));
    check_stored(s, &b);

    b.state = SANDBOX_RUNNING;
    b.template = empty;
    b.label = NULL;
    b.reason = text;
    for (enum limit_id id = 0; id < LIMIT_COUNT; id++)
        *limits_field(&b.limits, id) = limit_rows[id].max;
    b.life = (struct life){ 0 };
    b.secure = b.strict = b.public = false;
    b.token[0] = 0;
    b.started_ms = b.end_ms = INT64_MAX;
    b.metadata = b.env = (struct map){ 0 };
    b.mounts = b.forwards = (struct objs){ 0 };
    OK(s->ops->sandbox_save(s, &b, SANDBOX_CREATING, NULL, &err));
    check_stored(s, &b);
}

STORE_TEST(bytes_that_are_not_utf8_neither_break_a_row_nor_hide_one)
{
    static char wild[] = "\xff\xfe\x80 \xc3\x28 \xed\xa0\x80", other[] = "\xfe\xfe\x80 \xc3\x28";
    struct map_item metadata[] = { { wild, wild }, { other, wild } };
    struct sandbox b = sample(sample_user(s, "ann")), got;

    b.label = wild;
    b.metadata = (struct map){ 2, metadata };
    OK(s->ops->sandbox_add(s, &b, NULL, NULL, &err));
    OK(s->ops->sandbox_get(s, b.id, &got, &err));
    CHECK_STR(got.label, wild);
    CHECK(got.metadata.n >= 1); /* JSON is UTF-8: U+FFFD stands for each such byte */
    CHECK(utf8_valid(str_of(got.metadata.items[0].value)));
    sandbox_finish(&got);
}

STORE_TEST(long_texts_and_many_entries_come_back_whole)
{
    enum { ENTRIES = 1000, LONG = 1 << 20 };
    struct sandbox b = sample(sample_user(s, "ann"));
    struct arena a = { 0 };
    char *text = arena_alloc(&a, LONG + 1);
    struct map_item *items = arena_alloc(&a, ENTRIES * sizeof(*items));

    memset(text, 'x', LONG);
    for (int i = 0; i < ENTRIES; i++)
        items[i] = (struct map_item){ arena_printf(&a, "key-%d", i), text + LONG - i };
    b.label = text;
    b.env = (struct map){ ENTRIES, items };
    OK(s->ops->sandbox_add(s, &b, NULL, NULL, &err));
    check_stored(s, &b);
    arena_free(&a);
}

STORE_TEST(an_unknown_sandbox_is_not_found)
{
    struct sandbox b = sample(sample_user(s, "ann")), got = { .owner = 5 };
    struct event e = { .kind = "x", .actor = "y", .text = "z" };

    FAILS(s->ops->sandbox_get(s, b.id, &got, &err), ERR_NOT_FOUND);
    FAILS(s->ops->sandbox_get(s, b.uuid, &got, &err), ERR_NOT_FOUND);
    FAILS(s->ops->sandbox_get(s, "", &got, &err), ERR_NOT_FOUND);
    FAILS(s->ops->sandbox_get(s, "' OR 1=1 --", &got, &err), ERR_NOT_FOUND);
    FAILS(s->ops->sandbox_by_key(s, 1, "k", &got, &err), ERR_NOT_FOUND);
    FAILS(s->ops->sandbox_save(s, &b, SANDBOX_CREATING, NULL, &err), ERR_NOT_FOUND);
    FAILS(s->ops->sandbox_save(s, &b, SANDBOX_CREATING, &e, &err), ERR_NOT_FOUND);
    memcpy(e.sandbox, b.id, sizeof(b.id));
    FAILS(s->ops->event_add(s, &e, &err), ERR_NOT_FOUND);
    CHECK_INT(got.owner, 5); /* outputs of a failure stay as they were */
}

STORE_TEST(an_id_a_uuid_and_an_owner_that_do_not_fit_are_refused)
{
    struct sandbox b = sample(sample_user(s, "ann")), same_id = sample(b.owner),
                   same_uuid = sample(b.owner), orphan = sample(b.owner + 1000),
                   nameless = sample(b.owner);
    char existing[SANDBOX_ID + 1] = "stale";

    OK(s->ops->sandbox_add(s, &b, NULL, existing, &err));
    CHECK_STR(existing, "");
    memcpy(same_id.id, b.id, sizeof(b.id));
    memcpy(same_uuid.uuid, b.uuid, sizeof(b.uuid));
    nameless.template = NULL;
    FAILS(s->ops->sandbox_add(s, &same_id, NULL, existing, &err), ERR_CONFLICT);
    CHECK_STR(existing, "");
    FAILS(s->ops->sandbox_add(s, &same_uuid, NULL, existing, &err), ERR_CONFLICT);
    FAILS(s->ops->sandbox_add(s, &orphan, NULL, existing, &err), ERR_NOT_FOUND);
    FAILS(s->ops->sandbox_add(s, &nameless, NULL, existing, &err), ERR_INVALID);
    check_stored(s, &b);
}

STORE_TEST(an_idempotency_key_belongs_to_one_sandbox_of_its_owner)
{
    static char key[] = "same key", hash[] = "h";
    struct sandbox first = sample(sample_user(s, "ann")), again = sample(first.owner),
                   other = sample(sample_user(s, "bob")), got;
    struct event e = { .kind = "created", .actor = "ann", .text = "made" };
    char existing[SANDBOX_ID + 1];

    first.idem_key = again.idem_key = other.idem_key = key;
    first.idem_hash = again.idem_hash = other.idem_hash = hash;
    OK(s->ops->sandbox_add(s, &first, &e, existing, &err));
    FAILS(s->ops->sandbox_add(s, &again, &e, existing, &err), ERR_CONFLICT);
    CHECK_STR(existing, first.id);
    FAILS(s->ops->sandbox_add(s, &again, NULL, NULL, &err), ERR_CONFLICT);
    FAILS(s->ops->sandbox_get(s, again.id, &got, &err), ERR_NOT_FOUND);
    OK(s->ops->sandbox_add(s, &other, NULL, existing, &err)); /* another owner's is another key */
    OK(s->ops->sandbox_by_key(s, first.owner, key, &got, &err));
    check_same(&got, &first);
    sandbox_finish(&got);
    FAILS(s->ops->sandbox_by_key(s, first.owner, "another", &got, &err), ERR_NOT_FOUND);
}

STORE_TEST(one_that_ends_without_having_started_lets_go_of_its_key)
{
    static char key[] = "k", hash[] = "h";
    struct sandbox failed = sample(sample_user(s, "ann")), retry = sample(failed.owner),
                   third = sample(failed.owner), got;

    failed.idem_key = retry.idem_key = third.idem_key = key;
    failed.idem_hash = retry.idem_hash = third.idem_hash = hash;
    OK(s->ops->sandbox_add(s, &failed, NULL, NULL, &err));
    failed.state = SANDBOX_ENDED;
    failed.ended_ms = 5;
    OK(s->ops->sandbox_save(s, &failed, SANDBOX_CREATING, NULL, &err));
    FAILS(s->ops->sandbox_by_key(s, failed.owner, key, &got, &err), ERR_NOT_FOUND);
    OK(s->ops->sandbox_add(s, &retry, NULL, NULL, &err));

    retry.state = SANDBOX_ENDED; /* this one did start: a repeated request must not make another */
    retry.started_ms = 6;
    OK(s->ops->sandbox_save(s, &retry, SANDBOX_CREATING, NULL, &err));
    FAILS(s->ops->sandbox_add(s, &third, NULL, NULL, &err), ERR_CONFLICT);
}

STORE_TEST(a_save_is_refused_when_the_state_is_another_than_the_caller_thought)
{
    struct sandbox b = sample(sample_user(s, "ann"));
    struct event e = { .kind = "started", .actor = "system", .text = "it runs" };

    OK(s->ops->sandbox_add(s, &b, NULL, NULL, &err));
    b.state = SANDBOX_PAUSING;
    FAILS(s->ops->sandbox_save(s, &b, SANDBOX_RUNNING, &e, &err), ERR_CONFLICT);
    CHECK(strstr(err.msg, "is creating, not running"));
    b.state = SANDBOX_RUNNING;
    OK(s->ops->sandbox_save(s, &b, SANDBOX_CREATING, &e, &err));
    FAILS(s->ops->sandbox_save(s, &b, SANDBOX_CREATING, &e, &err), ERR_CONFLICT);
    check_stored(s, &b);
}

/* Every pair of states: the store keeps the table of moves, whatever its caller does. */
STORE_TEST(a_save_follows_the_table_of_moves)
{
    int64_t owner = sample_user(s, "ann");

    for (int from = 0; from < SANDBOX_STATES; from++)
        for (int to = 0; to < SANDBOX_STATES; to++) {
            struct sandbox b = sample(owner);
            bool may = from == to || sandbox_may((enum sandbox_state)from, (enum sandbox_state)to);

            b.state = from;
            OK(s->ops->sandbox_add(s, &b, NULL, NULL, &err));
            b.state = to;
            CHECK_INT(s->ops->sandbox_save(s, &b, (enum sandbox_state)from, NULL, &err),
                      may ? 0 : -1);
            if (!may)
                CHECK_INT(err.code, ERR_CONFLICT);
            b.state = may ? to : from;
            check_stored(s, &b);
        }
}

/* ---- lists ---- */

struct listed {
    int n, stop_at;
    int64_t last;
    char ids[32][SANDBOX_ID + 1];
};

static int list_sandbox(void *arg, const struct sandbox *b)
{
    struct listed *l = arg;

    memcpy(l->ids[l->n % 32], b->id, sizeof(b->id));
    return ++l->n == l->stop_at;
}

static struct sandbox add_ended(struct store *s, int64_t owner, int64_t at)
{
    struct sandbox b = sample(owner);

    OK(s->ops->sandbox_add(s, &b, NULL, NULL, &err));
    b.state = SANDBOX_ENDED;
    b.ended_ms = at;
    OK(s->ops->sandbox_save(s, &b, SANDBOX_CREATING, NULL, &err));
    return b;
}

STORE_TEST(a_start_reads_those_of_its_node_that_have_not_ended)
{
    int64_t owner = sample_user(s, "ann");
    struct sandbox one = sample(owner), two = sample(owner), elsewhere = sample(owner);
    static char node[] = "n2";
    struct listed l = { 0 };

    elsewhere.node = node;
    OK(s->ops->sandbox_live(s, "n1", list_sandbox, &l, &err));
    CHECK_INT(l.n, 0);
    OK(s->ops->sandbox_add(s, &one, NULL, NULL, &err));
    OK(s->ops->sandbox_add(s, &elsewhere, NULL, NULL, &err));
    OK(s->ops->sandbox_add(s, &two, NULL, NULL, &err));
    add_ended(s, owner, 5);
    two.state = SANDBOX_ENDING;
    OK(s->ops->sandbox_save(s, &two, SANDBOX_CREATING, NULL, &err));
    OK(s->ops->sandbox_live(s, "n1", list_sandbox, &l, &err));
    CHECK_INT(l.n, 2);
    CHECK_STR(l.ids[0], one.id);
    CHECK_STR(l.ids[1], two.id);
    two.state = SANDBOX_ENDED;
    OK(s->ops->sandbox_save(s, &two, SANDBOX_ENDING, NULL, &err));
    l = (struct listed){ 0 };
    OK(s->ops->sandbox_live(s, "n1", list_sandbox, &l, &err));
    CHECK_INT(l.n, 1);
    l = (struct listed){ 0 };
    OK(s->ops->sandbox_live(s, "n2", list_sandbox, &l, &err));
    CHECK_INT(l.n, 1);
}

STORE_TEST(the_latest_ended_come_first_and_are_bounded_by_owner_and_number)
{
    int64_t ann = sample_user(s, "ann"), bob = sample_user(s, "bob");
    struct sandbox old = add_ended(s, ann, 10), latest = add_ended(s, ann, 30),
                   middle = add_ended(s, bob, 20), tie = add_ended(s, ann, 30), live = sample(ann);
    struct listed l = { 0 };

    OK(s->ops->sandbox_add(s, &live, NULL, NULL, &err));
    OK(s->ops->sandbox_ended(s, 0, 100, list_sandbox, &l, &err));
    CHECK_INT(l.n, 4);
    CHECK_STR(l.ids[0], tie.id); /* of two at the same moment the later one */
    CHECK_STR(l.ids[1], latest.id);
    CHECK_STR(l.ids[2], middle.id);
    CHECK_STR(l.ids[3], old.id);
    l = (struct listed){ 0 };
    OK(s->ops->sandbox_ended(s, bob, 100, list_sandbox, &l, &err));
    CHECK_INT(l.n, 1);
    l = (struct listed){ 0 };
    OK(s->ops->sandbox_ended(s, ann, 2, list_sandbox, &l, &err));
    CHECK_INT(l.n, 2);
    l = (struct listed){ .stop_at = 1 };
    OK(s->ops->sandbox_ended(s, 0, 100, list_sandbox, &l, &err));
    CHECK_INT(l.n, 1);
    l = (struct listed){ 0 };
    OK(s->ops->sandbox_ended(s, 0, -1, list_sandbox, &l, &err));
    CHECK_INT(l.n, 0);
}

/* ---- events ---- */

static int list_event(void *arg, const struct event *e)
{
    struct listed *l = arg;

    CHECK(e->seq > l->last);
    l->last = e->seq;
    memcpy(l->ids[l->n % 32], e->kind, MIN(strlen(e->kind) + 1, sizeof(l->ids[0])));
    return ++l->n == l->stop_at;
}

STORE_TEST(events_come_back_in_order_behind_a_number)
{
    struct sandbox b = sample(sample_user(s, "ann")), other = sample(b.owner);
    struct event e = {
        .at_ms = 5, .kind = "created", .actor = HOSTILE, .text = "t", .detail = "{}"
    };
    struct listed l = { 0 };
    int64_t second;

    OK(s->ops->sandbox_add(s, &b, &e, NULL, &err));
    OK(s->ops->sandbox_add(s, &other, &e, NULL, &err));
    e.kind = "started";
    e.detail = NULL;
    b.state = SANDBOX_RUNNING;
    OK(s->ops->sandbox_save(s, &b, SANDBOX_CREATING, &e, &err));
    e.kind = "limit";
    memcpy(e.sandbox, b.id, sizeof(b.id));
    OK(s->ops->event_add(s, &e, &err));
    OK(s->ops->event_list(s, b.id, 0, 100, list_event, &l, &err));
    CHECK_INT(l.n, 3);
    CHECK_STR(l.ids[0], "created");
    CHECK_STR(l.ids[1], "started");
    CHECK_STR(l.ids[2], "limit");
    l = (struct listed){ .stop_at = 2 };
    OK(s->ops->event_list(s, b.id, 0, 100, list_event, &l, &err));
    second = l.last;
    l = (struct listed){ 0 };
    OK(s->ops->event_list(s, b.id, second, 100, list_event, &l, &err));
    CHECK_INT(l.n, 1);
    CHECK_STR(l.ids[0], "limit");
    l = (struct listed){ 0 };
    OK(s->ops->event_list(s, b.id, 0, 1, list_event, &l, &err));
    CHECK_INT(l.n, 1);
    OK(s->ops->event_list(s, "iunknown", 0, 100, list_event, &l, &err));
    CHECK_INT(l.n, 1);
}

static int check_event(void *arg, const struct event *e)
{
    const struct event *want = arg;

    CHECK_STR(e->sandbox, want->sandbox);
    CHECK_INT(e->at_ms, want->at_ms);
    CHECK_STR(e->kind, want->kind);
    CHECK_STR(e->actor, want->actor);
    CHECK_STR(e->text, want->text);
    check_text(e->detail, want->detail);
    return 0;
}

STORE_TEST(an_event_keeps_every_field_and_one_that_is_not_whole_undoes_the_save_with_it)
{
    struct sandbox b = sample(sample_user(s, "ann")), other = sample(b.owner), got;
    struct event e = { .at_ms = INT64_MIN,
                       .kind = HOSTILE,
                       .actor = "",
                       .text = HOSTILE,
                       .detail = "{\"a\":1}" },
                 bad = { .kind = "started", .actor = "ann" };

    memcpy(e.sandbox, b.id, sizeof(b.id));
    OK(s->ops->sandbox_add(s, &b, &e, NULL, &err));
    OK(s->ops->event_list(s, b.id, 0, 9, check_event, &e, &err));
    FAILS(s->ops->sandbox_add(s, &other, &bad, NULL, &err), ERR_INVALID);
    FAILS(s->ops->sandbox_get(s, other.id, &got, &err), ERR_NOT_FOUND);
    b.state = SANDBOX_RUNNING;
    FAILS(s->ops->sandbox_save(s, &b, SANDBOX_CREATING, &bad, &err), ERR_INVALID);
    b.state = SANDBOX_CREATING;
    check_stored(s, &b);
}

STORE_TEST(pruning_forgets_the_old_ended_ones_with_events_and_keys_and_no_number_comes_again)
{
    int64_t owner = sample_user(s, "ann");
    struct sandbox kept = add_ended(s, owner, 1000), live = sample(owner), got, b;
    struct event e = { .kind = "k", .actor = "a", .text = "t" };
    struct listed l = { 0 };
    int64_t last;

    OK(s->ops->sandbox_add(s, &live, &e, NULL, &err));
    for (int i = 0; i < 450; i++)
        b = add_ended(s, owner, i);
    memcpy(e.sandbox, b.id, sizeof(b.id));
    OK(s->ops->event_add(s, &e, &err));
    OK(s->ops->event_list(s, b.id, 0, 9, list_event, &l, &err));
    last = l.last;
    CHECK_INT(s->ops->sandbox_prune(s, 0, &err), 0);
    CHECK_INT(s->ops->sandbox_prune(s, 1000, &err), 450);
    CHECK_INT(s->ops->sandbox_prune(s, 1000, &err), 0);
    FAILS(s->ops->sandbox_get(s, b.id, &got, &err), ERR_NOT_FOUND);
    check_stored(s, &kept);
    check_stored(s, &live);
    l = (struct listed){ 0 };
    OK(s->ops->event_list(s, b.id, 0, 9, list_event, &l, &err));
    CHECK_INT(l.n, 0);
    memcpy(e.sandbox, live.id, sizeof(live.id));
    OK(s->ops->event_add(s, &e, &err));
    OK(s->ops->event_list(s, live.id, last, 9, list_event, &l, &err));
    CHECK_INT(l.n, 1);
}

static int add_orphan(void *arg, const struct orphan_row *o)
{
    buf_printf(arg, "%s %lld %lld %s;", o->id, (long long)o->found_ms, (long long)o->kept_ms,
               o->reason);
    return 0;
}

STORE_TEST(a_machine_without_a_row_is_listed_since_it_was_found)
{
    AUTO(buf_free) struct buf got = { 0 };
    struct orphan_row a = {
        .id = "i00000000000000000001", .found_ms = 5, .kept_ms = 7, .reason = "one"
    };
    struct orphan_row b = { .id = "i00000000000000000002", .found_ms = 4, .reason = "two" };

    OK(s->ops->orphan_put(s, &a, &err));
    OK(s->ops->orphan_put(s, &b, &err));
    a.found_ms = 9; /* it keeps its first */
    a.kept_ms = 8;
    memcpy(a.reason, "new", 4);
    OK(s->ops->orphan_put(s, &a, &err));
    a.kept_ms = 0; /* by who could not read its row */
    OK(s->ops->orphan_put(s, &a, &err));
    OK(s->ops->orphan_list(s, add_orphan, &got, &err));
    CHECK_STR(buf_cstr(&got), "i00000000000000000002 4 0 two;i00000000000000000001 5 8 new;");
    OK(s->ops->orphan_remove(s, b.id, &err));
    OK(s->ops->orphan_remove(s, b.id, &err));
    got.len = 0;
    OK(s->ops->orphan_list(s, add_orphan, &got, &err));
    CHECK_STR(buf_cstr(&got), "i00000000000000000001 5 8 new;");
}
