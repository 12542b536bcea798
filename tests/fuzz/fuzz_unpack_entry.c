/* fuzz_unpack_entry.c - what an archive says about one entry. The input is a byte for its kind, two
 * for the length of its name, the name, and the link's target (also an attribute's value).
 * Promises: what is kept has a clean path inside the root, cleaning twice changes nothing, what is
 * refused has a reason, no attribute of overlayfs's comes through, and a label is safe to print. */
#include "jail/unpack_entry.h"

#include "fuzz.h"

static void check_path(const char *path, bool may_be_root)
{
    struct str rest = str_of(path), part;
    int depth = 0;

    MUST(rest.n < ENTRY_PATH);
    MUST(rest.n || may_be_root);
    MUST(!rest.n || (path[0] != '/' && path[rest.n - 1] != '/'));
    while (rest.n) {
        str_cut(rest, '/', &part, &rest);
        MUST(part.n && part.n <= ENTRY_COMPONENT);
        MUST(!str_is(part, ".") && !str_is(part, "..") && !str_starts(part, ".wh."));
        depth++;
    }
    MUST(depth <= ENTRY_DEPTH);
}

static void check_in_layer(const char *path, bool may_be_top)
{
    struct str rest = str_of(path), part;

    MUST(rest.n < ENTRY_PATH && (*path == 'r' || *path == 'u'));
    MUST(path[1] == '/' || (may_be_top && !path[1]));
    while (rest.n) {
        str_cut(rest, '/', &part, &rest);
        MUST(part.n && part.n <= ENTRY_COMPONENT && !str_is(part, ".") && !str_is(part, ".."));
    }
}

static void check_again(const struct entry_raw *raw, const struct entry_clean *clean)
{
    static struct entry_clean again;
    struct entry_raw cleaned = { raw->type, str_of(clean->path), str_of(clean->link) };

    MUST(unpack_entry_check(&cleaned, &again) == ENTRY_KEEP);
    MUST(!strcmp(again.path, clean->path) && !strcmp(again.link, clean->link));
    MUST(!again.stripped);
}

/* As an entry of a layer: below r/ or u/, no device but the whiteout, no attribute that leads
 * anywhere. */
static void check_layer(const struct entry_raw *raw, struct str value)
{
    static struct entry_clean clean, again;
    enum entry_verdict verdict = unpack_entry_check_layer(raw, &clean);
    struct entry_raw cleaned = { raw->type, str_of(clean.path), str_of(clean.link), raw->zero };

    MUST(verdict == ENTRY_KEEP || verdict == ENTRY_KEEP_WHITEOUT || verdict == ENTRY_REJECT);
    MUST((verdict == ENTRY_REJECT) == (clean.why != NULL));
    MUST((verdict == ENTRY_KEEP_WHITEOUT) ==
         (verdict != ENTRY_REJECT && raw->type == ENTRY_DEVICE && raw->zero));
    if (verdict != ENTRY_REJECT) {
        MUST(raw->type != ENTRY_SOCKET && raw->type != ENTRY_UNKNOWN);
        check_in_layer(clean.path, raw->type == ENTRY_DIRECTORY);
        if (raw->type == ENTRY_HARDLINK)
            check_in_layer(clean.link, false);
        MUST(unpack_entry_check_layer(&cleaned, &again) == verdict);
        MUST(!strcmp(again.path, clean.path) && !strcmp(again.link, clean.link));
    }
    if (unpack_entry_layer_xattr(raw->name, value.p, value.n)) {
        MUST(!str_starts(raw->name, "trusted.") && !memchr(raw->name.p, 0, raw->name.n));
        MUST(!str_is(raw->name, "user.overlay.redirect"));
        MUST(!str_is(raw->name, "user.overlay.metacopy"));
    }
}

static void check_label(struct str name)
{
    char label[ENTRY_LABEL];
    size_t n;

    unpack_entry_label(name, label);
    n = strnlen(label, ENTRY_LABEL);
    MUST(n < ENTRY_LABEL);
    MUST(utf8_valid((struct str){ label, n }));
    for (size_t i = 0; i < n; i++) {
        MUST((unsigned char)label[i] >= 0x20 && label[i] != 0x7f);
        MUST((unsigned char)label[i] != 0xc2 || (unsigned char)label[i + 1] >= 0xa0);
    }
}

static void check_xattr(enum entry_type type, struct str name, struct str value)
{
    if (!unpack_entry_keep_xattr(type, name, value.p, value.n))
        return;
    MUST(type == ENTRY_FILE || type == ENTRY_DIRECTORY);
    MUST(name.n <= ENTRY_COMPONENT && !memchr(name.p, 0, name.n));
    if (str_is(name, "security.capability"))
        MUST(value.n == 20 && type == ENTRY_FILE);
    else
        MUST(str_starts(name, "user.") && !str_starts(name, "user.overlay"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct entry_clean clean;
    struct entry_raw raw;
    enum entry_verdict verdict;
    size_t n;
    char *name, *link;

    if (size < 3)
        return 0;
    n = MIN((size_t)data[1] | (size_t)data[2] << 8, size - 3);
    name = fuzz_copy(data + 3, n);
    link = fuzz_copy(data + 3 + n, size - 3 - n);
    raw = (struct entry_raw){
        data[0] % (ENTRY_UNKNOWN + 1), { name, n }, { link, size - 3 - n }, data[0] & 0x80
    };
    verdict = unpack_entry_check(&raw, &clean);
    MUST((verdict == ENTRY_REJECT) == (clean.why != NULL));
    if (verdict == ENTRY_KEEP) {
        MUST(raw.type < ENTRY_DEVICE);
        check_path(clean.path, raw.type == ENTRY_DIRECTORY);
        if (raw.type == ENTRY_HARDLINK)
            check_path(clean.link, false);
        if (raw.type == ENTRY_SYMLINK)
            MUST(str_is(raw.link, clean.link));
        check_again(&raw, &clean);
    }
    check_layer(&raw, raw.link);
    check_label(raw.name);
    check_xattr(raw.type, raw.name, raw.link);
    free(name);
    free(link);
    return 0;
}
