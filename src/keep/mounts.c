/* mounts.c - the keeper's mounts: a namespace of its own, and what it leaves in the one that it
 * came from. Without privilege there is neither, only a directory that sandboxes mount things on.
 */
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "keep/keeper.h"

/* The sockets of private keepers' guests; the name of one whose keeper was killed stays until
 * somebody sweeps. */
static int open_sockets(struct keeper *k, struct err *err)
{
    static const char dir[] = KEEP_RUN_DIR "/s";

    if (mkdir(dir, 0700) && errno != EEXIST)
        return err_sys(err, "make %s", dir);
    k->sockets = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return k->sockets < 0 ? err_sys(err, "open %s", dir) : 0;
}

/* Is it the volume of a data directory? Its image lies beside it. */
static bool is_volume(const struct mntent *m)
{
    static const char name[] = "/volume";
    size_t n = strlen(m->mnt_dir), tail = sizeof(name) - 1;
    AUTO(freep) char *image = NULL;

    if (strcmp(m->mnt_type, "btrfs") || strncmp(m->mnt_fsname, "/dev/loop", 9) || n <= tail ||
        strcmp(m->mnt_dir + n - tail, name))
        return false;
    if (asprintf(&image, "%s.img", m->mnt_dir) < 0)
        abort();
    return !access(image, F_OK);
}

/* Whatever the path looks like that we were given. */
static bool is_ours(const struct keeper *k, const struct mntent *m)
{
    AUTO(freep) char *path = NULL;
    struct stat ours, one;

    if (asprintf(&path, "%s/volume", k->o.data_dir) < 0)
        abort();
    return stat(path, &ours) || stat(m->mnt_dir, &one) || ours.st_dev == one.st_dev;
}

/* Our copy of the mount would keep another keeper's volume busy for as long as we live: where the
 * machine's mounts are private, no unmounting out there reaches it. */
static void leave_others(const struct keeper *k)
{
    FILE *f = setmntent("/proc/self/mounts", "re");
    const struct mntent *m;

    while (f && (m = getmntent(f)))
        if (is_volume(m) && !is_ours(k, m) && umount2(m->mnt_dir, MNT_DETACH | UMOUNT_NOFOLLOW))
            log_debug("another volume stays in our sight", KV("volume", m->mnt_dir));
    if (f)
        endmntent(f);
}

int mounts_own(struct keeper *k, struct err *err)
{
    if (k->sockets < 0 && open_sockets(k, err))
        return -1;
    if (k->o.socket >= 0 && !k->o.ahead)
        return 0; /* for one sandbox it is not worth the time */
    k->outside = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    held_look_from(k->ids.root);
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL))
        return err_sys(err, "make a mount namespace");
    if (mount("cove", KEEP_RUN_DIR, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=1m,mode=700"))
        return err_sys(err, "mount a tmpfs on %s", KEEP_RUN_DIR);
    leave_others(k);
    return 0;
}

int mounts_rootless(struct keeper *k, struct err *err)
{
    const char *run = getenv("XDG_RUNTIME_DIR");
    char dir[sizeof(k->stage)];

    /* one that is found again after a crash, if its path is short enough for a birth's record */
    if (k->o.socket < 0 && snprintf(dir, sizeof(dir), "%s/stage", k->place) < (int)sizeof(dir)) {
        memcpy(k->stage, dir, sizeof(dir));
        return mkdir(dir, 0700) && errno != EEXIST ? err_sys(err, "make %s", dir) : 0;
    }
    snprintf(dir, sizeof(dir), "%.40s/cove-XXXXXX",
             run && *run == '/' && strlen(run) < 40 ? run : "/tmp");
    if (!mkdtemp(dir))
        return err_sys(err, "make %s", dir);
    memcpy(k->stage, dir, sizeof(dir));
    if (k->sockets < 0)
        k->sockets = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return k->sockets < 0 ? err_sys(err, "open %s", dir) : 0;
}

void mounts_leave(const struct keeper *k)
{
    struct err err = { 0 };

    if (k->outside < 0 || setns(k->outside, CLONE_NEWNS))
        return;
    if (volume_detach(k->o.data_dir, &err) && err.code != ERR_CONFLICT)
        log_warn("the volume stays mounted", KV("error", err.msg));
}
