/* net_bare.c - see net_bare.h.
 *
 * The namespace belongs to the host's user namespace, not to the sandbox's: root inside holds no
 * power over it. So what root expects to be able to do is opened here: ports below 1024. Ping is
 * not, but where it was asked for, as what waits in its sockets is charged to no cgroup. */
#include "jail/net_bare.h"

#include <errno.h>
#include <linux/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "jail/net_sysctl.h"
#include "jail/weaken.h"

/* Group ids are those of the writer's user namespace, and sandboxes have theirs far up: all, if the
 * kernel takes them (6.4 and later), else as many as there are. */
int net_bare_ping(struct err *err)
{
    static const char *const ranges[] = { "0 4294967294", "0 2147483647", "0 65535", "0 0" };

    for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
        if (!net_sysctl_write("net/ipv4/ping_group_range", ranges[i]))
            return 0;
        else if (errno != EINVAL)
            break;
    return err_sys(err, "allow ping");
}

/* By ioctl: netlink would be a library more in the first process of every sandbox. */
static int bring_up_lo(void)
{
    AUTO(closep) int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };

    return fd < 0 ? -1 : ioctl(fd, SIOCSIFFLAGS, &lo);
}

int net_bare(struct err *err)
{
    if (unshare(CLONE_NEWNET))
        return err_sys(err, "make a network namespace");
    if (net_sysctl_write("net/ipv4/ip_unprivileged_port_start", "0"))
        return err_sys(err, "open the ports below 1024");
    if (weakened("ping") && net_bare_ping(err))
        return -1;
    return bring_up_lo() ? err_sys(err, "bring up lo") : 0;
}
