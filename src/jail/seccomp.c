/* seccomp.c - see seccomp.h. The filter is data, made from seccomp_table.h by seccomp_gen.c when
 * Cove was built: loading it is one system call. */
#include "jail/seccomp.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "jail/seccomp_filter.h"
#include "jail/weaken.h"

int seccomp_load(struct err *err)
{
    /* The kernel copies it; its struct has no const. */
    struct sock_fprog program = { ARRAY_LEN(seccomp_filter),
                                  (struct sock_filter *)(uintptr_t)seccomp_filter };
    long status;

    if (weakened("seccomp"))
        return 0;
    /* TSYNC: a thread that runs already gets the filter too, or nobody does. */
    status = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    if (status > 0)
        return err_set(err, ERR_INTERNAL, "load the system call filter: thread %ld has another one",
                       status);
    if (status < 0)
        return err_sys(err, "load the system call filter (it needs CAP_SYS_ADMIN in the user "
                            "namespace, or no_new_privs)");
    return 0;
}
