/* doctor_files.c - the layers of a sandbox: overlayfs inside a user namespace, idmapped mounts, and
 * what a sandbox on the host's /usr will not see.
 *
 * Everything is mounted in a child's own mount namespace, on a tmpfs of its own. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/mountinfo.h"
#include "cli/probe.h"

/* ---- overlay ---- */

/* A tmpfs on /tmp with the lower, the upper, the work directory and a file in the lower. */
static int make_layers(struct finding *f)
{
    static const char *const dirs[] = { "/tmp/lower", "/tmp/upper", "/tmp/work", "/tmp/merged" };
    AUTO(closep) int file = -1;

    if (mount("cove", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m")) {
        probe_fail(f, "mount a tmpfs");
        return -1;
    }
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (mkdir(dirs[i], 0755)) {
            probe_fail(f, "mkdir %s", dirs[i]);
            return -1;
        }
    file = open("/tmp/lower/old", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (file < 0)
        probe_fail(f, "create a file on a tmpfs");
    return file < 0 ? -1 : 0;
}

/* Writing through it must reach the upper, and removing a lower file must leave a whiteout. */
static void use_overlay(struct finding *f, const char *how)
{
    AUTO(closep) int file = open("/tmp/merged/new", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    struct stat st;

    if (file < 0 || stat("/tmp/upper/new", &st))
        probe_fail(f, "create a file through the overlay");
    else if (unlink("/tmp/merged/old") || lstat("/tmp/upper/old", &st))
        probe_fail(f, "remove a file of the lower layer");
    else if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(0, 0))
        probe_say(f, DOCTOR_FAIL, "a removed file of the lower layer left no whiteout");
    else
        probe_say(f, DOCTOR_OK, "%s", how);
}

static void inside_overlay(const struct doctor *d, struct finding *f)
{
    char options[160];

    snprintf(options, sizeof(options),
             "lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work%s", d->check->arg);
    if (make_layers(f))
        return;
    if (mount("overlay", "/tmp/merged", "overlay", MS_NODEV, options))
        probe_fail(f, "mount with %s", d->check->arg + 1);
    else
        use_overlay(f, d->check->arg + 1);
}

static void probe_overlay(const struct doctor *d, struct finding *f)
{
    probe_inside(d, CLONE_NEWUSER | CLONE_NEWNS, inside_overlay, f);
    if (f->status == DOCTOR_FAIL && strstr(f->seen, "No such device"))
        probe_fix_root(d, f, "modprobe overlay");
}

/* Paths in mount options can be read inside in /proc/self/mountinfo, descriptors cannot, and need
 * no place in anybody's tree. Strings work since Linux 6.5, descriptors since 6.13. */
static int set_layer(int context, const char *key, const char *dir)
{
    AUTO(closep) int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

    return fsconfig(context, FSCONFIG_SET_FD, key, NULL, fd);
}

static void inside_layer_fds(const struct doctor *d, struct finding *f)
{
    AUTO(closep) int context = fsopen("overlay", FSOPEN_CLOEXEC);
    AUTO(closep) int tree = -1;

    (void)d;
    if (make_layers(f))
        return;
    if (context < 0 || set_layer(context, "lowerdir+", "/tmp/lower") ||
        set_layer(context, "upperdir", "/tmp/upper") || set_layer(context, "workdir", "/tmp/work"))
        probe_fail(f, "a layer by FSCONFIG_SET_FD");
    else if (fsconfig(context, FSCONFIG_SET_FLAG, "userxattr", NULL, 0) ||
             fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) ||
             (tree = fsmount(context, FSMOUNT_CLOEXEC, 0)) < 0 ||
             move_mount(tree, "", AT_FDCWD, "/tmp/merged", MOVE_MOUNT_F_EMPTY_PATH))
        probe_fail(f, "mount of layers given by descriptor");
    else
        use_overlay(f, "FSCONFIG_SET_FD");
}

static void probe_layer_fds(const struct doctor *d, struct finding *f)
{
    probe_inside(d, CLONE_NEWUSER | CLONE_NEWNS, inside_layer_fds, f);
}

/* ---- an image of /usr, and its files' contents in another layer ---- */

static void inside_data_layer(const struct doctor *d, struct finding *f)
{
    AUTO(closep) int context = fsopen("overlay", FSOPEN_CLOEXEC);

    (void)d;
    if (make_layers(f))
        return;
    if (context < 0 || fsconfig(context, FSCONFIG_SET_FLAG, "userxattr", NULL, 0) ||
        set_layer(context, "lowerdir+", "/tmp/lower") ||
        set_layer(context, "datadir+", "/tmp/upper") ||
        fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
        probe_fail(f, "mount of a data layer without metacopy");
    else
        probe_say(f, DOCTOR_OK, "userxattr and datadir+");
}

static void probe_data_layer(const struct doctor *d, struct finding *f)
{
    probe_inside(d, CLONE_NEWUSER | CLONE_NEWNS, inside_data_layer, f);
    probe_fix(f, "boot Linux 6.16 or later");
}

static void probe_erofs(const struct doctor *d, struct finding *f)
{
    AUTO(closep) int context = -1;

    if (!d->root) {
        probe_say(f, DOCTOR_OK, "not used without root");
        return;
    }
    context = fsopen("erofs", FSOPEN_CLOEXEC);
    if (context < 0)
        probe_fail(f, "fsopen of erofs");
    else
        probe_say(f, DOCTOR_OK, "the kernel has it");
    probe_fix(f, "modprobe erofs");
}

/* ---- idmapped mounts ---- */

enum { IDS_FROM = 0x60000000, IDS = 65536 }; /* nobody has these, and nothing keeps them */

/* A user namespace as a descriptor: it needs a process until somebody else holds it. */
static int open_map(struct finding *f)
{
    char path[64], line[64];
    pid_t pid = probe_clone(CLONE_NEWUSER, -1, NULL);
    int fd = -1;

    if (pid == 0)
        for (;;)
            pause();
    if (pid < 0) {
        probe_fail(f, "clone3 with a user namespace");
        return -1;
    }
    snprintf(line, sizeof(line), "0 %d %d", IDS_FROM, IDS);
    snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
    if (!probe_write(path, line)) {
        snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
        if (!probe_write(path, line)) {
            snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
            fd = open(path, O_RDONLY | O_CLOEXEC);
        }
    }
    if (fd < 0)
        probe_fail(f, "map a range of ids");
    kill(pid, SIGKILL);
    probe_wait(pid);
    return fd;
}

static int open_tmpfs(void)
{
    AUTO(closep) int context = fsopen("tmpfs", FSOPEN_CLOEXEC);

    if (context < 0 || fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
        return -1;
    return fsmount(context, FSMOUNT_CLOEXEC, 0);
}

/* Success alone proves little: the owner must really look different through the new mount. */
static void try_idmap(struct finding *f, int tree, int map, const char *what)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)map };
    struct stat before, after;

    if (tree < 0 || fstat(tree, &before))
        probe_fail(f, "open_tree of %s", what);
    else if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)))
        probe_fail(f, "mount_setattr with an id map on %s", what);
    else if (fstat(tree, &after) || after.st_uid != before.st_uid + IDS_FROM)
        probe_say(f, DOCTOR_FAIL, "%s was mapped, but uid %u became %u", what, before.st_uid,
                  after.st_uid);
    else
        probe_say(f, DOCTOR_OK, "%s", what);
}

static void inside_idmap(const struct doctor *d, struct finding *f)
{
    bool tmpfs = !strcmp(d->check->arg, "tmpfs");
    const char *dir = !strcmp(d->check->arg, "data") ? d->data_there : d->check->arg;
    AUTO(closep) int map = open_map(f);
    AUTO(closep) int tree = -1;

    if (map < 0)
        return;
    tree = tmpfs ? open_tmpfs() : open_tree(AT_FDCWD, dir, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    try_idmap(f, tree, map, tmpfs ? "a tmpfs" : dir);
}

static void probe_idmap(const struct doctor *d, struct finding *f)
{
    if (d->root) {
        probe_inside(d, CLONE_NEWNS, inside_idmap, f);
        return;
    }
    probe_say(f, DOCTOR_FAIL, "only root may map the ids of a mount");
    probe_fix(f, "sudo cove doctor (and run cove as root)");
}

/* ---- the host's /usr ---- */

struct nested {
    char text[512];
    size_t n;
};

/* An overlay's lower layer ends at mount points: the empty directory below shows instead. */
static bool is_nested(const struct mountinfo *m, void *arg)
{
    struct nested *found = arg;
    size_t len = strlen(found->text);

    if (!strncmp(m->point, "/usr/", 5)) {
        found->n++;
        snprintf(found->text + len, sizeof(found->text) - len, "%s%s", len ? ", " : "", m->point);
    }
    return true;
}

static void probe_nested(const struct doctor *d, struct finding *f)
{
    struct nested found = { .n = 0 };

    (void)d;
    if (mountinfo_each(is_nested, &found))
        probe_fail(f, "/proc/self/mountinfo");
    else if (!found.n)
        probe_say(f, DOCTOR_OK, "none");
    else
        probe_say(f, DOCTOR_WARN, "%s: empty inside a sandbox of the template host", found.text);
    probe_fix(f, "cove run --mount DIRECTORY:DIRECTORY:ro for each one that is wanted inside");
}

const struct doctor_check doctor_files[] = {
    { "overlay.userns", "overlay inside a user namespace", .need = DOCTOR_BOTH, .arg = ",userxattr",
      .probe = probe_overlay, .without = "sandboxes" },
    { "overlay.volatile", "volatile overlay", .arg = ",userxattr,volatile", .probe = probe_overlay,
      .without = "sandboxes that end quickly" },
    { "overlay.layer_fds", "overlay layers by descriptor", .probe = probe_layer_fds,
      .without = "layers given by descriptor" },
    { "overlay.data", "file contents in a layer of their own", .probe = probe_data_layer,
      .without = "closing to sandbox root what becomes root's alone in /usr" },
    { "usr.erofs", "erofs", .probe = probe_erofs,
      .without = "closing to sandbox root what becomes root's alone in /usr" },
    { "idmap.data", "idmapped mounts in the data directory", .need = DOCTOR_ROOT, .arg = "data",
      .probe = probe_idmap, .without = "ids of its own for each sandbox" },
    { "idmap.usr", "idmapped mount of /usr", .need = DOCTOR_ROOT, .arg = "/usr",
      .probe = probe_idmap,
      .without = "changing files of the host's template inside, before Linux 6.16" },
    { "idmap.tmpfs", "idmapped tmpfs", .arg = "tmpfs", .probe = probe_idmap,
      .without = "device nodes that need no change of owner" },
    { "usr.nested", "mounts below /usr", .probe = probe_nested,
      .without = "what is mounted below /usr" },
    {}
};
