/* dirs.c - see dirs.h. */
#include "cli/dirs.h"

#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"

/* The XDG specification says that a relative path in these variables is to be ignored. */
static const char *absolute(const char *variable)
{
    const char *path = getenv(variable);

    return path && path[0] == '/' ? path : NULL;
}

char *dirs_data(void)
{
    const char *data = absolute("XDG_DATA_HOME"), *home = absolute("HOME");
    struct buf b = { 0 };

    if (geteuid() == 0)
        return xstrdup("/var/lib/cove");
    if (data)
        buf_printf(&b, "%s/cove", data);
    else if (home)
        buf_printf(&b, "%s/.local/share/cove", home);
    else
        buf_printf(&b, "/var/tmp/cove-%u", geteuid());
    return b.data;
}

char *dirs_run(void)
{
    const char *run = absolute("XDG_RUNTIME_DIR");
    struct buf b = { 0 };

    if (geteuid() == 0)
        return xstrdup("/run/cove");
    if (run)
        buf_printf(&b, "%s/cove", run);
    else
        buf_printf(&b, "/tmp/cove-%u", geteuid());
    return b.data;
}
