/* unpack_entry.c - see unpack_entry.h. */
#include "jail/unpack_entry.h"

#include <endian.h>
#include <linux/capability.h>

/* Adds one component to a cleaned path. NULL, or why it cannot be. */
static const char *add_component(char *out, size_t *len, struct str part)
{
    if (part.n > ENTRY_COMPONENT)
        return "has a part of over 255 bytes";
    if (*len + part.n + 2 > ENTRY_PATH)
        return "has a path of over 4095 bytes";
    if (*len)
        out[(*len)++] = '/';
    memcpy(out + *len, part.p, part.n);
    *len += part.n;
    return NULL;
}

/* Empty parts and "." vanish; ".." is never resolved but refused: no honest archive needs it, and
 * what it means depends on what else was unpacked. */
static const char *clean_path(struct str in, int most, char *out, bool *whiteout)
{
    const char *why = NULL;
    size_t len = 0;
    int depth = 0;

    if (memchr(in.p ? in.p : "", 0, in.n))
        return "has a NUL byte in it";
    while (in.n && !why) {
        struct str part;

        str_cut(in, '/', &part, &in);
        if (!part.n || str_is(part, "."))
            continue;
        if (str_is(part, ".."))
            return "has '..' in its path";
        if (str_starts(part, ".wh."))
            *whiteout = true;
        if (++depth > most)
            return "is over 256 directories deep";
        why = add_component(out, &len, part);
    }
    out[len] = 0;
    return why;
}

static const char *copy_link(struct str in, char *out)
{
    if (!in.n)
        return "is a link to nothing";
    if (in.n >= ENTRY_PATH)
        return "is a link to over 4095 bytes";
    if (memchr(in.p, 0, in.n))
        return "is a link with a NUL byte in it";
    memcpy(out, in.p, in.n); /* any text: it is read inside the sandbox, never by us */
    out[in.n] = 0;
    return NULL;
}

static const char *clean_link(const struct entry_raw *raw, int most, struct entry_clean *out,
                              bool *whiteout)
{
    const char *why;

    if (raw->type == ENTRY_SYMLINK)
        return copy_link(raw->link, out->link);
    if (raw->type != ENTRY_HARDLINK)
        return NULL;
    why = clean_path(raw->link, most, out->link, whiteout);
    if (!why && !out->link[0])
        why = "is a hard link to the root";
    return why;
}

/* Version 3 names a user id of the machine it was made on: root of somebody else's namespace. */
static bool plain_capability(const void *value, size_t n)
{
    uint32_t magic;

    if (n != XATTR_CAPS_SZ_2)
        return false;
    memcpy(&magic, value, sizeof(magic));
    return (le32toh(magic) & VFS_CAP_REVISION_MASK) == VFS_CAP_REVISION_2;
}

static enum entry_verdict reject(struct entry_clean *out, const char *why)
{
    out->why = why;
    return ENTRY_REJECT;
}

/* NULL, or why it is refused. */
static const char *clean(const struct entry_raw *raw, int most, struct entry_clean *out,
                         bool *whiteout)
{
    const char *why;

    out->path[0] = out->link[0] = 0;
    out->why = NULL;
    out->stripped = raw->name.n && raw->name.p[0] == '/';
    if ((why = clean_path(raw->name, most, out->path, whiteout)) ||
        (why = clean_link(raw, most, out, whiteout)))
        return why;
    if (raw->type == ENTRY_UNKNOWN)
        return "is of a kind that no file system has";
    if (!out->path[0] && raw->type != ENTRY_DIRECTORY)
        return "would replace the root itself";
    return NULL;
}

/* Below one of the two directories that a layer has. */
static bool in_layer(const char *path, bool itself)
{
    return (*path == 'r' || *path == 'u') && (path[1] == '/' || (itself && !path[1]));
}

enum entry_verdict unpack_entry_check_layer(const struct entry_raw *raw, struct entry_clean *out)
{
    bool ignored = false;
    const char *why = clean(raw, ENTRY_PATH, out, &ignored);

    if (why)
        return reject(out, why);
    if (out->stripped)
        return reject(out, "begins with a slash");
    if (!in_layer(out->path, raw->type == ENTRY_DIRECTORY) ||
        (raw->type == ENTRY_HARDLINK && !in_layer(out->link, false)))
        return reject(out, "is outside r/ and u/, where a layer has its files");
    if (raw->type == ENTRY_SOCKET)
        return reject(out, "is a socket");
    if (raw->type == ENTRY_DEVICE)
        return raw->zero ? ENTRY_KEEP_WHITEOUT : reject(out, "is a device");
    return ENTRY_KEEP;
}

bool unpack_entry_layer_xattr(struct str name, const void *value, size_t n)
{
    if (!name.n || name.n > ENTRY_COMPONENT || memchr(name.p, 0, name.n))
        return false;
    if (str_is(name, "security.capability"))
        return plain_capability(value, n);
    if (str_is(name, "system.posix_acl_access") || str_is(name, "system.posix_acl_default"))
        return true;
    if (str_is(name, "user.overlay.opaque"))
        return n == 1 && (*(const char *)value == 'y' || *(const char *)value == 'x');
    /* those of an overlay inside the sandbox, which the kernel wraps */
    if (str_starts(name, "user.overlay."))
        return str_starts(name, "user.overlay.overlay.") || str_is(name, "user.overlay.whiteout");
    return str_starts(name, "user.") && name.n > 5;
}

enum entry_verdict unpack_entry_check(const struct entry_raw *raw, struct entry_clean *out)
{
    bool whiteout = false;
    const char *why = clean(raw, ENTRY_DEPTH, out, &whiteout);

    if (why)
        return reject(out, why);
    if (whiteout)
        return ENTRY_SKIP_WHITEOUT;
    if (raw->type == ENTRY_DEVICE)
        return ENTRY_SKIP_DEVICE;
    return raw->type == ENTRY_SOCKET ? ENTRY_SKIP_SOCKET : ENTRY_KEEP;
}

bool unpack_entry_keep_xattr(enum entry_type type, struct str name, const void *value, size_t n)
{
    if (type != ENTRY_FILE && type != ENTRY_DIRECTORY) /* others cannot carry what we let through */
        return false;
    if (name.n > ENTRY_COMPONENT || memchr(name.p ? name.p : "", 0, name.n))
        return false;
    if (str_is(name, "security.capability"))
        return type == ENTRY_FILE && plain_capability(value, n);
    return str_starts(name, "user.") && name.n > 5 && !str_starts(name, "user.overlay");
}

/* The length of the UTF-8 sequence at the start of s that may be shown as it is; 0: none may. */
static size_t shown(struct str s)
{
    unsigned char c = (unsigned char)s.p[0];
    size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

    if (n == 1)
        return c >= 0x20 && c != 0x7f && c != '\\';
    if (s.n < n || !utf8_valid((struct str){ s.p, n }))
        return 0;
    /* U+0080 to U+009F are control characters too, and some terminals obey them */
    return n == 2 && c == 0xc2 && (unsigned char)s.p[1] < 0xa0 ? 0 : n;
}

void unpack_entry_label(struct str name, char out[static ENTRY_LABEL])
{
    size_t len = 0;

    while (name.n) {
        size_t n = shown(name);

        if (len + (n ? n : 4) + sizeof("...") > ENTRY_LABEL) {
            memcpy(out + len, "...", 3);
            len += 3;
            break;
        }
        if (n)
            memcpy(out + len, name.p, n);
        else
            snprintf(out + len, 5, "\\x%02x", (unsigned char)name.p[0]);
        len += n ? n : 4;
        name.p += n ? n : 1;
        name.n -= n ? n : 1;
    }
    out[len] = 0;
}
