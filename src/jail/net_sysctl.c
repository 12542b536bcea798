/* net_sysctl.c - see net_sysctl.h. */
#include "jail/net_sysctl.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

enum { NOTES_MAX = 16 << 10 };

static int open_setting(const char *path, int flags)
{
    char full[160];

    snprintf(full, sizeof(full), "/proc/sys/%s", path);
    return open(full, flags | O_CLOEXEC);
}

int net_sysctl_write(const char *path, const char *value)
{
    AUTO(closep) int fd = open_setting(path, O_WRONLY);

    return fd < 0 || write(fd, value, strlen(value)) < 0 ? -1 : 0;
}

int net_sysctl_read(const char *path, char *out, size_t n)
{
    AUTO(closep) int fd = open_setting(path, O_RDONLY);
    ssize_t r = fd < 0 ? -1 : read(fd, out, n - 1);

    if (r < 0)
        return -1;
    out[r] = 0;
    out[strcspn(out, "\n \t")] = 0;
    return 0;
}

/* The note is written first: whoever is killed between the two restores what is there anyway. */
int net_sysctl_change(int notes, const char *path, const char *value, struct err *err)
{
    char old[32], note[256];
    int n;

    if (net_sysctl_read(path, old, sizeof(old)))
        return err_sys(err, "read /proc/sys/%s", path);
    if (!strcmp(old, value))
        return 0;
    n = snprintf(note, sizeof(note), "%s %s\n", path, old);
    if (lseek(notes, 0, SEEK_END) < 0 || write(notes, note, (size_t)n) != n)
        return err_sys(err, "note the value of /proc/sys/%s", path);
    return net_sysctl_write(path, value) ? err_sys(err, "write /proc/sys/%s", path) : 0;
}

static void restore_line(struct str line)
{
    struct str path, value;
    char p[128], v[32];

    if (!str_cut(line, ' ', &path, &value) || path.n >= sizeof(p) || value.n >= sizeof(v) ||
        !str_starts(path, "net/") || memmem(path.p, path.n, "..", 2))
        return;
    snprintf(p, sizeof(p), "%.*s", STR_ARG(path));
    snprintf(v, sizeof(v), "%.*s", STR_ARG(value));
    if (net_sysctl_write(p, v) && errno != ENOENT) /* its interface may be gone */
        log_warn("a setting was not restored", KV("setting", p), KV("value", v));
}

void net_sysctl_restore(int notes, bool stay)
{
    char text[NOTES_MAX];
    ssize_t n = stay ? 0 : pread(notes, text, sizeof(text), 0);
    struct str rest = { text, n > 0 ? (size_t)n : 0 };

    while (rest.n) {
        const char *end;
        struct str line;

        rest.n -= rest.p[rest.n - 1] == '\n';
        end = rest.n ? memrchr(rest.p, '\n', rest.n) : NULL;
        line.p = end ? end + 1 : rest.p;
        line.n = (size_t)(rest.p + rest.n - line.p);
        restore_line(line);
        rest.n = (size_t)(line.p - rest.p);
    }
    if (ftruncate(notes, 0))
        log_warn("the notes of changed settings were not emptied");
}
