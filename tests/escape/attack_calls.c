/* attack_calls.c - system calls that no sandbox needs. Each is made so that a kernel that gets to
 * see it either does it or answers otherwise than the filter: then a control can tell the two
 * apart. None does harm when it works; those that set the clock carry a time that is none. */
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <netinet/in.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "attack.h"

static long call(const struct attempt *a)
{
    return syscall(a->nr, a->args[0], a->args[1], a->args[2], a->args[3], a->args[4], a->args[5]);
}

static char byte[8];
static struct iovec memory = { byte, 1 };
static struct timespec no_time = { 0, -1 };
static struct timeval no_timeval = { 0, -1 };
static struct timex no_change;
static struct io_uring_params ring;
static union bpf_attr object;
static struct perf_event_attr event = { .type = PERF_TYPE_SOFTWARE,
                                        .size = sizeof(event),
                                        .config = PERF_COUNT_SW_TASK_CLOCK,
                                        .exclude_kernel = 1,
                                        .exclude_hv = 1 };
static const char word[] = "attack";

/* Every argument from memory is static, so that the table is one of constants. */
#define AT(object) ((uintptr_t)(object))
#define CALL(name, nr, error, ...)                                                                 \
    {                                                                                              \
        name, call, { error }, NULL, nr, { __VA_ARGS__ }                                           \
    }

enum {
    USER_FAULTS_ONLY = 1,
    FANOTIFY_BY_ID = 0x200,
    QUOTA_SYNC = (int)0x80000100,
    SESSION_KEYRING = -3,
    CAD_OFF = 0,
    PROCESS_MEMORY = 1,
};

#define SOCKET(name, error, family, type, protocol)                                                \
    {                                                                                              \
        "socket-" name, call, { error }, NULL, SYS_socket, { family, type, protocol }              \
    }
#define HIGH(x) ((uintptr_t)(x) | (uintptr_t)1 << 32)

const struct attempt attack_calls[] = {
    CALL("bpf", SYS_bpf, EPERM, BPF_OBJ_GET, AT(&object), sizeof(object)),
    CALL("perf-event-open", SYS_perf_event_open, EPERM, AT(&event), 0, (uintptr_t)-1,
         (uintptr_t)-1),
    CALL("userfaultfd", SYS_userfaultfd, EPERM, USER_FAULTS_ONLY),
    CALL("io-uring-setup", SYS_io_uring_setup, ENOSYS, 1, AT(&ring)),
    CALL("io-uring-enter", SYS_io_uring_enter, ENOSYS, (uintptr_t)-1),
    CALL("io-uring-register", SYS_io_uring_register, ENOSYS, (uintptr_t)-1, 0, 0, 0),
    CALL("kexec-load", SYS_kexec_load, EPERM, 0, 0, 0, 0),
    CALL("kexec-file-load", SYS_kexec_file_load, EPERM, (uintptr_t)-1, (uintptr_t)-1),
    CALL("init-module", SYS_init_module, EPERM, AT(word), 1, AT(word)),
    CALL("finit-module", SYS_finit_module, EPERM, (uintptr_t)-1, AT(word), 0),
    CALL("delete-module", SYS_delete_module, EPERM, AT(word), 0),
    CALL("fanotify-init", SYS_fanotify_init, EPERM, FANOTIFY_BY_ID, 0),
    CALL("fanotify-mark", SYS_fanotify_mark, EPERM, 0, 0, 0, (uintptr_t)-1, 0),
    CALL("quotactl", SYS_quotactl, EPERM, (uintptr_t)QUOTA_SYNC, 0),
    CALL("swapon", SYS_swapon, EPERM, AT(word), 0),
    CALL("swapoff", SYS_swapoff, EPERM, AT(word)),
    CALL("reboot", SYS_reboot, EPERM, 0xfee1dead, 672274793, CAD_OFF),
    CALL("acct", SYS_acct, EPERM, 0),
    CALL("clock-settime", SYS_clock_settime, EPERM, CLOCK_REALTIME, AT(&no_time)),
    CALL("settimeofday", SYS_settimeofday, EPERM, AT(&no_timeval), 0),
    CALL("clock-adjtime", SYS_clock_adjtime, EPERM, CLOCK_REALTIME, AT(&no_change)),
    CALL("adjtimex", SYS_adjtimex, EPERM, AT(&no_change)),
    CALL("sethostname", SYS_sethostname, EPERM, AT(word), sizeof(word) - 1),
    CALL("setdomainname", SYS_setdomainname, EPERM, AT(word), sizeof(word) - 1),
    CALL("syslog", SYS_syslog, EPERM, 10, 0, 0),
    CALL("vhangup", SYS_vhangup, EPERM, 0),
    CALL("lookup-dcookie", SYS_lookup_dcookie, ENOSYS, 0, AT(byte), sizeof(byte)),
    CALL("add-key", SYS_add_key, EPERM, AT("user"), AT(word), AT(word), 1,
         (uintptr_t)SESSION_KEYRING),
    CALL("keyctl", SYS_keyctl, EPERM, 0, (uintptr_t)SESSION_KEYRING, 1),
    CALL("request-key", SYS_request_key, EPERM, AT("user"), AT(word), 0, 0),
    CALL("process-vm-writev", SYS_process_vm_writev, EPERM, 0, AT(&memory), 1, AT(&memory), 1, 0),
    CALL("process-madvise", SYS_process_madvise, EPERM, (uintptr_t)-1, AT(&memory), 1, 0, 0),
    CALL("move-pages", SYS_move_pages, EPERM, 0, 0, 0, 0, 0, 0),
    CALL("migrate-pages", SYS_migrate_pages, EPERM, 0, 0, 0, 0),
    CALL("memfd-secret", SYS_memfd_secret, ENOSYS, 0),
    CALL("vmsplice", SYS_vmsplice, ENOSYS, (uintptr_t)-1, AT(&memory), 1, 0),
    CALL("io-setup", SYS_io_setup, ENOSYS, 1, AT(byte)),
    CALL("personality-32", SYS_personality, EPERM, PER_LINUX32),
    CALL("personality-exec", SYS_personality, EPERM, READ_IMPLIES_EXEC),
#ifdef __x86_64__
    CALL("iopl", SYS_iopl, EPERM, 0),
    CALL("ioperm", SYS_ioperm, EPERM, 1 << 16, 1, 1),
    CALL("modify-ldt", SYS_modify_ldt, ENOSYS, 0, AT(byte), sizeof(byte)),
#endif
    SOCKET("alg", EAFNOSUPPORT, AF_ALG, SOCK_SEQPACKET, 0),
    SOCKET("vsock", EAFNOSUPPORT, AF_VSOCK, SOCK_STREAM, 0),
    SOCKET("vsock-high", EAFNOSUPPORT, HIGH(AF_VSOCK), SOCK_STREAM, 0),
    SOCKET("packet", EAFNOSUPPORT, AF_PACKET, SOCK_RAW, 0),
    SOCKET("xdp", EAFNOSUPPORT, AF_XDP, SOCK_RAW, 0),
    SOCKET("key", EAFNOSUPPORT, AF_KEY, SOCK_RAW, 2),
    SOCKET("tipc", EAFNOSUPPORT, AF_TIPC, SOCK_STREAM, 0),
    SOCKET("can", EAFNOSUPPORT, AF_CAN, SOCK_RAW, 1),
    SOCKET("bluetooth", EAFNOSUPPORT, AF_BLUETOOTH, SOCK_RAW, 1),
    SOCKET("smc", EAFNOSUPPORT, AF_SMC, SOCK_STREAM, 0),
    SOCKET("netfilter", EAFNOSUPPORT, AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER),
    SOCKET("generic-netlink", EAFNOSUPPORT, AF_NETLINK, SOCK_RAW, NETLINK_GENERIC),
    SOCKET("uevent", EAFNOSUPPORT, AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT),
    SOCKET("audit", EAFNOSUPPORT, AF_NETLINK, SOCK_RAW, NETLINK_AUDIT),
    SOCKET("raw", EPERM, AF_INET, SOCK_RAW, IPPROTO_ICMP),
    SOCKET("ping", EACCES, AF_INET, SOCK_DGRAM, IPPROTO_ICMP),
    SOCKET("ping6", EACCES, AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6),
    SOCKET("raw6", EPERM, AF_INET6, SOCK_RAW, IPPROTO_ICMPV6),
    SOCKET("raw-high", EPERM, HIGH(AF_INET), SOCK_RAW, IPPROTO_RAW),
    SOCKET("packet-type", EPROTONOSUPPORT, AF_INET, SOCK_PACKET, 0),
    SOCKET("sctp", EPROTONOSUPPORT, AF_INET, SOCK_STREAM, IPPROTO_SCTP),
    SOCKET("mptcp", EPROTONOSUPPORT, AF_INET, SOCK_STREAM, IPPROTO_MPTCP),
    {}
};
