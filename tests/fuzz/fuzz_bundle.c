/* fuzz_bundle.c - a backup with files. The input is the whole file; its sums are made right where
 * there is a place for them, which no engine finds by itself. Promises: a head that is taken is
 * written again byte by byte, with an id that may be a part of a path; members that are taken are
 * in order, within the file, and each sandbox has one note and one layer; what is refused has a
 * reason. */
#include "keep/bundle.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "fuzz.h"

static void check_head(const char *block)
{
    char again[BUNDLE_BLOCK];
    struct bundle_member m;
    struct err err = { 0 };

    if (bundle_read_head(block, &m, &err)) {
        MUST(err.code != ERR_NONE && *err.msg);
        return;
    }
    bundle_head(&m, again);
    MUST(!memcmp(again, block, sizeof(again)));
    MUST(m.kind < BUNDLE_KINDS);
    MUST((m.kind == BUNDLE_NOTE || m.kind == BUNDLE_LAYER) == order_id_valid(m.id));
}

static void check_members(const struct bundle *b, size_t size)
{
    uint64_t at = 0;

    MUST(b->n >= 3 && b->list[0].kind == BUNDLE_VERSION && b->list[1].kind == BUNDLE_DATABASE);
    for (size_t i = 0; i < b->n; i++) {
        const struct bundle_member *m = &b->list[i];

        MUST(m->at == at + BUNDLE_BLOCK && m->size <= size && m->at <= size - m->size);
        at = m->at + (m->size + BUNDLE_BLOCK - 1) / BUNDLE_BLOCK * BUNDLE_BLOCK;
        if (m->kind == BUNDLE_NOTE)
            MUST(bundle_find(b, BUNDLE_NOTE, m->id) == m && b->list[i + 1].kind == BUNDLE_LAYER &&
                 !strcmp(m->id, b->list[i + 1].id));
        MUST((m->kind == BUNDLE_SUMS) == (i == b->n - 1));
    }
}

/* What the sums say must fit what stands before them. */
static void mend(char *bytes, size_t size, const struct bundle *b)
{
    AUTO(buf_free) struct buf sums = { 0 };
    const struct bundle_member *last = b->n ? &b->list[b->n - 1] : NULL;

    if (!last || last->kind != BUNDLE_SUMS)
        return;
    bundle_put_sums(b, &sums);
    if (sums.len == last->size && last->at + last->size <= size)
        memcpy(bytes + last->at, sums.data, sums.len);
}

static int check(const char *bytes, size_t size, struct bundle *out)
{
    int fd = memfd_create("bundle", MFD_CLOEXEC);
    struct err err = { 0 };
    int r;

    MUST(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    bundle_is(fd);
    r = bundle_check(fd, out, &err);
    MUST(!r || (err.code != ERR_NONE && *err.msg));
    close(fd);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(bundle_free) struct bundle first = { 0 };
    AUTO(bundle_free) struct bundle again = { 0 };
    char *bytes = fuzz_copy(data, size);

    if (size >= BUNDLE_BLOCK)
        check_head(bytes);
    if (check(bytes, size, &first)) {
        mend(bytes, size, &first);
        if (!check(bytes, size, &again))
            check_members(&again, size);
    } else
        check_members(&first, size);
    free(bytes);
    return 0;
}
