/* erofs.c - see erofs.h. Pure but for the writing.
 *
 * The image: a block with the superblock, then the inodes, each with its attributes and the end of
 * what it holds (of a directory its last block, of a link all of it) behind it, then whole blocks
 * of what is longer. A node's number on disk is its place divided by 32, so places are given out
 * before anything is written. The kernel wants entries of a directory sorted by bytes, "." and ".."
 * included. Everything is little-endian, inodes are the long kind (64 bytes). */
#include "jail/erofs.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/id.h"
#include "base/mem.h"

enum {
    BLOCK = 4096,
    BLOCK_BITS = 12,
    UNIT = 32, /* of a node's number */
    INODE = 64,
    SUPER_AT = 1024,
    ENTRY = 12,      /* of a directory, without its name */
    ATTRIBUTES = 12, /* the head before an inode's attributes ... */
    ATTRIBUTE = 4,   /* ... and before each of them */
    HOLE = 4,        /* "no block" in place of the contents that are elsewhere */
    CHUNK_BITS = 31, /* so large that one stands for any length */
    CHUNKED = 4,     /* the feature */
    USER = 1,        /* prefixes of attributes' names */
    SECURITY = 6,
    PLAIN = 0,
    TAIL = 2,
    CHUNKS = 4, /* where contents are: blocks, blocks and a tail, nowhere */
};

static const char metacopy[] = "overlay.metacopy", redirect[] = "overlay.redirect",
                  capability[] = "capability";

struct node {
    uint32_t parent, name, name_len; /* offsets are into text */
    uint32_t uid, gid, mtime_ns, links;
    uint32_t first, entries; /* of a directory */
    uint32_t block, blocks;  /* whole ones */
    uint32_t bytes, capability_len;
    uint32_t capability;
    uint64_t size, at;
    int64_t mtime_s;
    uint16_t mode, tail;
    uint32_t path; /* how long it is from the root, with a slash before each name */
    bool elsewhere;
};

struct entry {
    uint32_t dir, node, name_len;
    const char *name;
};

struct erofs {
    struct node *nodes;
    struct entry *entries;
    size_t n, room;
    struct buf text; /* names, contents, attributes */
};

/* ---- collecting ---- */

static uint32_t keep(struct erofs *e, const char *p, size_t n)
{
    uint32_t at = (uint32_t)e->text.len;

    buf_add(&e->text, p, n);
    return at;
}

static void add_node(struct erofs *e, uint32_t parent, const struct erofs_node *n)
{
    const struct stat *st = n->st;
    bool dir = S_ISDIR(st->st_mode);
    struct node *new;

    if (e->n == e->room) {
        e->room = MAX(e->room * 2, (size_t)1024);
        e->nodes = xrealloc(e->nodes, e->room * sizeof(*e->nodes));
    }
    new = &e->nodes[e->n++];
    *new = (struct node){
        .parent = parent,
        .name_len = (uint32_t)strlen(n->name),
        .uid = st->st_uid,
        .gid = st->st_gid,
        .mtime_s = st->st_mtim.tv_sec,
        .mtime_ns = (uint32_t)st->st_mtim.tv_nsec,
        .links = dir ? 2 : 1,
        .capability_len = (uint32_t)n->capability.n,
        .size = n->elsewhere ? (uint64_t)st->st_size : n->bytes.n,
        .mode = (uint16_t)st->st_mode,
        .elsewhere = n->elsewhere,
    };
    new->name = keep(e, n->name, new->name_len);
    new->bytes = keep(e, n->bytes.p, n->bytes.n);
    new->capability = keep(e, n->capability.p, n->capability.n);
    if (e->n == 1)
        return;
    new->path = e->nodes[parent].path + 1 + new->name_len;
    if (dir)
        e->nodes[parent].links++;
}

struct erofs *erofs_create(const struct stat *root)
{
    struct erofs *e = xcalloc(1, sizeof(*e));

    add_node(e, EROFS_ROOT, &(struct erofs_node){ .name = "", .st = root });
    return e;
}

void erofs_destroy(struct erofs *e)
{
    if (!e)
        return;
    free(e->nodes);
    free(e->entries);
    buf_free(&e->text);
    free(e);
}

uint32_t erofs_add(struct erofs *e, uint32_t directory, const struct erofs_node *n)
{
    add_node(e, directory, n);
    return (uint32_t)(e->n - 1);
}

/* ---- entries ---- */

static int by_name(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = x->dir < y->dir ? -1 : x->dir > y->dir;

    if (!order)
        order = memcmp(x->name, y->name, MIN(x->name_len, y->name_len));
    return order ? order : x->name_len < y->name_len ? -1 : x->name_len > y->name_len;
}

/* Their names point into the text, which does not grow any more. */
static size_t list_entries(struct erofs *e)
{
    size_t n = 0;

    e->entries = xcalloc(3 * e->n, sizeof(*e->entries));
    for (uint32_t i = 0; i < e->n; i++) {
        const struct node *d = &e->nodes[i];

        if (i)
            e->entries[n++] = (struct entry){ d->parent, i, d->name_len, e->text.data + d->name };
        if (S_ISDIR(d->mode)) {
            e->entries[n++] = (struct entry){ i, i, 1, "." };
            e->entries[n++] = (struct entry){ i, d->parent, 2, ".." };
        }
    }
    qsort(e->entries, n, sizeof(*e->entries), by_name);
    return n;
}

/* How many of the entries from here on fit into one block, and the bytes that they take there. */
static uint32_t fit(const struct entry *from, uint32_t left, uint32_t *bytes)
{
    uint32_t n = 0;

    for (*bytes = 0; n < left && *bytes + ENTRY + from[n].name_len <= BLOCK; n++)
        *bytes += ENTRY + from[n].name_len;
    return n;
}

static void measure_directory(const struct erofs *e, struct node *d)
{
    uint32_t bytes;

    for (uint32_t i = 0; i < d->entries;) {
        i += fit(&e->entries[d->first + i], d->entries - i, &bytes);
        d->size += i < d->entries ? BLOCK : bytes;
    }
}

/* ---- places ---- */

static uint64_t round_up(uint64_t at, uint64_t to) { return (at + to - 1) / to * to; }

static uint32_t attribute_size(size_t name, size_t value)
{
    return (uint32_t)round_up(ATTRIBUTE + name + value, ATTRIBUTE);
}

static uint32_t attributes_size(const struct node *n)
{
    uint32_t size = 0;

    if (n->elsewhere)
        size += attribute_size(strlen(metacopy), 0) + attribute_size(strlen(redirect), n->path);
    if (n->capability_len)
        size += attribute_size(strlen(capability), n->capability_len);
    return size ? ATTRIBUTES + size : 0;
}

/* What is behind the inode may not cross the end of a block, unless it is longer than one. */
static uint64_t place(struct node *n, uint32_t attributes, uint64_t at)
{
    uint32_t tail = (uint32_t)(n->size % BLOCK), size = INODE + attributes;

    if (n->elsewhere) {
        size += HOLE;
    } else {
        n->blocks = (uint32_t)(n->size / BLOCK);
        if (tail && size + tail <= BLOCK) {
            n->tail = (uint16_t)tail;
            size += tail;
        } else if (tail)
            n->blocks++;
    }
    at = round_up(at, UNIT);
    if (at % BLOCK + MIN(size, (uint32_t)BLOCK) > BLOCK)
        at = round_up(at, BLOCK);
    n->at = at;
    return at + size;
}

static int give_places(struct erofs *e, uint32_t *blocks, struct err *err)
{
    uint64_t at = BLOCK;

    for (size_t i = 0; i < e->n; i++) {
        if (e->nodes[i].path >= PATH_MAX)
            return err_set(err, ERR_LIMIT, "a path has more than %d bytes", PATH_MAX - 1);
        at = place(&e->nodes[i], attributes_size(&e->nodes[i]), at);
    }
    at = round_up(at, BLOCK) / BLOCK;
    for (size_t i = 0; i < e->n; i++) {
        e->nodes[i].block = (uint32_t)at;
        at += e->nodes[i].blocks;
    }
    if (at > UINT32_MAX || e->text.len > UINT32_MAX)
        return err_set(err, ERR_LIMIT, "%zu files are too many for one image", e->n);
    *blocks = (uint32_t)at;
    return 0;
}

/* ---- writing ---- */

struct out {
    int fd;
    bool failed;
    uint64_t at;
    size_t n;
    unsigned char bytes[16 * BLOCK];
};

static void flush(struct out *o)
{
    for (size_t done = 0; done < o->n && !o->failed;) {
        ssize_t k = write(o->fd, o->bytes + done, o->n - done);

        if (k <= 0 && (k == 0 || errno != EINTR))
            o->failed = true;
        else if (k > 0)
            done += (size_t)k;
    }
    o->n = 0;
}

static void add(struct out *o, const void *p, size_t n)
{
    for (size_t part; n; n -= part, p = (const char *)p + part) {
        if (o->n == sizeof(o->bytes))
            flush(o);
        part = MIN(n, sizeof(o->bytes) - o->n);
        memcpy(o->bytes + o->n, p, part);
        o->n += part;
        o->at += part;
    }
}

static void pad(struct out *o, uint64_t until)
{
    static const char zeros[BLOCK];

    while (o->at < until)
        add(o, zeros, MIN(until - o->at, sizeof(zeros)));
}

static void number(struct out *o, uint64_t v, size_t bytes)
{
    unsigned char le[8];

    for (size_t i = 0; i < bytes; i++)
        le[i] = (unsigned char)(v >> 8 * i);
    add(o, le, bytes);
}

static void add_super(struct out *o, const struct erofs *e, uint32_t blocks)
{
    char uuid[16 + 1];

    /* an upper layer remembers where a file came from by this: never the same for two images */
    id_random(uuid, sizeof(uuid) - 1);
    pad(o, SUPER_AT);
    number(o, 0xE0F5E1E2, 4);
    number(o, 0, 8); /* checksum: none; features that nobody needs to know */
    number(o, BLOCK_BITS, 2);
    number(o, e->nodes[EROFS_ROOT].at / UNIT, 2);
    number(o, e->n, 8);
    number(o, 0, 8); /* when it was built */
    number(o, 0, 4);
    number(o, blocks, 4);
    number(o, 0, 8); /* numbers of nodes count from the beginning */
    add(o, uuid, sizeof(uuid) - 1);
    pad(o, o->at + 16); /* a name */
    number(o, CHUNKED, 4);
    pad(o, BLOCK);
}

/* One block of a directory: entries, then their names. */
static void add_entries(struct out *o, const struct erofs *e, const struct entry *from, uint32_t n)
{
    uint32_t name = n * ENTRY;

    for (uint32_t i = 0; i < n; i++) {
        const struct node *node = &e->nodes[from[i].node];

        number(o, node->at / UNIT, 8);
        number(o, name, 2);
        number(o, S_ISDIR(node->mode) ? 2 : S_ISLNK(node->mode) ? 7 : 1, 2); /* what it is */
        name += from[i].name_len;
    }
    for (uint32_t i = 0; i < n; i++)
        add(o, from[i].name, from[i].name_len);
}

/* The last block of a directory may be its inode's tail; the others are whole. */
static void add_directory(struct out *o, const struct erofs *e, const struct node *d, bool tail)
{
    uint32_t bytes;

    for (uint32_t i = 0, n, block = 0; i < d->entries; i += n, block++) {
        n = fit(&e->entries[d->first + i], d->entries - i, &bytes);
        if (tail != (block == d->blocks))
            continue;
        add_entries(o, e, &e->entries[d->first + i], n);
        if (!tail)
            pad(o, round_up(o->at, BLOCK));
    }
}

static void add_contents(struct out *o, const struct erofs *e, const struct node *n, bool tail)
{
    const char *bytes = e->text.data + n->bytes;

    if (S_ISDIR(n->mode))
        add_directory(o, e, n, tail);
    else if (tail)
        add(o, bytes + n->size - n->tail, n->tail);
    else {
        add(o, bytes, n->size - n->tail);
        pad(o, round_up(o->at, BLOCK));
    }
}

static void add_attribute(struct out *o, int prefix, const char *name, const char *value, size_t n)
{
    number(o, strlen(name), 1);
    number(o, (uint64_t)prefix, 1);
    number(o, n, 2);
    add(o, name, strlen(name));
    add(o, value, n);
    pad(o, round_up(o->at, ATTRIBUTE));
}

static void add_attributes(struct out *o, const struct erofs *e, const struct node *n)
{
    char path[PATH_MAX], *at = path + n->path;

    number(o, 0, 8);
    number(o, 0, 4);
    if (n->elsewhere) {
        for (const struct node *i = n; i != e->nodes; i = &e->nodes[i->parent]) {
            at -= i->name_len;
            memcpy(at, e->text.data + i->name, i->name_len);
            *--at = '/';
        }
        add_attribute(o, USER, metacopy, "", 0);
        add_attribute(o, USER, redirect, path, n->path);
    }
    if (n->capability_len)
        add_attribute(o, SECURITY, capability, e->text.data + n->capability, n->capability_len);
}

static void add_inode(struct out *o, const struct erofs *e, const struct node *n)
{
    uint32_t attributes = attributes_size(n);
    int layout = n->elsewhere ? CHUNKS : n->tail ? TAIL : PLAIN;

    pad(o, n->at);
    number(o, (uint64_t)(1 | layout << 1), 2);
    number(o, attributes ? (attributes - ATTRIBUTES) / 4 + 1 : 0, 2);
    number(o, n->mode, 2);
    number(o, 0, 2);
    number(o, n->size, 8);
    number(o, n->elsewhere ? CHUNK_BITS : n->block, 4);
    number(o, (uint64_t)(n - e->nodes) + 1, 4);
    number(o, n->uid, 4);
    number(o, n->gid, 4);
    number(o, (uint64_t)n->mtime_s, 8);
    number(o, n->mtime_ns, 4);
    number(o, n->links, 4);
    pad(o, n->at + INODE);
    if (attributes)
        add_attributes(o, e, n);
    if (n->elsewhere)
        number(o, UINT32_MAX, HOLE);
    else if (n->tail)
        add_contents(o, e, n, true);
}

/* Which entries are whose, and how long that makes each directory. */
static void find_entries(struct erofs *e)
{
    size_t n = list_entries(e);

    for (size_t i = 0; i < n; i++) {
        struct node *d = &e->nodes[e->entries[i].dir];

        if (!d->entries++)
            d->first = (uint32_t)i;
    }
    for (size_t i = 0; i < e->n; i++)
        if (S_ISDIR(e->nodes[i].mode))
            measure_directory(e, &e->nodes[i]);
}

int erofs_write(struct erofs *e, int fd, struct err *err)
{
    AUTO(freep) struct out *o = xcalloc(1, sizeof(*o));
    uint32_t blocks;

    find_entries(e);
    if (give_places(e, &blocks, err))
        return -1;
    o->fd = fd;
    add_super(o, e, blocks);
    for (size_t i = 0; i < e->n; i++)
        add_inode(o, e, &e->nodes[i]);
    pad(o, round_up(o->at, BLOCK));
    for (size_t i = 0; i < e->n; i++)
        if (e->nodes[i].blocks)
            add_contents(o, e, &e->nodes[i], false);
    flush(o);
    return o->failed ? err_sys(err, "write the image of /usr") : 0;
}
