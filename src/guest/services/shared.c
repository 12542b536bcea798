/* shared.c - see shared.h. The temporary directory is everybody's: what is found there under our
 * name must be a directory of our own, or files of ours would end up with a stranger. */
#include "guest/services/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "guest/services/service.h"

#define SANDBOX_SHARED "/shared"

static int make(const char *path)
{
    AUTO(freep) char *part = xstrdup(path);

    for (char *p = part + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = 0;
        if (mkdir(part, 0755) && errno != EEXIST)
            return -1;
    }
    return mkdir(part, 0755) && errno != EEXIST ? -1 : 0;
}

static int open_dir(const char *path, bool ours_only, struct err *err)
{
    AUTO(closep) int fd = -1;
    struct stat st;

    if (make(path))
        return err_sys(err, "SHARED_DIR %s", path);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (ours_only ? O_NOFOLLOW : 0));
    if (fd < 0 || fstat(fd, &st))
        return err_sys(err, "SHARED_DIR %s", path);
    if (ours_only && st.st_uid != geteuid())
        return err_set(err, ERR_DENIED,
                       "%s belongs to user %u: set SHARED_DIR to another directory", path,
                       st.st_uid);
    if (faccessat(fd, ".", W_OK | X_OK, AT_EACCESS))
        return err_sys(err, "SHARED_DIR %s", path);
    return TAKE(fd, -1);
}

int shared_open(bool sandbox, char **path, struct err *err)
{
    const char *given = service_env("SHARED_DIR", NULL);
    AUTO(freep) char *chosen = NULL;
    int fd;

    if (given) {
        chosen = xstrdup(given);
    } else if (sandbox && !access(SANDBOX_SHARED, W_OK | X_OK)) {
        chosen = xstrdup(SANDBOX_SHARED);
    } else if (asprintf(&chosen, "%s/sandbox-server", service_env("TMPDIR", "/tmp")) < 0) {
        abort();
    }
    fd = open_dir(chosen, !given && strcmp(chosen, SANDBOX_SHARED), err);
    if (fd >= 0)
        *path = TAKE(chosen, NULL);
    return fd;
}
