/* err.c - building error sentences, and the table that ties a code to HTTP and Connect. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>

static const struct {
    int status;
    const char *name;
} codes[ERR_CODES] = {
    [ERR_NONE] = { 200, "ok" },
    [ERR_INVALID] = { 400, "invalid_argument" },
    [ERR_UNAUTHENTICATED] = { 401, "unauthenticated" },
    [ERR_DENIED] = { 403, "permission_denied" },
    [ERR_NOT_FOUND] = { 404, "not_found" },
    [ERR_METHOD] = { 405, "unimplemented" },
    [ERR_NOT_ACCEPTABLE] = { 406, "invalid_argument" },
    [ERR_CONFLICT] = { 409, "already_exists" },
    [ERR_PRECONDITION] = { 400, "failed_precondition" },
    [ERR_TOO_LARGE] = { 413, "resource_exhausted" },
    [ERR_LIMIT] = { 429, "resource_exhausted" },
    [ERR_HEADERS] = { 431, "resource_exhausted" },
    [ERR_TIMEOUT] = { 504, "deadline_exceeded" },
    [ERR_UNSUPPORTED] = { 501, "unimplemented" },
    [ERR_UPSTREAM] = { 502, "unavailable" },
    [ERR_UNAVAILABLE] = { 503, "unavailable" },
    [ERR_NO_SPACE] = { 507, "resource_exhausted" },
    [ERR_UNKNOWN] = { 500, "unknown" },
    [ERR_GONE] = { 499, "canceled" },
    [ERR_INTERNAL] = { 500, "internal" },
    [ERR_DATA_LOSS] = { 500, "data_loss" },
};

int err_status(enum err_code code) { return codes[code].status; }

const char *err_name(enum err_code code) { return codes[code].name; }

enum err_code err_from_errno(int error)
{
    switch (error) {
    case ENOENT:
    case ESRCH: return ERR_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
    case EXDEV: return ERR_DENIED;
    case EEXIST:
    case ENOTEMPTY:
    case EBUSY:
    case EADDRINUSE: return ERR_CONFLICT;
    case EINVAL:
    case ENOEXEC:
    case ENAMETOOLONG:
    case ENOTDIR:
    case EISDIR: return ERR_INVALID;
    case ELOOP: return ERR_PRECONDITION;
    case ENOSPC:
    case EDQUOT: return ERR_NO_SPACE;
    case E2BIG:
    case EFBIG: return ERR_TOO_LARGE;
    case EMFILE:
    case ENFILE:
    case EAGAIN: return ERR_LIMIT;
    case ETIMEDOUT: return ERR_TIMEOUT;
    case ECANCELED:
    case EPIPE:
    case ECONNRESET: return ERR_GONE;
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH: return ERR_UPSTREAM;
    case ENOSYS:
    case EOPNOTSUPP: return ERR_UNSUPPORTED;
    default: return ERR_INTERNAL;
    }
}

void err_set_(struct err *err, enum err_code code, const char *fmt, ...)
{
    va_list ap;

    err->code = code;
    err->reason = ERR_REASON_NONE;
    err->host = false;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
}

void err_sys_(struct err *err, const char *fmt, ...)
{
    int error = errno;
    va_list ap;
    const char *what = strerrordesc_np(error);
    size_t n;

    err->code = err_from_errno(error);
    err->reason = ERR_REASON_NONE;
    err->host = true;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    n = strlen(err->msg);
    if (what)
        snprintf(err->msg + n, sizeof(err->msg) - n, ": %s", what);
    else
        snprintf(err->msg + n, sizeof(err->msg) - n, ": error %d", error);
}

void err_in_(struct err *err, const char *fmt, ...)
{
    char rest[sizeof(err->msg)];
    va_list ap;
    size_t n;

    memcpy(rest, err->msg, sizeof(rest));
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    n = strlen(err->msg);
    snprintf(err->msg + n, sizeof(err->msg) - n, ": %s", rest);
}

/* Where an absolute path begins: not in the middle of a word, nor in a URL. */
static bool begins_path(const char *msg, const char *at)
{
    static const char before[] = " '\"([=:,", ends[] = " '\"/";

    return *at == '/' && (at == msg || strchr(before, at[-1])) && at[1] && !strchr(ends, at[1]);
}

/* To where a sentence goes on. A name may hold blanks: of such a path the rest stays. */
static size_t path_length(const char *at)
{
    size_t n = strcspn(at, " '\")],;\n");

    while (n && (at[n - 1] == ':' || at[n - 1] == '.'))
        n--;
    return n;
}

void err_hide_paths(const char *msg, err_path_fn *keep, const void *arg, char *out, size_t size)
{
    size_t used = 0;

    for (const char *p = msg; *p && used + 1 < size;) {
        size_t n = begins_path(msg, p) ? path_length(p) : 0;

        if (!n || (keep && keep(arg, (struct str){ p, n }))) {
            for (n = MAX(n, (size_t)1); n && used + 1 < size; n--)
                out[used++] = *p++;
            continue;
        }
        p += n;
        used += (size_t)snprintf(out + used, size - used, "a file of the server");
        used = MIN(used, size - 1);
    }
    out[used] = 0;
}
