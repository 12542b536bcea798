/* seed.c - what a new layer holds before its sandbox begins: the upper directories, and the files
 * that differ from sandbox to sandbox. They go there before it is mounted: changing a template's
 * file from inside would copy it up, at a hundred times the price. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/jail.h"

static int write_file(int dir, const char *name, mode_t mode, const char *text, struct err *err)
{
    AUTO(closep) int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);

    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        return err_sys(err, "write /etc/%s", name);
    return 0;
}

static int write_identity(int etc, const char *id, struct err *err)
{
    unsigned char random[16];
    char machine[34], hosts[160];

    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return err_sys(err, "random");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(machine + 2 * i, 3, "%02x", random[i]);
    machine[32] = '\n';
    machine[33] = 0;
    snprintf(hosts, sizeof(hosts),
             "127.0.0.1\tlocalhost\n127.0.1.1\t%s\n::1\tlocalhost ip6-localhost\n", id);
    return write_file(etc, "machine-id", 0444, machine, err) ||
           write_file(etc, "hosts", 0644, hosts, err);
}

int jail_seed(int layer, const char *id, struct err *err)
{
    AUTO(closep) int etc = -1;

    if (mkdirat(layer, "r", 0755) || mkdirat(layer, "u", 0755) || mkdirat(layer, "r/etc", 0755))
        return err_sys(err, "make upper directories");
    etc = openat(layer, "r/etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return etc < 0 ? err_sys(err, "open /etc of a layer") : write_identity(etc, id, err);
}
