/* privilege.c - see privilege.h. */
#include "jail/privilege.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "jail/weaken.h"

#define BIT(cap) (UINT64_C(1) << (cap))

/* What sudo, package managers and a server on port 80 need of root, inside one user namespace. Not
 * here: SYS_ADMIN and NET_ADMIN (the doors of most escapes through the kernel), MKNOD, NET_RAW,
 * SYS_CHROOT, SYS_PTRACE (ordinary tracing of one's own processes needs none). */
static const uint64_t ordinary = BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) |
                                 BIT(CAP_FSETID) | BIT(CAP_KILL) | BIT(CAP_SETUID) |
                                 BIT(CAP_SETGID) | BIT(CAP_SETPCAP) | BIT(CAP_SETFCAP) |
                                 BIT(CAP_NET_BIND_SERVICE) | BIT(CAP_AUDIT_WRITE);

/* What pid 1 itself needs to start commands as others and to serve their files. */
static const uint64_t guest_needs = BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) |
                                    BIT(CAP_KILL) | BIT(CAP_SETUID) | BIT(CAP_SETGID) |
                                    BIT(CAP_SETPCAP);

static int hold_only(uint64_t set)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2] = {
        { .effective = (uint32_t)set, .permitted = (uint32_t)set },
        { .effective = (uint32_t)(set >> 32), .permitted = (uint32_t)(set >> 32) },
    };

    return (int)syscall(SYS_capset, &header, data);
}

/* The bounding set is what root's exec can ever give: ordinary root gets the set, in profile strict
 * nobody gets anything, and pid 1 alone holds what it needs. */
int privilege_drop(bool strict, struct err *err)
{
    uint64_t bounding = strict ? 0 : ordinary;

    if (weakened("caps"))
        return 0;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
        return err_sys(err, "clear ambient capabilities");
    for (int cap = 0; cap < 64; cap++) {
        if (bounding & BIT(cap))
            continue;
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) && errno != EINVAL)
            return err_sys(err, "drop capability %d", cap);
        if (errno == EINVAL && cap > CAP_LAST_CAP)
            break; /* this kernel has no more */
    }
    return hold_only(strict ? guest_needs : ordinary) ? err_sys(err, "set capabilities") : 0;
}
