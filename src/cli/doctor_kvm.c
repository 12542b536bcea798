/* doctor_kvm.c - can this machine run a virtual processor? /dev/kvm is there on machines where it
 * cannot: inside a virtual machine without nesting the first KVM_RUN fails, or never returns. So
 * three instructions are really run. */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/probe.h"

enum { PAGE = 4096, CODE_AT = 0x1000 };

struct machine {
    int kvm, vm, cpu;
    void *memory;
    struct kvm_run *run;
};

/* One page of memory and one processor. The kernel takes it all back when the probe ends. */
static int open_machine(struct machine *m, struct finding *f)
{
    struct kvm_userspace_memory_region region = { .guest_phys_addr = CODE_AT, .memory_size = PAGE };
    int size;

    /* cppcheck-suppress invalidFunctionArg ; what an anonymous mapping wants */
    m->memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    region.userspace_addr = (uint64_t)(uintptr_t)m->memory;
    if ((m->vm = ioctl(m->kvm, KVM_CREATE_VM, 0)) < 0)
        probe_fail(f, "KVM_CREATE_VM");
    else if (m->memory == MAP_FAILED || ioctl(m->vm, KVM_SET_USER_MEMORY_REGION, &region))
        probe_fail(f, "KVM_SET_USER_MEMORY_REGION");
    else if ((m->cpu = ioctl(m->vm, KVM_CREATE_VCPU, 0)) < 0)
        probe_fail(f, "KVM_CREATE_VCPU");
    else if ((size = ioctl(m->kvm, KVM_GET_VCPU_MMAP_SIZE, 0)) < (int)sizeof(*m->run) ||
             (m->run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, m->cpu, 0)) ==
                 MAP_FAILED)
        probe_fail(f, "KVM_GET_VCPU_MMAP_SIZE");
    else
        return 0;
    return -1;
}

#ifdef __x86_64__
/* Real mode: the processor tells port 0x10 a number, then halts. Both must come out as exits. */
static const unsigned char code[] = { 0xb0, 42, 0xe6, 0x10, 0xf4 }; /* mov al,42; out 16,al; hlt */

/* A processor starts at its reset vector, far from our page: so its code segment begins at 0. */
static int set_registers(const struct machine *m)
{
    struct kvm_regs regs = { .rip = CODE_AT, .rflags = 2 };
    struct kvm_sregs sregs;

    memcpy(m->memory, code, sizeof(code));
    if (ioctl(m->cpu, KVM_GET_SREGS, &sregs))
        return -1;
    sregs.cs.base = sregs.cs.selector = 0;
    return ioctl(m->cpu, KVM_SET_SREGS, &sregs) || ioctl(m->cpu, KVM_SET_REGS, &regs) ? -1 : 0;
}

static bool said_number(const struct kvm_run *run)
{
    return run->exit_reason == KVM_EXIT_IO && run->io.direction == KVM_EXIT_IO_OUT &&
           run->io.port == 0x10 && ((const char *)run)[run->io.data_offset] == 42;
}

static void run_machine(struct machine *m, struct finding *f)
{
    int64_t start = clock_us();

    if (set_registers(m))
        probe_fail(f, "KVM_SET_REGS");
    else if (ioctl(m->cpu, KVM_RUN, 0))
        probe_fail(f, "KVM_RUN");
    else if (!said_number(m->run))
        probe_say(f, DOCTOR_FAIL,
                  "the processor stopped with reason %u instead of writing to a port",
                  m->run->exit_reason);
    else if (ioctl(m->cpu, KVM_RUN, 0) || m->run->exit_reason != KVM_EXIT_HLT)
        probe_say(f, DOCTOR_FAIL, "the processor stopped with reason %u instead of halting",
                  m->run->exit_reason);
    else
        probe_say(f, DOCTOR_OK, "a virtual processor ran and halted within %lld us",
                  (long long)(clock_us() - start));
}
#else
static void run_machine(struct machine *m, struct finding *f)
{
    (void)m;
    probe_say(f, DOCTOR_OK,
              "a virtual machine and its processor were made (nothing was run on it)");
}
#endif

static void probe_kvm(const struct doctor *d, struct finding *f)
{
    struct machine m = { .kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), .vm = -1, .cpu = -1 };
    int version;

    if (m.kvm < 0) {
        probe_fail(f, "/dev/kvm");
        if (errno == ENOENT)
            probe_fix_root(d, f, "modprobe kvm_intel || %smodprobe kvm_amd",
                           d->root ? "" : "sudo ");
        else
            probe_fix_root(d, f,
                           "usermod -aG kvm \"$USER\" && %schown root:kvm /dev/kvm && "
                           "%schmod 660 /dev/kvm",
                           d->root ? "" : "sudo ", d->root ? "" : "sudo ");
        return;
    }
    version = ioctl(m.kvm, KVM_GET_API_VERSION, 0);
    if (version != KVM_API_VERSION)
        probe_say(f, DOCTOR_FAIL, "/dev/kvm has version %d of its interface, not %d", version,
                  KVM_API_VERSION);
    else if (!open_machine(&m, f))
        run_machine(&m, f);
    if (f->status == DOCTOR_FAIL)
        probe_fix(f,
                  "use a machine with hardware virtualisation, or allow nesting in the outer one");
}

const struct doctor_check doctor_kvm[] = {
    { "kvm.run", "KVM", .probe = probe_kvm, .without = "sandboxes as virtual machines" }, {}
};
