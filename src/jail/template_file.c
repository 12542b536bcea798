/* template_file.c - template.json: one table reads and writes it. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/field.h"
#include "base/mem.h"
#include "jail/template_impl.h"

enum { FILE_MAX = 64 << 10 };

static const struct field_name kinds[] = {
    { "host", TEMPLATE_HOST },
    { "directory", TEMPLATE_DIRECTORY },
    { "archive", TEMPLATE_ARCHIVE },
    {},
};

static const struct field_name kernels[] = {
    { "on-demand", TEMPLATE_KERNELS_ON_DEMAND },
    { "warm", TEMPLATE_KERNELS_WARM },
    {},
};

static const struct field limit_fields[] = {
    FIELD(struct limits, memory_bytes, F_INT, .flags = F_OMIT),
    FIELD(struct limits, cpu_milli, F_INT, .flags = F_OMIT),
    FIELD(struct limits, pids, F_INT, .flags = F_OMIT),
    FIELD(struct limits, io_weight, F_INT, .flags = F_OMIT),
    FIELD(struct limits, open_files, F_INT, .flags = F_OMIT),
    FIELD(struct limits, disk_bytes, F_INT, .flags = F_OMIT),
    FIELD(struct limits, log_bytes, F_INT, .flags = F_OMIT),
    FIELD(struct limits, lifetime_ms, F_INT, .flags = F_OMIT),
    {},
};
static_assert(ARRAY_LEN(limit_fields) == LIMIT_COUNT + 1, "a field per limit");

static const struct field fields[] = {
    FIELD(struct template, name, F_STR, .flags = F_REQUIRED, .max = TEMPLATE_NAME_MAX),
    FIELD(struct template, kind, F_ENUM, .flags = F_REQUIRED, .names = kinds),
    FIELD(struct template, source, F_STR, .flags = F_OMIT, .max = 4096),
    FIELD(struct template, created, F_STR, .flags = F_OMIT, .max = 64),
    FIELD(struct template, entries, F_INT, .flags = F_OMIT),
    FIELD(struct template, bytes, F_INT, .flags = F_OMIT),
    FIELD(struct template, sha256, F_STR, .flags = F_OMIT, .max = 64),
    FIELD(struct template, user, F_STR, .flags = F_OMIT, .max = 64),
    FIELD(struct template, workdir, F_STR, .flags = F_OMIT, .max = 4096),
    FIELD(struct template, squashed, F_BOOL, .flags = F_OMIT),
    FIELD(struct template, kernels, F_ENUM, .flags = F_OMIT, .names = kernels),
    FIELD(struct template, limits, F_OBJ, .flags = F_OMIT, .sub = limit_fields,
          .sub_size = sizeof(struct limits)),
    {},
};

const char *template_kind_name(int64_t kind)
{
    return kind >= TEMPLATE_HOST && kind <= TEMPLATE_ARCHIVE ? kinds[kind].name : "unknown";
}

void template_write(const struct template *t, struct buf *out) { field_encode(fields, t, out); }

static int read_file(int dir, struct buf *out, struct err *err)
{
    AUTO(closep) int fd = openat(dir, TEMPLATE_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return err_sys(err, "open " TEMPLATE_FILE);
    do {
        buf_reserve(out, FILE_MAX / 4);
        n = read(fd, out->data + out->len, FILE_MAX / 4);
        if (n < 0)
            return err_sys(err, "read " TEMPLATE_FILE);
        out->len += (size_t)n;
    } while (n && out->len <= FILE_MAX);
    if (out->len > FILE_MAX)
        return err_set(err, ERR_TOO_LARGE, TEMPLATE_FILE " is over %d bytes long", FILE_MAX);
    return 0;
}

/* Unknown keys are passed over: a later release may have written it. */
int template_load(int dir, struct template *out, struct err *err)
{
    AUTO(buf_free) struct buf text = { 0 };

    if (read_file(dir, &text, err) < 0)
        return -1;
    if (field_decode_text(fields, FIELDS_PROTO, buf_str(&text), &out->strings, out, err) < 0)
        return err_in(err, TEMPLATE_FILE);
    return 0;
}

int template_save(int dir, const struct template *t, struct err *err)
{
    AUTO(buf_free) struct buf text = { 0 };
    AUTO(closep)
    int fd = openat(dir, TEMPLATE_FILE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

    template_write(t, &text);
    buf_putc(&text, '\n');
    if (fd < 0 || write(fd, text.data, text.len) != (ssize_t)text.len || fsync(fd))
        return err_sys(err, "write " TEMPLATE_FILE);
    return 0;
}
