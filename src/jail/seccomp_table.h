/* seccomp_table.h - every system call with its verdict: the one place that says what a sandbox may
 * ask of the kernel. seccomp_gen.c compiles it, the tests compare what the kernel answers with it.
 *
 * It is an allow-list: a number without a row (a newer kernel's) is ENOSYS, and so is every call by
 * the i386 entry or with an x32 number. The two ways to refuse:
 *   ENOSYS  the feature does not exist here. Libraries try such calls and fall back quietly.
 *   EPERM   an administrator's act that is not the sandbox's. People read the message.
 *
 * This is the second wall. What the capabilities, the namespaces and the missing devices refuse
 * already is refused here too, so that a bug behind one of them cannot be reached at all. */
#ifndef JAIL_SECCOMP_TABLE_H
#define JAIL_SECCOMP_TABLE_H

#include <asm/ioctls.h>
#include <asm/unistd.h>
#include <assert.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/util.h"

enum { SECCOMP_TESTS = 3, SECCOMP_IDLE = 4096 /* above every errno */ };

/* (low 32 bits of the argument & mask) == value. There is no way to look at the upper half: each
 * argument tested below is 32 bits or less to the kernel, which ignores the rest, and a filter
 * that did not would be passed by setting a high bit (CVE-2019-10063). */
struct seccomp_test {
    unsigned arg;
    uint32_t mask, value; /* mask 0: no test */
};

struct seccomp_rule { /* the first rule whose tests all hold decides; the last has none */
    int verdict;      /* 0: allowed, SECCOMP_IDLE, else the errno */
    struct seccomp_test when[SECCOMP_TESTS];
};

struct seccomp_row {
    uint32_t nr;
    const char *name;
    int verdict;                      /* as above, where there are no rules */
    const struct seccomp_rule *rules; /* or NULL */
    size_t rule_count;
};

#define IS(arg, value)                                                                             \
    {                                                                                              \
        (arg), UINT32_MAX, (value)                                                                 \
    }
#define BITS(arg, mask, value)                                                                     \
    {                                                                                              \
        (arg), (mask), (value)                                                                     \
    }

/* Kernel bugs by the dozen were reachable only from a fresh user namespace. 0x80 (NEWTIME) is no
 * flag of clone: those bits are the exit signal there. */
#define SECCOMP_CLONE_NEW                                                                          \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET)
static const struct seccomp_rule seccomp_clone[] = {
    { 0, { BITS(0, SECCOMP_CLONE_NEW, 0) } },
    { EPERM },
};

/* Families by name only: AF_ALG wrote into the shared page cache (CVE-2026-31431), AF_VSOCK reaches
 * the host, AF_PACKET listens, and most others are modules that a socket() call would load.
 * AF_INET and AF_INET6, 2 and 10, differ in one bit. Their protocols are listed as well: SCTP,
 * DCCP, L2TP, SMC and MPTCP are large, and those who try MPTCP first (Go) take EPROTONOSUPPORT for
 * no. SOCK_PACKET, type 10, makes an AF_INET socket an AF_PACKET one: it ends in the same refusal.
 * Netlink other than ROUTE must not be EPERM: with that, useradd aborts for want of an audit
 * socket. */
#define INET     BITS(0, ~(uint32_t)(AF_INET ^ AF_INET6), AF_INET)
#define TYPE(is) BITS(1, 0xf, (is))
static_assert(AF_INET == 2 && AF_INET6 == 10, "the mask of INET needs this");
static const struct seccomp_rule seccomp_socket[] = {
    { 0, { IS(0, AF_UNIX) } },
    { 0, { INET, TYPE(SOCK_STREAM), IS(2, 0) } },
    { 0, { INET, TYPE(SOCK_STREAM), IS(2, IPPROTO_TCP) } },
    { 0, { INET, TYPE(SOCK_DGRAM), IS(2, 0) } },
    { 0, { INET, TYPE(SOCK_DGRAM), IS(2, IPPROTO_UDP) } },
    { 0, { INET, TYPE(SOCK_DGRAM), IS(2, IPPROTO_ICMP) } }, /* ping without privilege */
    { 0, { INET, TYPE(SOCK_DGRAM), IS(2, IPPROTO_ICMPV6) } },
    { EPERM, { INET, TYPE(SOCK_RAW) } },
    { EPROTONOSUPPORT, { INET } },
    { 0, { IS(0, AF_NETLINK), IS(2, NETLINK_ROUTE) } }, /* what libc asks for interfaces */
    { EAFNOSUPPORT },
};
static const struct seccomp_rule seccomp_socketpair[] = {
    { 0, { IS(0, AF_UNIX) } },
    { EAFNOSUPPORT },
};

/* What waits in a socket counts for nobody (netlink, ping) or apart from memory, and with 4 MiB
 * each a hundred sockets were a machine's memory. So every queue has the kernel's own size. A
 * refusal would end programs that only wish for more; TCP's grow by themselves, up to what is
 * charged. */
#define BUFFER(option) IS(1, SOL_SOCKET), IS(2, (option))
static const struct seccomp_rule seccomp_setsockopt[] = {
    { SECCOMP_IDLE, { BUFFER(SO_SNDBUF) } },
    { SECCOMP_IDLE, { BUFFER(SO_RCVBUF) } },
    { SECCOMP_IDLE, { BUFFER(SO_SNDBUFFORCE) } },
    { SECCOMP_IDLE, { BUFFER(SO_RCVBUFFORCE) } },
    { 0 },
};

/* Typing into somebody else's terminal, the console's own ioctls, and line disciplines, which are
 * modules. The ioctls of namespace descriptors (types 0xb7 and 0xb8) walk from one namespace to
 * others, with checks that were incomplete (CVE-2026-43391); only lsns misses them. */
static const struct seccomp_rule seccomp_ioctl[] = {
    { EPERM, { IS(1, TIOCSTI) } },
    { EPERM, { IS(1, TIOCLINUX) } },
    { EPERM, { IS(1, TIOCSETD) } },
    { EPERM, { IS(1, TIOCCONS) } },
    { EPERM, { BITS(1, 0xff00, 0xb700) } },
    { EPERM, { BITS(1, 0xff00, 0xb800) } },
    { 0 },
};

/* 0xffffffff asks; debuggers and sanitizers switch address randomization off for their child. The
 * foreign personalities change how paths and memory maps behave and are hardly tested. */
static const struct seccomp_rule seccomp_personality[] = {
    { 0, { IS(0, 0) } },
    { 0, { IS(0, UINT32_MAX) } },
    { 0, { IS(0, ADDR_NO_RANDOMIZE) } },
    { EPERM },
};

/* Devices are refused by the kernel as well; fifos and sockets are the sandbox's to make. */
#define NO_DEVICES(mode_arg)                                                                       \
    { EPERM, { BITS(mode_arg, S_IFMT, S_IFCHR) } },                                                \
        { EPERM, { BITS(mode_arg, S_IFMT, S_IFBLK) } },                                            \
    {                                                                                              \
        0                                                                                          \
    }
#ifdef __x86_64__
static const struct seccomp_rule seccomp_mknod[] = { NO_DEVICES(1) };
#endif
static const struct seccomp_rule seccomp_mknodat[] = { NO_DEVICES(2) };

/* A multiplexer, so by option. Left out: SET_MM forges what /proc says of a process, SET_SECUREBITS
 * would take root's meaning away for all children, SCHED_CORE idles a core's other thread,
 * SET_MEMORY_MERGE shares pages between tenants. An unknown option is EINVAL, as on an old kernel.
 */
static const struct seccomp_rule seccomp_prctl[] = {
    { 0, { IS(0, PR_SET_NAME) } },
    { 0, { IS(0, PR_GET_NAME) } },
    { 0, { IS(0, PR_SET_VMA) } }, /* allocators name their maps */
    { 0, { IS(0, PR_SET_PDEATHSIG) } },
    { 0, { IS(0, PR_GET_PDEATHSIG) } },
    { 0, { IS(0, PR_GET_DUMPABLE) } },
    { 0, { IS(0, PR_SET_DUMPABLE) } },
    { 0, { IS(0, PR_GET_KEEPCAPS) } },
    { 0, { IS(0, PR_SET_KEEPCAPS) } },
    { 0, { IS(0, PR_GET_TIMING) } },
    { 0, { IS(0, PR_SET_TIMING) } },
    { 0, { IS(0, PR_GET_SECCOMP) } },
    { 0, { IS(0, PR_SET_SECCOMP) } },
    { 0, { IS(0, PR_CAPBSET_READ) } },
    { 0, { IS(0, PR_CAPBSET_DROP) } },
    { 0, { IS(0, PR_GET_TSC) } },
    { 0, { IS(0, PR_SET_TSC) } },
    { 0, { IS(0, PR_GET_SECUREBITS) } },
    { EPERM, { IS(0, PR_SET_SECUREBITS) } },
    { 0, { IS(0, PR_SET_TIMERSLACK) } },
    { 0, { IS(0, PR_GET_TIMERSLACK) } },
    { 0, { IS(0, PR_MCE_KILL) } },
    { 0, { IS(0, PR_MCE_KILL_GET) } },
    { EPERM, { IS(0, PR_SET_MM) } },
    { 0, { IS(0, PR_SET_PTRACER) } },
    { 0, { IS(0, PR_SET_CHILD_SUBREAPER) } },
    { 0, { IS(0, PR_GET_CHILD_SUBREAPER) } },
    { 0, { IS(0, PR_SET_NO_NEW_PRIVS) } },
    { 0, { IS(0, PR_GET_NO_NEW_PRIVS) } },
    { 0, { IS(0, PR_GET_TID_ADDRESS) } },
    { 0, { IS(0, PR_SET_THP_DISABLE) } },
    { 0, { IS(0, PR_GET_THP_DISABLE) } },
    { 0, { IS(0, PR_CAP_AMBIENT) } },
    { 0, { IS(0, PR_GET_SPECULATION_CTRL) } },
    { 0, { IS(0, PR_SET_SPECULATION_CTRL) } },
    { 0, { IS(0, PR_SET_SYSCALL_USER_DISPATCH) } }, /* Wine */
    { 0, { IS(0, 65) } },                           /* PR_SET_MDWE, Linux 6.3 */
    { 0, { IS(0, 66) } },                           /* PR_GET_MDWE */
#ifdef __aarch64__
    { 0, { IS(0, PR_SVE_SET_VL) } },
    { 0, { IS(0, PR_SVE_GET_VL) } },
    { 0, { IS(0, PR_SME_SET_VL) } },
    { 0, { IS(0, PR_SME_GET_VL) } },
    { 0, { IS(0, PR_PAC_RESET_KEYS) } },
    { 0, { IS(0, PR_PAC_SET_ENABLED_KEYS) } },
    { 0, { IS(0, PR_PAC_GET_ENABLED_KEYS) } },
    { 0, { IS(0, PR_SET_TAGGED_ADDR_CTRL) } },
    { 0, { IS(0, PR_GET_TAGGED_ADDR_CTRL) } },
#endif
    { EINVAL },
};

/* A name that this architecture lacks does not compile; those that only x86-64 has stand together
 * at the end. From 424 on numbers are the same everywhere, so that calls which the headers of the
 * build machine do not know yet are written with theirs. */
#define ALLOW(name)                                                                                \
    {                                                                                              \
        __NR_##name, #name, 0, NULL                                                                \
    }
#define DENY(error, name)                                                                          \
    {                                                                                              \
        __NR_##name, #name, (error), NULL                                                          \
    }
#define RULES(name)                                                                                \
    {                                                                                              \
        __NR_##name, #name, 0, seccomp_##name, ARRAY_LEN(seccomp_##name)                           \
    }
#define NR(nr, name, errno_)                                                                       \
    {                                                                                              \
        (nr), #name, (errno_), NULL                                                                \
    }

static const struct seccomp_row seccomp_table[] = {
    /* Descriptors: what a process does with what it has opened. vmsplice lends the kernel pages
     * that the process can still change; those who use it for speed fall back. sync writes out the
     * whole machine, at everybody's cost; a file or its file system still can be. */
    ALLOW(read), ALLOW(write), ALLOW(close), ALLOW(close_range), ALLOW(lseek), ALLOW(pread64),
    ALLOW(pwrite64), ALLOW(readv), ALLOW(writev), ALLOW(preadv), ALLOW(pwritev), ALLOW(preadv2),
    ALLOW(pwritev2), ALLOW(dup), ALLOW(dup3), ALLOW(fcntl), ALLOW(flock), ALLOW(pipe2),
    ALLOW(sendfile), ALLOW(splice), ALLOW(tee), ALLOW(copy_file_range), ALLOW(fsync),
    ALLOW(fdatasync), DENY(SECCOMP_IDLE, sync), ALLOW(syncfs), ALLOW(sync_file_range),
    ALLOW(fallocate), ALLOW(ftruncate), ALLOW(fadvise64), ALLOW(readahead), NR(451, cachestat, 0),
    RULES(ioctl), DENY(ENOSYS, vmsplice),

    /* Paths: the mounts and the owners decide. */
    ALLOW(openat), ALLOW(openat2), ALLOW(fstat), ALLOW(newfstatat), ALLOW(statx), ALLOW(faccessat),
    ALLOW(faccessat2), ALLOW(statfs), ALLOW(fstatfs), ALLOW(getdents64), ALLOW(readlinkat),
    ALLOW(getcwd), ALLOW(chdir), ALLOW(fchdir), ALLOW(mkdirat), ALLOW(unlinkat), ALLOW(renameat),
    ALLOW(renameat2), ALLOW(linkat), ALLOW(symlinkat), RULES(mknodat), ALLOW(truncate),
    ALLOW(fchmod), ALLOW(fchmodat), NR(452, fchmodat2, 0), ALLOW(fchown), ALLOW(fchownat),
    ALLOW(umask), ALLOW(utimensat), ALLOW(setxattr), ALLOW(lsetxattr), ALLOW(fsetxattr),
    ALLOW(getxattr), ALLOW(lgetxattr), ALLOW(fgetxattr), ALLOW(listxattr), ALLOW(llistxattr),
    ALLOW(flistxattr), ALLOW(removexattr), ALLOW(lremovexattr), ALLOW(fremovexattr),
    NR(463, setxattrat, 0), NR(464, getxattrat, 0), NR(465, listxattrat, 0),
    NR(466, removexattrat, 0), ALLOW(inotify_init1), ALLOW(inotify_add_watch),
    ALLOW(inotify_rm_watch),

    /* Waiting. io_uring does the work of other calls where no filter sees it, and has had more
     * holes than any part of the kernel its size. Of the older asynchronous calls the first is
     * refused: contexts are counted for the whole machine, and one sandbox could take them all. */
    ALLOW(pselect6), ALLOW(ppoll), ALLOW(epoll_create1), ALLOW(epoll_ctl), ALLOW(epoll_pwait),
    ALLOW(epoll_pwait2), ALLOW(eventfd2), ALLOW(signalfd4), ALLOW(timerfd_create),
    ALLOW(timerfd_settime), ALLOW(timerfd_gettime), DENY(ENOSYS, io_setup), ALLOW(io_destroy),
    ALLOW(io_submit), ALLOW(io_cancel), ALLOW(io_getevents), ALLOW(io_pgetevents),
    DENY(ENOSYS, io_uring_setup), DENY(ENOSYS, io_uring_enter), DENY(ENOSYS, io_uring_register),

    /* Sockets: made under rules; what is made may be used. */
    RULES(socket), RULES(socketpair), ALLOW(bind), ALLOW(listen), ALLOW(accept), ALLOW(accept4),
    ALLOW(connect), ALLOW(getsockname), ALLOW(getpeername), ALLOW(sendto), ALLOW(recvfrom),
    ALLOW(sendmsg), ALLOW(recvmsg), ALLOW(sendmmsg), ALLOW(recvmmsg), RULES(setsockopt),
    ALLOW(getsockopt), ALLOW(shutdown),

    /* Memory of one's own. memfd_secret hides pages from the checkpoint, and userfaultfd holds the
     * kernel still in the middle of a copy, which is what exploits want. */
    ALLOW(mmap), ALLOW(munmap), ALLOW(mprotect), ALLOW(mremap), ALLOW(brk), ALLOW(msync),
    ALLOW(mincore), ALLOW(madvise), ALLOW(mlock), ALLOW(mlock2), ALLOW(munlock), ALLOW(mlockall),
    ALLOW(munlockall), ALLOW(remap_file_pages), ALLOW(memfd_create), ALLOW(pkey_mprotect),
    ALLOW(pkey_alloc), ALLOW(pkey_free), ALLOW(membarrier), NR(462, mseal, 0),
    NR(453, map_shadow_stack, 0), DENY(ENOSYS, memfd_secret), DENY(EPERM, userfaultfd),

    /* NUMA policy for oneself (OpenMP, numpy), not moving pages of others about. */
    ALLOW(mbind), ALLOW(set_mempolicy), ALLOW(get_mempolicy), DENY(EPERM, migrate_pages),
    DENY(EPERM, move_pages), DENY(ENOSYS, set_mempolicy_home_node),

    /* Processes. clone3 has its flags in memory, where a filter cannot look: without it libc takes
     * clone. unshare and setns are the other two ways into a namespace. */
    RULES(clone), ALLOW(execve), ALLOW(execveat), ALLOW(exit), ALLOW(exit_group), ALLOW(wait4),
    ALLOW(waitid), ALLOW(getpid), ALLOW(getppid), ALLOW(gettid), ALLOW(getpgid), ALLOW(setpgid),
    ALLOW(getsid), ALLOW(setsid), ALLOW(set_tid_address), ALLOW(set_robust_list),
    ALLOW(get_robust_list), ALLOW(rseq), RULES(prctl), RULES(personality), ALLOW(pidfd_open),
    ALLOW(pidfd_send_signal), ALLOW(process_mrelease), ALLOW(futex), ALLOW(futex_waitv),
    NR(454, futex_wake, 0), NR(455, futex_wait, 0), NR(456, futex_requeue, 0), DENY(ENOSYS, clone3),
    DENY(EPERM, unshare), DENY(EPERM, setns),

    /* Signals and timers. */
    ALLOW(rt_sigaction), ALLOW(rt_sigprocmask), ALLOW(rt_sigpending), ALLOW(rt_sigtimedwait),
    ALLOW(rt_sigqueueinfo), ALLOW(rt_tgsigqueueinfo), ALLOW(rt_sigsuspend), ALLOW(rt_sigreturn),
    ALLOW(sigaltstack), ALLOW(kill), ALLOW(tkill), ALLOW(tgkill), ALLOW(restart_syscall),
    ALLOW(nanosleep), ALLOW(clock_nanosleep), ALLOW(getitimer), ALLOW(setitimer),
    ALLOW(timer_create), ALLOW(timer_settime), ALLOW(timer_gettime), ALLOW(timer_getoverrun),
    ALLOW(timer_delete),

    /* Debuggers: strace and gdb work. Since Linux 4.8 a filter sees what a tracer put in the place
     * of a call. Writing goes by ptrace or /proc/PID/mem, so the batch form is not needed; kcmp
     * tells the order of kernel addresses, pidfd_getfd takes descriptors out of others. */
    ALLOW(ptrace), ALLOW(process_vm_readv), DENY(EPERM, process_vm_writev),
    DENY(EPERM, process_madvise), DENY(EPERM, kcmp), DENY(EPERM, pidfd_getfd),

    /* Who one is: ids that are mapped, capabilities that are held; nothing can be raised. */
    ALLOW(getuid), ALLOW(geteuid), ALLOW(getgid), ALLOW(getegid), ALLOW(getresuid),
    ALLOW(getresgid), ALLOW(getgroups), ALLOW(setuid), ALLOW(setgid), ALLOW(setreuid),
    ALLOW(setregid), ALLOW(setresuid), ALLOW(setresgid), ALLOW(setgroups), ALLOW(setfsuid),
    ALLOW(setfsgid), ALLOW(capget), ALLOW(capset),

    /* Limits and scheduling: lowering is free, raising is the kernel's to refuse. */
    ALLOW(getrlimit), ALLOW(setrlimit), ALLOW(prlimit64), ALLOW(getrusage), ALLOW(times),
    ALLOW(getpriority), ALLOW(setpriority), ALLOW(ioprio_get), ALLOW(ioprio_set),
    ALLOW(sched_yield), ALLOW(sched_setparam), ALLOW(sched_getparam), ALLOW(sched_setscheduler),
    ALLOW(sched_getscheduler), ALLOW(sched_get_priority_max), ALLOW(sched_get_priority_min),
    ALLOW(sched_rr_get_interval), ALLOW(sched_setaffinity), ALLOW(sched_getaffinity),
    ALLOW(sched_setattr), ALLOW(sched_getattr), ALLOW(getcpu), NR(471, rseq_slice_yield, ENOSYS),

    /* Asking about the machine and the time. */
    ALLOW(uname), ALLOW(sysinfo), ALLOW(getrandom), ALLOW(gettimeofday), ALLOW(clock_gettime),
    ALLOW(clock_getres),

    /* System V and POSIX objects: the sandbox has an IPC namespace of its own. */
    ALLOW(shmget), ALLOW(shmat), ALLOW(shmdt), ALLOW(shmctl), ALLOW(semget), ALLOW(semop),
    ALLOW(semtimedop), ALLOW(semctl), ALLOW(msgget), ALLOW(msgsnd), ALLOW(msgrcv), ALLOW(msgctl),
    ALLOW(mq_open), ALLOW(mq_unlink), ALLOW(mq_timedsend), ALLOW(mq_timedreceive), ALLOW(mq_notify),
    ALLOW(mq_getsetattr),

    /* Sandboxes inside: a program may fence itself in further. */
    ALLOW(seccomp), ALLOW(landlock_create_ruleset), ALLOW(landlock_add_rule),
    ALLOW(landlock_restrict_self),

    /* Mounts, and roots. EPERM where people type the command; ENOSYS for the newest calls, which
     * libmount tries before it reads /proc/self/mountinfo. File handles open by inode number,
     * past every directory. */
    DENY(EPERM, mount), DENY(EPERM, umount2), DENY(EPERM, pivot_root), DENY(EPERM, chroot),
    DENY(EPERM, open_tree), DENY(EPERM, move_mount), DENY(EPERM, fsopen), DENY(EPERM, fsconfig),
    DENY(EPERM, fsmount), DENY(EPERM, fspick), DENY(EPERM, mount_setattr),
    DENY(EPERM, name_to_handle_at), DENY(EPERM, open_by_handle_at), NR(457, statmount, ENOSYS),
    NR(458, listmount, ENOSYS), NR(467, open_tree_attr, ENOSYS), NR(468, file_getattr, ENOSYS),
    NR(469, file_setattr, ENOSYS), NR(470, listns, ENOSYS),

    /* The kernel's own programs, watchers and keys: reached by few, and holed again and again. */
    DENY(EPERM, bpf), DENY(EPERM, perf_event_open), DENY(EPERM, fanotify_init),
    DENY(EPERM, fanotify_mark), DENY(EPERM, add_key), DENY(EPERM, request_key), DENY(EPERM, keyctl),
    NR(459, lsm_get_self_attr, ENOSYS), NR(460, lsm_set_self_attr, ENOSYS),
    NR(461, lsm_list_modules, ENOSYS),

    /* Running the machine. */
    DENY(EPERM, reboot), DENY(EPERM, kexec_load), DENY(EPERM, kexec_file_load),
    DENY(EPERM, init_module), DENY(EPERM, finit_module), DENY(EPERM, delete_module),
    DENY(EPERM, swapon), DENY(EPERM, swapoff), DENY(EPERM, acct), DENY(EPERM, quotactl),
    DENY(EPERM, quotactl_fd), DENY(EPERM, syslog), DENY(EPERM, vhangup), DENY(EPERM, sethostname),
    DENY(EPERM, setdomainname), DENY(EPERM, settimeofday), DENY(EPERM, clock_settime),
    DENY(EPERM, adjtimex), DENY(EPERM, clock_adjtime),

    /* Calls without a body in today's kernels. */
    DENY(ENOSYS, lookup_dcookie), DENY(ENOSYS, nfsservctl),

#ifdef __x86_64__
    /* The older forms of the calls above; newer architectures never had them. */
    ALLOW(open), ALLOW(creat), ALLOW(stat), ALLOW(lstat), ALLOW(access), ALLOW(readlink),
    ALLOW(getdents), ALLOW(mkdir), ALLOW(rmdir), ALLOW(unlink), ALLOW(rename), ALLOW(link),
    ALLOW(symlink), RULES(mknod), ALLOW(chmod), ALLOW(chown), ALLOW(lchown), ALLOW(utime),
    ALLOW(utimes), ALLOW(futimesat), ALLOW(dup2), ALLOW(pipe), ALLOW(poll), ALLOW(select),
    ALLOW(epoll_create), ALLOW(epoll_wait), ALLOW(eventfd), ALLOW(signalfd), ALLOW(inotify_init),
    ALLOW(fork), ALLOW(vfork), ALLOW(getpgrp), ALLOW(pause), ALLOW(alarm), ALLOW(time),

    /* Thread pointer and AMX permission. Port access and local descriptor tables are hardware that
     * nobody here needs; the thread areas serve 32-bit code. */
    ALLOW(arch_prctl), DENY(EPERM, iopl), DENY(EPERM, ioperm), DENY(ENOSYS, modify_ldt),
    DENY(ENOSYS, set_thread_area), DENY(ENOSYS, get_thread_area),

    /* Not called by programs: the kernel plants them in a process that somebody outside traces
     * with uprobes, and it would crash if they failed. Called by hand they are SIGILL. */
    NR(335, uretprobe, 0), NR(336, uprobe, 0),

    /* Never built, gone, or of no use to anybody. */
    DENY(ENOSYS, uselib), DENY(ENOSYS, ustat), DENY(ENOSYS, sysfs), DENY(ENOSYS, _sysctl),
    DENY(ENOSYS, create_module), DENY(ENOSYS, get_kernel_syms), DENY(ENOSYS, query_module),
    DENY(ENOSYS, getpmsg), DENY(ENOSYS, putpmsg), DENY(ENOSYS, afs_syscall), DENY(ENOSYS, tuxcall),
    DENY(ENOSYS, security), DENY(ENOSYS, epoll_ctl_old), DENY(ENOSYS, epoll_wait_old),
    DENY(ENOSYS, vserver)
#endif
};

#undef IS
#undef BITS
#undef INET
#undef TYPE
#undef BUFFER
#undef NO_DEVICES
#undef ALLOW
#undef DENY
#undef RULES
#undef NR

/* The verdict on a call by the table, which is what the filter made from it has to say. */
static inline int seccomp_verdict(const struct seccomp_row *row, const uint64_t *args)
{
    for (size_t i = 0; i < row->rule_count; i++) {
        const struct seccomp_rule *rule = &row->rules[i];
        int held = 0; /* a test that is not there, mask and value 0, holds */

        while (held < SECCOMP_TESTS && ((uint32_t)args[rule->when[held].arg] &
                                        rule->when[held].mask) == rule->when[held].value)
            held++;
        if (held == SECCOMP_TESTS)
            return rule->verdict;
    }
    return row->verdict;
}

#endif
