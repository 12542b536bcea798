/* ids.c - see ids.h. */
#include "jail/ids.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"

enum { FOREIGN_BYTES = 64 << 10, NOTE_BYTES = 512 };

void ids_read_foreign(struct ids *ids, struct str text)
{
    struct str line;

    while (str_next(&text, '\n', &line)) {
        struct str name, rest, first, count;
        uint64_t from, n;

        if (!str_cut(line, ':', &name, &rest) || !str_cut(rest, ':', &first, &count) ||
            str_u64(first, &from) || str_u64(count, &n) || !n || from > UINT32_MAX ||
            n > UINT32_MAX || from + n <= IDS_FIRST)
            continue;
        ids->foreign = xrealloc(ids->foreign, (ids->nforeign + 1) * sizeof(*ids->foreign));
        ids->foreign[ids->nforeign++] = (struct ids_interval){ from, from + n - 1 };
    }
}

static void read_foreign_file(struct ids *ids, const char *path)
{
    AUTO(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    AUTO(freep) char *text = fd < 0 ? NULL : xmalloc(FOREIGN_BYTES);
    ssize_t n = fd < 0 ? -1 : read(fd, text, FOREIGN_BYTES);

    if (n > 0)
        ids_read_foreign(ids, (struct str){ text, (size_t)n });
}

int ids_open(struct ids *ids, const char *dir, struct err *err)
{
    *ids = (struct ids){ .dir = -1, .root = -1 };
    if (mkdir(dir, 0700) && errno != EEXIST)
        return err_sys(err, "make %s", dir);
    ids->dir = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    ids->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (ids->dir < 0 || ids->root < 0)
        return err_sys(err, "open %s", dir);
    /* A number is not used again soon: connections of its last user may still be remembered. */
    if (getrandom(&ids->next, sizeof(ids->next), 0) != sizeof(ids->next))
        ids->next = (uint32_t)getpid() * 641;
    read_foreign_file(ids, "/etc/subuid");
    read_foreign_file(ids, "/etc/subgid");
    return 0;
}

void ids_close(struct ids *ids)
{
    if (ids->dir >= 0) {
        close(ids->dir);
        closep(&ids->root);
    }
    ids->dir = ids->root = -1;
    freep(&ids->foreign);
    ids->foreign = NULL;
    ids->nforeign = 0;
}

static bool is_foreign(const struct ids *ids, uint32_t number)
{
    uint64_t first = ids_host(number), last = first + IDS_RANGE - 1;

    for (size_t i = 0; i < ids->nforeign; i++)
        if (ids->foreign[i].first <= last && ids->foreign[i].last >= first)
            return true;
    return false;
}

/* Locks the file of a number, or -1. The file may be unlinked by its last owner just before we get
 * the lock: then it is nobody's name any more. */
static int lock_number(const struct ids *ids, uint32_t number)
{
    AUTO(closep) int fd = -1;
    struct stat st;
    char name[16];

    snprintf(name, sizeof(name), "%u", number);
    fd = openat(ids->dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) || fstat(fd, &st) || !st.st_nlink)
        return -1;
    return TAKE(fd, -1);
}

/* 1 there is one, 0 none, -1 it cannot be read. */
static int read_note(int lock, char note[static NOTE_BYTES + 1])
{
    ssize_t n = pread(lock, note, NOTE_BYTES, 0);

    if (n <= 0)
        return n < 0 ? -1 : 0;
    note[n] = 0;
    return 1;
}

/* Only what says that it is gone is a witness of that. A keeper hides the run directory from its
 * sandboxes, and from itself, with mounts of its own. */
static bool note_is_alive(const struct ids *ids, int lock)
{
    struct open_how how = { .flags = O_PATH | O_NOFOLLOW | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT };
    char note[NOTE_BYTES + 1];
    int fd, there = read_note(lock, note);

    if (there <= 0)
        return there < 0;
    fd = (int)syscall(SYS_openat2, ids->root, note, &how, sizeof(how));
    if (fd < 0)
        return errno != ENOENT && errno != ENOTDIR;
    close(fd);
    return true;
}

int ids_note(const struct ids_claim *claim, const char *note, struct err *err)
{
    size_t n = strlen(note);
    struct stat st;

    if (n > NOTE_BYTES)
        return err_set(err, ERR_INVALID, "the path %s is too long", note);
    /* Cut behind it, not emptied before: ext4 takes that for a file being replaced, and writes it
     * to the disk when it is closed. */
    if (pwrite(claim->lock, note, n, 0) != (ssize_t)n || fstat(claim->lock, &st) ||
        (st.st_size > (off_t)n && ftruncate(claim->lock, (off_t)n)))
        return err_sys(err, "write an id range's note");
    return 0;
}

int ids_take(struct ids *ids, struct ids_claim *out, struct err *err)
{
    for (uint32_t tried = 0; tried < IDS_NUMBERS; tried++) {
        uint32_t number = ids->next++ % IDS_NUMBERS;
        AUTO(closep) int lock = -1;

        if (number < 2 || is_foreign(ids, number))
            continue; /* 0 and 1 would be the network's own and the gateway's address */
        lock = lock_number(ids, number);
        if (lock < 0 || note_is_alive(ids, lock))
            continue;
        *out = (struct ids_claim){ number, TAKE(lock, -1) };
        return 0;
    }
    return err_set(err, ERR_LIMIT, "all %d id ranges are in use or claimed in /etc/subuid",
                   IDS_NUMBERS);
}

int ids_retake(struct ids *ids, uint32_t number, struct ids_claim *out, struct err *err)
{
    int lock = number < IDS_NUMBERS ? lock_number(ids, number) : -1;

    if (lock < 0)
        return err_set(err, ERR_CONFLICT, "id range %u belongs to another keeper", number);
    *out = (struct ids_claim){ number, lock };
    return 0;
}

int ids_renote(const struct ids *ids, uint32_t number, const char *from, const char *to,
               struct err *err)
{
    struct ids_claim claim = { number, number < IDS_NUMBERS ? lock_number(ids, number) : -1 };
    char note[NOTE_BYTES + 1];
    int r;

    if (claim.lock < 0)
        return err_set(err, ERR_CONFLICT, "id range %u belongs to another keeper", number);
    r = read_note(claim.lock, note) > 0 && !strcmp(note, from) ? ids_note(&claim, to, err) : 0;
    close(claim.lock);
    return r;
}

void ids_put(const struct ids *ids, struct ids_claim *claim)
{
    char name[16];

    if (claim->lock < 0)
        return;
    snprintf(name, sizeof(name), "%u", claim->number);
    unlinkat(ids->dir, name, 0); /* while it is still locked: nobody can hold the name yet */
    close(TAKE(claim->lock, -1));
}

/* A living note is seen before the lock is tried: who adopts its sandbox must find it free. */
static void sweep_number(const struct ids *ids, uint32_t number, const char *name)
{
    AUTO(closep) int fd = openat(ids->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct ids_claim claim = { number, -1 };

    if (fd < 0 || note_is_alive(ids, fd))
        return;
    claim.lock = lock_number(ids, number);
    if (claim.lock >= 0 && !note_is_alive(ids, claim.lock))
        ids_put(ids, &claim);
    closep(&claim.lock);
}

void ids_sweep(const struct ids *ids)
{
    int fd = ids->dir < 0 ? -1 : openat(ids->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *e;
    uint64_t number;

    while (d && (e = readdir(d)))
        if (!str_u64(str_of(e->d_name), &number) && number < IDS_NUMBERS)
            sweep_number(ids, (uint32_t)number, e->d_name);
    if (d)
        closedir(d);
}
