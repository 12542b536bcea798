/* fuzz_json_field.c - JSON read by a table of every type. The first byte chooses strict or
 * protobuf's rules. Promise: what was read and written again reads as the same. */
#include "base/field.h"
#include "fuzz.h"

struct leaf {
    char *id;
    int64_t size;
    struct bytes raw;
};

struct tree {
    char *name;
    int64_t count, big, kind;
    bool on;
    double ratio;
    struct map env;
    struct strs args;
    struct bytes data;
    struct leaf *one;
    struct objs many;
};

static const struct field leaf_fields[] = {
    FIELD(struct leaf, id, F_STR, .flags = F_REQUIRED, .min = 1, .max = 16),
    FIELD(struct leaf, size, F_INT),
    FIELD(struct leaf, raw, F_BYTES, .max = 10),
    {},
};

static const struct field_name kinds[] = { { "NONE", 0 }, { "FILE", 1 }, { "DIR", -7 }, {} };

static const struct field tree_fields[] = {
    FIELD(struct tree, name, F_STR, .max = 64),
    FIELD(struct tree, count, F_INT, .min = -100, .max = 1000, .def = 300),
    FIELD_AS(struct tree, big, "bigNumber", F_INT, .flags = F_INT64),
    FIELD_AS(struct tree, kind, "theKind", F_ENUM, .names = kinds, .def = 1),
    FIELD(struct tree, on, F_BOOL),
    FIELD(struct tree, ratio, F_NUM, .def = 2),
    FIELD(struct tree, env, F_MAP, .max = 8),
    FIELD(struct tree, args, F_STRS, .max = 8),
    FIELD(struct tree, data, F_BYTES, .flags = F_OMIT),
    FIELD(struct tree, one, F_OBJ, .sub = leaf_fields, .sub_size = sizeof(struct leaf),
          .flags = F_OMIT),
    FIELD(struct tree, many, F_OBJS, .sub = leaf_fields, .sub_size = sizeof(struct leaf), .max = 4),
    {},
};

static void check_bounds(const struct tree *t)
{
    MUST(t->count >= -100 && t->count <= 1000);
    MUST(t->kind == 0 || t->kind == 1 || t->kind == -7);
    MUST(t->env.n <= 8 && t->args.n <= 8 && t->many.n <= 4);
    MUST(!t->name || (strlen(t->name) <= 64 && utf8_valid(str_of(t->name))));
    for (size_t i = 0; i < t->env.n; i++)
        MUST(!strcmp(map_get(&t->env, t->env.items[i].key), t->env.items[i].value));
    for (size_t i = 0; i < t->many.n; i++) {
        const struct leaf *l = (const struct leaf *)t->many.items + i;

        MUST(l->id && l->id[0] && strlen(l->id) <= 16 && l->raw.n <= 10);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a = { 0 };
    struct buf first = { 0 }, second = { 0 };
    struct tree t = { 0 }, again = { 0 };
    struct err err = { 0 };
    char *text;
    int r;

    if (!size)
        return 0;
    text = fuzz_copy(data + 1, size - 1);
    r = field_decode_text(tree_fields, data[0] & 1 ? FIELDS_PROTO : FIELDS_STRICT,
                          (struct str){ text, size - 1 }, &a, &t, &err);
    free(text); /* nothing may point into it any more */
    MUST((r < 0) == (err.code != ERR_NONE));
    if (!r) {
        check_bounds(&t);
        field_encode(tree_fields, &t, &first);
        if (field_decode_text(tree_fields, FIELDS_PROTO, buf_str(&first), &a, &again, &err)) {
            fprintf(stderr, "%s: %s\n", first.data, err.msg);
            abort();
        }
        field_encode(tree_fields, &again, &second);
        MUST(str_eq(buf_str(&first), buf_str(&second)));
        MUST(again.ratio == t.ratio && again.big == t.big && again.count == t.count);
    }
    buf_free(&first);
    buf_free(&second);
    arena_free(&a);
    return 0;
}
