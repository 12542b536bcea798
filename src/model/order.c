/* order.c - see order.h. */
#include "model/order.h"

#include <string.h>

const struct tag_field limits_fields[] = {
    TAG_ROW(1, TAG_UINT, struct limits, memory_bytes),
    TAG_ROW(2, TAG_UINT, struct limits, cpu_milli),
    TAG_ROW(3, TAG_UINT, struct limits, pids),
    TAG_ROW(4, TAG_UINT, struct limits, io_weight),
    TAG_ROW(5, TAG_UINT, struct limits, open_files),
    TAG_ROW(6, TAG_UINT, struct limits, disk_bytes),
    TAG_ROW(7, TAG_UINT, struct limits, log_bytes),
    TAG_ROW(8, TAG_UINT, struct limits, lifetime_ms),
    { 0 },
};

static const struct tag_field order_mount_fields[] = {
    TAG_ROW(1, TAG_TEXT, struct order_mount, host),
    TAG_ROW(2, TAG_TEXT, struct order_mount, guest),
    TAG_ROW(3, TAG_UINT, struct order_mount, flags),
    { 0 },
};

const struct tag_field order_mark_fields[] = {
    TAG_ROW(1, TAG_UINT, struct order_mark, claim), /* enum order_claim */
    TAG_ROW(2, TAG_TEXT, struct order_mark, store), /* the value STORE_MARK of it */
    TAG_ROW(3, TAG_TEXT, struct order_mark, owner), /* by name: ids are the lost store's */
    TAG_ROW(4, TAG_TEXT, struct order_mark, uuid),  /* hosts and clients may know it by that */
    TAG_ROW(5, TAG_TEXT, struct order_mark, token), /* a secret: records and notes are root's */
    TAG_ROW(6, TAG_UINT, struct order_mark, flags), /* ORDER_PUBLIC */
    { 0 },
};

const struct tag_field order_fields[] = {
    TAG_ROW(1, TAG_TEXT, struct order, template),
    TAG_ROW(2, TAG_TEXT, struct order, snapshot),
    TAG_ROW(3, TAG_STRUCT, struct order, limits, .sub = limits_fields),
    TAG_ROW(4, TAG_UINT, struct order, network),
    TAG_ROW(5, TAG_UINT, struct order, flags),
    TAG_ROWS(6, TAG_STRUCT, struct order, mounts, nmounts, .sub = order_mount_fields),
    TAG_ROW(7, TAG_STRUCT, struct order, mark, .sub = order_mark_fields),
    { 0 },
};

int order_set_template(struct order *o, const char *name, struct err *err)
{
    if (strlen(name) >= sizeof(o->template))
        return err_set(err, ERR_NOT_FOUND, "there is no template '%.64s...'", name);
    memcpy(o->template, name, strlen(name) + 1);
    return 0;
}

int order_add_mount(struct order *o, const char *host, const char *guest, uint32_t flags,
                    struct err *err)
{
    struct order_mount *m = &o->mounts[o->nmounts];

    if (o->nmounts >= ORDER_MOUNTS)
        return err_set(err, ERR_LIMIT, "more than %d mounts", ORDER_MOUNTS);
    if (strlen(host) >= sizeof(m->host) || strlen(guest) >= sizeof(m->guest))
        return err_set(err, ERR_INVALID, "mount %u: paths must be below %d bytes", o->nmounts,
                       ORDER_PATH);
    memcpy(m->host, host, strlen(host) + 1);
    memcpy(m->guest, guest, strlen(guest) + 1);
    m->flags = flags;
    o->nmounts++;
    return 0;
}

struct str order_mount_prefix(const char *allowed, bool *group)
{
    struct str dir = str_of(allowed), tail = STR(":group");

    *group = dir.n > tail.n && !memcmp(dir.p + dir.n - tail.n, tail.p, tail.n);
    dir.n -= *group ? tail.n : 0;
    while (dir.n > 1 && dir.p[dir.n - 1] == '/')
        dir.n--;
    return dir;
}

const char *order_mount_allowed(const char *const *list, const char *path)
{
    const char *found = NULL;
    size_t longest = 0;
    bool ignored;

    for (; list && *list; list++) {
        struct str dir = order_mount_prefix(*list, &ignored);

        if (dir.n > longest && !strncmp(path, dir.p, dir.n) &&
            (dir.n == 1 || !path[dir.n] || path[dir.n] == '/')) {
            found = *list;
            longest = dir.n;
        }
    }
    return found;
}

static bool terminated(const char *s, size_t room) { return memchr(s, 0, room) != NULL; }

bool order_id_valid(const char id[ORDER_ID])
{
    size_t n = 0;

    for (; n < ORDER_ID && id[n]; n++)
        if (!(id[n] >= 'a' && id[n] <= 'z') && !(id[n] >= '0' && id[n] <= '9') &&
            !(id[n] == '-' && n))
            return false;
    return n && n <= ORDER_ID_MAX;
}

int order_check_id(const char *field, const char id[ORDER_ID], struct err *err)
{
    if (order_id_valid(id))
        return 0;
    return err_set(err, ERR_INVALID, "field '%s' must be 1 to %d characters of a-z, 0-9 and -",
                   field, ORDER_ID_MAX);
}

/* Absolute, no empty or dotted part: what is opened is what was meant. */
static bool path_valid(const char *p)
{
    if (!terminated(p, ORDER_PATH) || *p != '/')
        return false;
    while (*p == '/') {
        size_t n = strcspn(++p, "/");

        if ((!n && *p) || (n == 1 && *p == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += n;
    }
    return true;
}

static int check_mounts(const struct order *o, struct err *err)
{
    if (o->nmounts > ORDER_MOUNTS)
        return err_set(err, ERR_LIMIT, "%u mounts; at most %d", o->nmounts, ORDER_MOUNTS);
    for (uint32_t i = 0; i < o->nmounts; i++) {
        const struct order_mount *m = &o->mounts[i];

        if (!path_valid(m->host) || !path_valid(m->guest) || !m->guest[1])
            return err_set(err, ERR_INVALID,
                           "mount %u: paths must be absolute, plain and below %d bytes", i,
                           ORDER_PATH);
        if (m->flags & ~(uint32_t)ORDER_MOUNT_FLAGS)
            return err_set(err, ERR_INVALID, "mount %u: unknown flags %#x", i, m->flags);
    }
    return 0;
}

int order_check_mark(const struct order_mark *m, struct err *err)
{
    if (!terminated(m->store, sizeof(m->store)) || !terminated(m->owner, sizeof(m->owner)) ||
        !terminated(m->uuid, sizeof(m->uuid)) || !terminated(m->token, sizeof(m->token)))
        return err_set(err, ERR_INVALID, "field 'mark': a text is too long");
    if (m->claim >= ORDER_CLAIMS)
        return err_set(err, ERR_INVALID, "field 'mark': no claim %u", m->claim);
    if (m->flags & ~(uint32_t)ORDER_MARK_FLAGS)
        return err_set(err, ERR_INVALID, "field 'mark': unknown bits %#x", m->flags);
    return 0;
}

int order_check(const struct order *o, struct err *err)
{
    struct limits l = o->limits;

    if (!terminated(o->template, ORDER_NAME) || !*o->template)
        return err_set(err, ERR_INVALID, "field 'template' must be 1 to %d bytes", ORDER_NAME - 1);
    if (!terminated(o->snapshot, ORDER_ID))
        return order_check_id("snapshot", o->snapshot, err);
    if (o->network >= ORDER_NETWORKS)
        return err_set(err, ERR_INVALID, "field 'network': no mode %u", o->network);
    if (o->flags & ~(uint32_t)ORDER_FLAGS)
        return err_set(err, ERR_INVALID, "field 'flags': unknown bits %#x", o->flags);
    return limits_fill(&l, NULL, err) || check_mounts(o, err) || order_check_mark(&o->mark, err)
               ? -1
               : 0;
}
