/* walls.c - see walls.h.
 *
 * The filter is made at start, not at build time like a sandbox's: the kernel remembers the verdict
 * of a call whose arguments do not matter (since 5.11), so the length of the list costs nothing
 * later. What is not listed shows in the tests, not as a crash. */
#include "jail/walls.h"

#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "no system call numbers for this architecture: add it here"
#endif

/* ---- the root ---- */

int walls_root_begin(struct err *err)
{
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("cove", WALLS_ROOT, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64k,mode=755"))
        return err_sys(err, "make a small root");
    return 0;
}

int walls_root_enter(struct err *err)
{
    if (chdir(WALLS_ROOT) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) ||
        mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
              NULL) ||
        chdir("/"))
        return err_sys(err, "enter a small root");
    return 0;
}

/* ---- the user ---- */

/* Also from what a set-user-ID program could give. */
static int drop_bounding_set(struct err *err)
{
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0))
            return err_sys(err, "drop capability %d", cap);
    return 0;
}

int walls_become(uid_t uid, gid_t gid, struct err *err)
{
    if (drop_bounding_set(err))
        return -1;
    if (setgroups(0, NULL) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid))
        return err_sys(err, "become user %u", uid);
    if (setresuid(0, 0, 0) != -1) /* never: but then nobody should talk to us */
        return err_set(err, ERR_INTERNAL, "root could not be given up");
    return 0;
}

/* ---- system calls ---- */

static void put(struct walls_filter *f, struct sock_filter insn)
{
    if (f->n == WALLS_ROOM)
        abort(); /* our own table, at every start */
    f->code[f->n++] = insn;
}

#define LOAD(what)                                                                                 \
    put(f, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,                                  \
                                        offsetof(struct seccomp_data, what)))
#define IF(test, value, yes, no)                                                                   \
    put(f, (struct sock_filter)BPF_JUMP(BPF_JMP | (test) | BPF_K, (value), (yes), (no)))
#define RETURN(verdict) put(f, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, (verdict)))
#define REFUSE(error)   RETURN(SECCOMP_RET_ERRNO | (error))

/* From here on the number is in the accumulator before and, for all but its own call, behind. */
void walls_filter_begin(struct walls_filter *f)
{
    f->n = 0;
    LOAD(arch);
    IF(BPF_JEQ, ARCH, 1, 0);
    REFUSE(ENOSYS);
    LOAD(nr);
}

void walls_filter_allow(struct walls_filter *f, const unsigned *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        IF(BPF_JEQ, numbers[i], 0, 1);
        RETURN(SECCOMP_RET_ALLOW);
    }
}

void walls_filter_values(struct walls_filter *f, unsigned nr, unsigned arg, const unsigned *values,
                         unsigned char n, unsigned error)
{
    IF(BPF_JEQ, nr, 0, (unsigned char)(n + 3));
    put(f, (struct sock_filter)BPF_STMT(
               BPF_LD | BPF_W | BPF_ABS,
               (unsigned)(offsetof(struct seccomp_data, args) + arg * sizeof(__u64))));
    for (unsigned char i = 0; i < n; i++)
        IF(BPF_JEQ, values[i], (unsigned char)(n - i), 0);
    REFUSE(error);
    RETURN(SECCOMP_RET_ALLOW);
}

/* Code comes from libraries and stays as it is: nothing is both written and executed. */
void walls_filter_memory(struct walls_filter *f)
{
    IF(BPF_JEQ, __NR_mprotect, 0, 4);
    LOAD(args[2]);
    IF(BPF_JSET, PROT_EXEC, 0, 1);
    REFUSE(EACCES);
    RETURN(SECCOMP_RET_ALLOW);
    IF(BPF_JEQ, __NR_mmap, 0, 5);
    LOAD(args[2]);
    put(f, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, PROT_WRITE | PROT_EXEC));
    IF(BPF_JEQ, PROT_WRITE | PROT_EXEC, 0, 1);
    REFUSE(EACCES);
    RETURN(SECCOMP_RET_ALLOW);
}

/* CLONE_THREAD must be there. clone3's flags are in memory, where no filter sees them: libc takes
 * ENOSYS and falls back. */
void walls_filter_threads(struct walls_filter *f)
{
    IF(BPF_JEQ, __NR_clone, 0, 4);
    LOAD(args[0]);
    IF(BPF_JSET, CLONE_THREAD, 0, 1);
    RETURN(SECCOMP_RET_ALLOW);
    REFUSE(EPERM);
    IF(BPF_JEQ, __NR_clone3, 0, 1);
    REFUSE(ENOSYS);
}

int walls_filter_load(struct walls_filter *f, struct err *err)
{
    const struct sock_fprog loaded = { .filter = f->code, .len = (unsigned short)(f->n + 1) };

    REFUSE(EPERM);
    if (WALLS_SANITIZED)
        return 0;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &loaded))
        return err_sys(err, "load the system call filter");
    return 0;
}
