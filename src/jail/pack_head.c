/* pack_head.c - see pack_head.h. */
#include "jail/pack_head.h"

#include "base/mem.h"

enum {
    NAME_ROOM = 100,
    AT_MODE = 100,
    AT_UID = 108,
    AT_GID = 116,
    AT_SIZE = 124,
    AT_MTIME = 136,
    AT_SUM = 148,
    AT_TYPE = 156,
    AT_LINK = 157,
    AT_MAGIC = 257,
    AT_MAJOR = 329,
    AT_MINOR = 337,
};

/* Octal where it fits, else GNU's binary form. */
static void put_number(char *field, size_t room, uint64_t n)
{
    if (n < 1ULL << (3 * (room - 1))) {
        for (size_t i = room - 1; i--; n >>= 3)
            field[i] = (char)('0' + (n & 7));
        return;
    }
    for (size_t i = room; i--; n >>= 8)
        field[i] = (char)(n & 0xff);
    field[0] = (char)0x80;
}

static void put_sum(char *block)
{
    unsigned sum = 0;

    memset(block + AT_SUM, ' ', 8);
    for (size_t i = 0; i < PACK_BLOCK; i++)
        sum += (unsigned char)block[i];
    snprintf(block + AT_SUM, 8, "%06o", sum);
}

static void fill_block(char *out, const struct pack_head *h, struct str name, struct str link)
{
    memset(out, 0, PACK_BLOCK);
    memcpy(out, name.p, MIN(name.n, (size_t)NAME_ROOM));
    put_number(out + AT_MODE, 8, h->mode & 07777);
    put_number(out + AT_UID, 8, h->uid);
    put_number(out + AT_GID, 8, h->gid);
    put_number(out + AT_SIZE, 12, h->size);
    put_number(out + AT_MTIME, 12, h->mtime.tv_sec < 0 ? 0 : (uint64_t)h->mtime.tv_sec);
    out[AT_TYPE] = h->type;
    if (link.n)
        memcpy(out + AT_LINK, link.p, MIN(link.n, (size_t)NAME_ROOM));
    // NOLINTNEXTLINE(bugprone-not-null-terminated-result): the two fields are 8 bytes
    memcpy(out + AT_MAGIC, "ustar\00000", 8);
    put_number(out + AT_MAJOR, 8, 0);
    put_number(out + AT_MINOR, 8, 0);
    put_sum(out);
}

int pack_block(const struct pack_head *h, char out[static PACK_BLOCK])
{
    fill_block(out, h, h->name, h->link);
    return h->name.n <= NAME_ROOM && h->link.n <= NAME_ROOM ? 0 : -1;
}

/* "27 mtime=1.000000001\n": the length counts itself. */
void pack_record(struct buf *pax, const char *key, struct str value)
{
    size_t rest = strlen(key) + value.n + 3, n = rest + 1;
    char digits[24];

    while (rest + (size_t)snprintf(digits, sizeof(digits), "%zu", n) != n)
        n = rest + strlen(digits);
    buf_printf(pax, "%s %s=", digits, key);
    buf_add_str(pax, value);
    buf_putc(pax, '\n');
}

bool pack_is_plain(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] >= 0x80)
            return false;
    return true;
}

/* The form that has no trouble with a name that would end its key. */
static void encode_xattr(struct buf *pax, const char *name, struct str value)
{
    AUTO(buf_free) struct buf key = { 0 };
    AUTO(freep) char *text = xmalloc(base64_encoded_len(value.n) + 1);

    buf_puts(&key, "LIBARCHIVE.xattr.");
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p > 0x20 && (unsigned char)*p < 0x7f && *p != '=' && *p != '%')
            buf_putc(&key, *p);
        else
            buf_printf(&key, "%%%02X", (unsigned char)*p);
    pack_record(pax, key.data, (struct str){ text, base64_encode(value.p, value.n, text) });
}

int pack_xattr(struct buf *pax, const char *name, struct str value)
{
    char key[300];

    if (pax->len + 2 * (strlen(name) + value.n) + 1024 > PACK_PAX_MAX)
        return -1;
    snprintf(key, sizeof(key), "SCHILY.xattr.%s", name);
    if (strpbrk(name, "=\n%") || !pack_is_plain(str_of(name)) || strlen(name) > 255)
        encode_xattr(pax, name, value);
    else
        pack_record(pax, key, value);
    return 0;
}

/* Before 1970 in whole seconds: libarchive adds what is behind the point of a negative number. */
static void put_time(struct buf *pax, struct timespec t)
{
    char text[64];

    if (t.tv_sec < 0)
        snprintf(text, sizeof(text), "%lld", (long long)t.tv_sec);
    else
        snprintf(text, sizeof(text), "%lld.%09ld", (long long)t.tv_sec, t.tv_nsec);
    pack_record(pax, "mtime", str_of(text));
}

/* What a block cannot hold as it is. */
static void collect_records(struct buf *pax, const struct pack_head *h)
{
    if ((!pack_is_plain(h->name) && h->name.n > NAME_ROOM) ||
        (!pack_is_plain(h->link) && h->link.n > NAME_ROOM))
        pack_record(pax, "hdrcharset", STR("BINARY"));
    if (h->name.n > NAME_ROOM)
        pack_record(pax, "path", h->name);
    if (h->link.n > NAME_ROOM)
        pack_record(pax, "linkpath", h->link);
    if (h->mtime.tv_nsec || h->mtime.tv_sec < 0)
        put_time(pax, h->mtime);
    buf_add(pax, h->extra.data, h->extra.len);
}

static void pad(struct buf *out, size_t n)
{
    static const char zeros[PACK_BLOCK];

    buf_add(out, zeros, -n % PACK_BLOCK);
}

void pack_head_put(struct buf *out, const struct pack_head *h)
{
    AUTO(buf_free) struct buf pax = { 0 };
    char block[PACK_BLOCK];

    collect_records(&pax, h);
    if (pax.len) {
        struct pack_head x = { .type = 'x', .mode = 0644, .size = pax.len };

        fill_block(block, &x, STR("PaxHeaders/entry"), (struct str){ 0 });
        buf_add(out, block, sizeof(block));
        buf_add(out, pax.data, pax.len);
        pad(out, pax.len);
    }
    fill_block(block, h, h->name, h->link);
    buf_add(out, block, sizeof(block));
}
