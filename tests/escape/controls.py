"""controls - for each attempt the defence that is taken out, and what is then seen.

An attempt that holds proves nothing until it has been seen to succeed without the defence. Where
the kernel refuses by itself whatever Cove does, the row says why, and what is then seen is the
kernel's own answer; where that can be another one than the filter's, the attempt is made so that it
is ("unclear: EBADF": it got as far as the kernel's own checks)."""

from typing import NamedTuple

SEEN = "ESCAPED: "


class Control(NamedTuple):
    weaken: str                         # COVE_WEAKEN; "": nothing is taken out
    sees: tuple                         # one of these is how the outcome begins
    user: str = "root"
    why: str = ""                       # the kernel holds it alone
    group: str = ""                     # those of one group share a sandbox
    options: tuple = ()


def _rows(names, weaken, sees=SEEN, **more):
    return {name: Control(weaken, (sees,) if isinstance(sees, str) else tuple(sees), **more)
            for name in names.split()}


def _kernel(names, why, *sees, weaken="seccomp,caps", **more):
    return _rows(names, weaken, sees, why=why, **more)


INITIAL = "needs a capability in the initial user namespace, which nobody inside can have"
HOST_FILE = "the file belongs to the host's root, who is nobody inside"
NOT_BUILT = "not every kernel has it"

CONTROLS = {
    # A. Mounts and the file system. What one changes would show in the next: two groups.
    **_rows("mount-tmpfs mount-proc mount-cgroup2 mount-devpts mount-bind fsopen fspick "
            "open-tree mount-setattr chroot handle-name handle-open", "seccomp,caps",
            group="mount"),
    # ENOSYS: before Linux 6.15
    **_rows("open-tree-attr", "seccomp,caps", (SEEN, "held: ENOSYS"), group="mount"),
    **_rows("remount-mask umount-mask remount-dev remount-shown umount-usr move-mount",
            "seccomp,caps", group="unmount"),
    **_kernel("mount-sysfs", "its network namespace is not the sandbox's own", "held: EPERM"),
    **_kernel("mount-debugfs mount-tracefs mount-securityfs mount-efivarfs", INITIAL,
              "held: EPERM", "unclear: ENODEV"),
    **_rows("fsmount", "seccomp,caps", "unclear: EBADF"),
    **_rows("fsconfig", "seccomp,caps", ("unclear: EINVAL", "unclear: EBADF")),
    **_rows("pivot-root", "seccomp,caps", ("unclear: EINVAL", "unclear: EBUSY")),
    **_rows("above-root mount-list host-file host-process system-files", "pivot"),
    **_rows("read-cmdline read-kallsyms read-boot-id", "masks"),
    **_rows("read-config", "masks", (SEEN, "held: ENOENT")),
    **_rows("read-keys read-key-users", "masks,seccomp"),
    **_kernel("read-kcore read-kmsg read-timer-list read-sched-debug read-slabinfo "
              "read-vmallocinfo read-kpageflags", HOST_FILE, "held: EACCES", "held: EPERM",
              "held: ENOENT", weaken="masks,seccomp,caps"),
    **_kernel("read-iomem read-ioports", INITIAL, "held: zeros", weaken="masks,seccomp,caps"),
    **_kernel("write-core-pattern write-modprobe write-sysrq write-binfmt write-drop-caches "
              "write-mtrr", HOST_FILE, "held: EACCES", "held: ENOENT",
              weaken="masks,seccomp,caps"),
    **_rows("write-own-sysctl write-sysctls write-proc", "masks"),
    **_kernel("read-acpi-tables write-uevent-helper write-release-agent",
              "there is no sysfs; that it can be found where there is one, system-files shows",
              "held: ENOENT", weaken="masks,seccomp,caps"),
    **_kernel("overlay-marks",
              "overlayfs stores its own marks under another name when set from above", "held: "),

    # A12. Pid 1
    **_rows("pid1-environ pid1-mem pid1-maps pid1-auxv pid1-task-mem pid1-exe pid1-root pid1-ns "
            "pid1-cwd pid1-fd pid1-map-files pid1-oom-score pid1-ptrace pid1-vm-readv "
            "pid1-prlimit", "guest,caps"),
    **_rows("pid1-getfd pid1-kcmp setns-pid1", "guest,caps,seccomp"),
    **_kernel("pid1-exe-write", "a program that runs, and is sealed, is not written to",
              "held: EACCES", "held: ETXTBSY", weaken="guest,caps,seccomp"),
    **_kernel("pid1-stop pid1-kill",
              "no signal from inside reaches a pid 1 that does not handle it", "held: ignored"),

    # B. Namespaces, credentials
    **_rows("unshare-user clone-user clone-all clone3-user", "seccomp", user="user"),
    **_rows("unshare-mount unshare-pid unshare-net unshare-ipc unshare-uts unshare-cgroup "
            "setns-own", "seccomp,caps"),
    **_rows("unshare-time", "seccomp,caps", (SEEN, "unclear: EINVAL")),
    **_rows("declared-sets capset setuid-file capability-file", "caps"),
    **_rows("securebits", "seccomp"),
    **_rows("set-mm", "seccomp", (SEEN, "unclear: EINVAL"), user="user"),
    # its owner, root, is nobody inside
    **_rows("setuid-shown", "nosuid,mount-owner", user="user"),
    **_rows("capability-shown", "nosuid,caps,mount-owner", user="user"),
    **_kernel("ambient", "only what is inheritable and permitted can be ambient", "held: EPERM"),
    **_kernel("no-new-privs-off", "there is no way back", "held: EINVAL"),
    **_kernel("setuid-unmapped setuid-host-user setgroups-unmapped chown-unmapped",
              "an id that is not mapped does not exist", "held: EINVAL"),
    **_kernel("setuid-root", "needs CAP_SETUID", "held: EPERM", user="user"),
    **_kernel("stranger", "an id that is not mapped shows as nobody", "held: nobody"),
    **_kernel("uid-map gid-map", "without the user namespace there is no sandbox to compare with",
              "held: 65536 ids"),
    **_kernel("sched-fifo sched-rr sched-deadline nice ioprio-realtime rlimit-files rlimit-core "
              "oom-score", INITIAL, "held: EPERM", "held: EACCES"),
    **_kernel("affinity", "there is no such processor", "held: EINVAL"),
    **_rows("rlimits", "rlimits"),

    # C. System calls
    **_rows("perf-event-open userfaultfd io-uring-setup fanotify-init quotactl clock-adjtime "
            "adjtimex add-key keyctl move-pages memfd-secret io-setup personality-32 "
            "personality-exec modify-ldt socket-vsock socket-vsock-high socket-netfilter "
            "socket-generic-netlink socket-uevent socket-audit socket-mptcp i386-getpid threads "
            "memory-program tiocsetd tiocsetd-high namespace-ioctl", "seccomp", user="user"),
    # EIO: dev.tty.legacy_tiocsti is off
    **_rows("tiocsti tiocsti-high", "seccomp", (SEEN, "unclear: EIO"), user="user"),
    **_rows("sethostname setdomainname", "seccomp,caps"),
    **_rows("bpf", "seccomp", "unclear: EFAULT", user="user"),
    **_rows("io-uring-enter process-madvise vmsplice", "seccomp", "unclear: EBADF", user="user"),
    **_rows("io-uring-register fanotify-mark clock-settime settimeofday migrate-pages "
            "i386-socketcall", "seccomp", ("unclear: EINVAL", "unclear: EBADF"), user="user"),
    **_rows("request-key", "seccomp", "unclear: ENOKEY", user="user"),
    **_rows("process-vm-writev", "seccomp", "unclear: ESRCH", user="user"),
    **_rows("tioclinux", "seccomp", "unclear: ENOTTY", user="user"),
    **_rows("socket-ping socket-ping6", "ping", user="user"),
    **_rows("reboot", "seccomp,caps", "unclear: EINVAL"),
    **_rows("socket-packet socket-xdp socket-packet-type", "seccomp,caps", "unclear: EPERM"),
    **_kernel("kexec-load kexec-file-load init-module finit-module delete-module iopl ioperm",
              INITIAL, "held: EPERM", "unclear: ENOSYS", "unclear: EINVAL", SEEN),
    **_kernel("swapon swapoff acct syslog vhangup tioccons", INITIAL, "held: EPERM"),
    **_kernel("socket-raw socket-raw6 socket-raw-high", INITIAL, "held: EPERM"),
    **_kernel("socket-alg socket-key socket-tipc socket-can socket-bluetooth socket-smc "
              "socket-sctp", NOT_BUILT, SEEN, "held: EAFNOSUPPORT", "held: EPROTONOSUPPORT",
              "unclear: EPERM"),
    **_kernel("lookup-dcookie i386-ipc x32-getpid", NOT_BUILT, "held: ENOSYS", SEEN,
              "unclear: EINVAL"),

    # D. Devices, E. cgroups
    **_rows("device-list device-open device-add device-rights", "dev"),
    **_rows("device-on-mount", "nodev", user="user"),
    **_kernel("mknod-disk mknod-mem mknod-kvm mknod-tun mknod-fuse", INITIAL, "held: EPERM"),
    **_rows("mknod-whiteout", "seccomp", user="user"),
    **_rows("cgroup-paths", "cgroupns"),

    # The host beside it
    **_rows("host-abstract-socket host-tcp", "netns", user="user"),
    **_rows("host-shared-memory", "ipcns", user="user"),
    **_kernel("host-signal", "the number means nobody in this pid namespace", "held: ESRCH"),

    # G. Exhaustion
    **_rows("all-terminals", "terminals", user="user"),
    **_rows("fork-bomb", "limits", user="user", options=("PIDS",)),
    **_rows("memory-anonymous memory-memfd memory-shm memory-system-v", "limits", user="user",
            options=("MEMORY",)),
    **_rows("disk-write disk-deleted disk-allocate disk-sparse disk-files disk-directories "
            "disk-attributes", "quota", user="user", options=("DISK",)),
}

# Attempts with a test of their own, which contains the control.
SPECIAL = {"descriptors", "caller-terminal", "network-denied", "overlay-forge", "neighbour",
           "take-watchers", "take-queues", "take-timers", "queue-netlink", "queue-ping",
           "queue-udp", "queue-tcp", "queue-errors", "queue-waiting", "queue-unlisted",
           "queue-reset"}
