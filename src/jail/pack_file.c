/* pack_file.c - the bytes of one file, without its holes, and attributes. */
#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/pack_tree.h"
#include "jail/unpack_entry.h"

enum {
    CHUNK = 256 << 10,
    NAMES = 64 << 10,  /* XATTR_LIST_MAX */
    VALUE = 64 << 10,  /* XATTR_SIZE_MAX */
    SEGMENTS = 65536,  /* then the rest counts as one */
    SMALL_HOLE = 4096, /* not worth the map */
};

/* ---- attributes ---- */

static bool keeps(const struct packer *p, const char *name, const char *value, size_t n)
{
    struct str s = str_of(name);

    if (p->request->style == PACK_LAYER)
        return unpack_entry_layer_xattr(s, value, n);
    return str_is(s, "security.capability") || str_starts(s, "system.posix_acl_") ||
           (str_starts(s, "user.") && !str_starts(s, "user.overlay."));
}

void pack_attributes(struct packer *p, int fd, struct buf *records)
{
    static char names[NAMES], value[VALUE];
    ssize_t n = flistxattr(fd, names, sizeof(names));

    for (const char *name = names; n > 0 && name < names + n; name += strlen(name) + 1) {
        ssize_t size = fgetxattr(fd, name, value, sizeof(value));

        if (size >= 0 && keeps(p, name, value, (size_t)size) &&
            pack_xattr(records, name, (struct str){ value, (size_t)size }))
            p->stats->left_out++;
    }
}

bool pack_is_opaque(int fd)
{
    char value[2];

    return fgetxattr(fd, "user.overlay.opaque", value, sizeof(value)) == 1 && *value == 'y';
}

/* ---- holes ---- */

struct segment {
    uint64_t at, n;
};

struct map {
    struct segment *list;
    size_t n, room;
    uint64_t bytes;
};

static void map_free(struct map *m) { free(m->list); }

static void add_segment(struct map *m, uint64_t at, uint64_t n)
{
    struct segment *last = m->n ? &m->list[m->n - 1] : NULL;

    if (last && at - last->at - last->n < SMALL_HOLE) {
        m->bytes += at + n - last->at - last->n;
        last->n = at + n - last->at;
        return;
    }
    if (m->n == m->room) {
        m->room = m->room ? 2 * m->room : 16;
        m->list = xrealloc(m->list, m->room * sizeof(*m->list));
    }
    m->list[m->n++] = (struct segment){ at, n };
    m->bytes += n;
}

/* Where its bytes are. A file system that does not know says that they are everywhere. */
static void find_segments(int fd, uint64_t size, struct map *m)
{
    uint64_t at = 0;

    while (at < size) {
        off_t data = lseek(fd, (off_t)at, SEEK_DATA), hole;

        if (data < 0 && errno == ENXIO) /* only a hole is left */
            return;
        hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
        if (data < 0 || hole <= data || m->n == SEGMENTS) {
            add_segment(m, at, size - at);
            return;
        }
        if ((uint64_t)data >= size)
            return;
        add_segment(m, (uint64_t)data, MIN((uint64_t)hole, size) - (uint64_t)data);
        at = (uint64_t)hole;
    }
}

/* GNU's form 1.0: the map stands before the bytes, the name in a record. */
static void put_map(const struct map *m, uint64_t size, struct buf *map, struct pack_head *h)
{
    static const char zeros[PACK_BLOCK];
    char text[32];

    buf_printf(map, "%zu\n", m->n + 1);
    for (size_t i = 0; i < m->n; i++)
        buf_printf(map, "%llu\n%llu\n", (unsigned long long)m->list[i].at,
                   (unsigned long long)m->list[i].n);
    buf_printf(map, "%llu\n0\n", (unsigned long long)size);
    buf_add(map, zeros, -map->len % PACK_BLOCK);
    if (!pack_is_plain(h->name))
        pack_record(&h->extra, "hdrcharset", STR("BINARY"));
    pack_record(&h->extra, "GNU.sparse.major", STR("1"));
    pack_record(&h->extra, "GNU.sparse.minor", STR("0"));
    pack_record(&h->extra, "GNU.sparse.name", h->name);
    snprintf(text, sizeof(text), "%llu", (unsigned long long)size);
    pack_record(&h->extra, "GNU.sparse.realsize", str_of(text));
    h->name = STR("GNUSparseFile.0/file");
}

/* ---- bytes ---- */

static int copy_segment(struct packer *p, int fd, struct segment s)
{
    while (s.n) {
        size_t want = (size_t)MIN(s.n, (uint64_t)CHUNK);
        ssize_t n;

        buf_reserve(&p->out, want);
        n = pread(fd, p->out.data + p->out.len, want, (off_t)s.at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(p->err, "read a file of the sandbox");
        if (!n) { /* somebody has cut it meanwhile: its head has said how long it is */
            memset(p->out.data + p->out.len, 0, want);
            p->stats->changed += s.n == want;
            n = (ssize_t)want;
        }
        p->out.len += (size_t)n;
        s.at += (uint64_t)n;
        s.n -= (uint64_t)n;
        if (pack_flush(p, CHUNK))
            return -1;
    }
    return 0;
}

int pack_file(struct packer *p, int fd, const struct stat *st, struct pack_head *h)
{
    static const char zeros[PACK_BLOCK];
    AUTO(map_free) struct map m = { 0 };
    AUTO(buf_free) struct buf map = { 0 };
    uint64_t size = (uint64_t)st->st_size;

    find_segments(fd, size, &m);
    if (m.bytes < size)
        put_map(&m, size, &map, h);
    h->size = map.len + m.bytes;
    pack_head_put(&p->out, h);
    buf_add(&p->out, map.data, map.len);
    for (size_t i = 0; i < m.n; i++)
        if (copy_segment(p, fd, m.list[i]))
            return -1;
    buf_add(&p->out, zeros, -h->size % PACK_BLOCK);
    return 0;
}
