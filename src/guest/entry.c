/* entry.c - see entry.h. For a link, type and mode are its target's, size and permissions its own:
 * that is what the clients were written against. */
#include "guest/entry.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "guest/path.h"

#define METADATA "user.e2b."

enum { XATTR_LIST = 16 << 10, XATTR_VALUE = 4096 };

void entry_context_init(struct entry_context *x, int root, struct arena *a)
{
    *x = (struct entry_context){ .root = root, .arena = a };
    id_names_load(&x->names, a, root);
}

static const char *type_name(mode_t mode)
{
    return S_ISDIR(mode)   ? "FILE_TYPE_DIRECTORY"
           : S_ISLNK(mode) ? "FILE_TYPE_SYMLINK"
                           : "FILE_TYPE_FILE";
}

/* As Go prints a mode: letters for what it is, then nine for permissions. */
static void permissions(mode_t mode, char out[static 16])
{
    size_t n = 0;

    if (S_ISDIR(mode))
        out[n++] = 'd';
    else if (S_ISLNK(mode))
        out[n++] = 'L';
    else if (S_ISBLK(mode) || S_ISCHR(mode))
        out[n++] = 'D';
    else if (S_ISFIFO(mode))
        out[n++] = 'p';
    else if (S_ISSOCK(mode))
        out[n++] = 'S';
    if (mode & S_ISUID)
        out[n++] = 'u';
    if (mode & S_ISGID)
        out[n++] = 'g';
    if (S_ISCHR(mode))
        out[n++] = 'c';
    if (mode & S_ISVTX)
        out[n++] = 't';
    if (!n)
        out[n++] = '-';
    for (int i = 0; i < 9; i++)
        out[n++] = mode & (0400U >> i) ? "rwx"[i % 3] : '-';
    out[n] = 0;
}

static void put_metadata_of(const char *path, struct buf *json)
{
    AUTO(freep) char *names = xmalloc(XATTR_LIST);
    ssize_t n = listxattr(path, names, XATTR_LIST);
    bool any = false;

    for (char *p = names; n > 0 && p < names + n; p += strlen(p) + 1) {
        char value[XATTR_VALUE + 1];
        ssize_t len;

        if (strncmp(p, METADATA, strlen(METADATA)))
            continue;
        len = getxattr(path, p, value, XATTR_VALUE);
        if (len < 0)
            continue;
        if (!any) {
            json_key(json, "metadata");
            json_open(json, '{');
            any = true;
        }
        json_key(json, p + strlen(METADATA));
        json_put_str(json, (struct str){ value, (size_t)len });
    }
    if (any)
        json_close(json, '}');
}

void entry_put_metadata(int fd, struct buf *json)
{
    char path[40];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    put_metadata_of(path, json);
}

static void put_link(struct entry_context *x, int fd, const char *path, struct stat *target,
                     struct buf *json)
{
    AUTO(closep) int to = path_open(x->root, path, O_PATH, 0);
    char text[4096];
    ssize_t n = readlinkat(fd, "", text, sizeof(text) - 1);
    char *resolved = to >= 0 ? path_of_fd(x->arena, x->root, to) : NULL;

    text[MAX(n, (ssize_t)0)] = 0;
    if (to >= 0)
        fstat(to, target); /* a broken link stays what it is: a link */
    json_kv_str(json, "symlinkTarget", resolved ? resolved : text);
    json_kv_bool(json, "isSymlink", true);
    json_kv_str(json, "link", text); /* beyond E2B's fields: as it was written, for a copy */
}

static void put_stat(struct entry_context *x, int fd, const char *name, const char *path,
                     struct buf *json, const struct stat *st)
{
    AUTO(buf_free) struct buf time = { 0 };
    struct stat target = *st;
    char text[16];

    permissions(st->st_mode, text);
    clock_rfc3339(&time, st->st_mtim.tv_sec, (int32_t)st->st_mtim.tv_nsec);
    json_open(json, '{');
    json_kv_str(json, "name", name);
    if (S_ISLNK(st->st_mode))
        put_link(x, fd, path, &target, json);
    json_kv_str(json, "type", type_name(target.st_mode));
    json_kv_str(json, "path", path);
    json_kv_int64s(json, "size", st->st_size);
    json_kv_int(json, "mode", target.st_mode & 0777);
    json_kv_str(json, "permissions", text);
    json_kv_str(json, "owner", id_name_user(&x->names, x->arena, st->st_uid));
    json_kv_str(json, "group", id_name_group(&x->names, x->arena, st->st_gid));
    json_kv_str(json, "modifiedTime", buf_cstr(&time));
    if (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode))
        entry_put_metadata(fd, json);
    json_close(json, '}');
}

int entry_put(struct entry_context *x, int dir, const char *name, const char *path,
              struct buf *json)
{
    AUTO(closep) int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st))
        return -1;
    put_stat(x, fd, name, path, json, &st);
    return 0;
}

int entry_put_path(struct entry_context *x, const char *path, struct buf *json)
{
    AUTO(closep) int fd = path_open(x->root, path, O_PATH | O_NOFOLLOW, 0);
    char *copy = arena_strdup(x->arena, str_of(path)), *name;
    size_t n = strlen(copy);
    struct stat st;

    if (fd < 0 || fstat(fd, &st))
        return -1;
    while (n > 1 && copy[n - 1] == '/')
        copy[--n] = 0;
    name = strrchr(copy, '/');
    put_stat(x, fd, name && name[1] ? name + 1 : copy, copy, json, &st);
    return 0;
}
