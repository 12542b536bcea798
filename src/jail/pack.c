/* pack.c - see pack.h: the walk. Directories wait in a list, not on a stack of descriptors: each is
 * opened by its path from the top when its turn comes, beneath it and through no link. */
#include "jail/pack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/idmap.h"
#include "jail/pack_tree.h"
#include "jail/unpack_entry.h"

#define REMOVED ".cove-removed"

struct waiting { /* paths, the next one last */
    char **list;
    size_t n, room;
};

static void waiting_free(struct waiting *w)
{
    while (w->n)
        free(w->list[--w->n]);
    free(w->list);
}

static void add_path(struct waiting *w, char *path)
{
    if (w->n == w->room) {
        w->room = w->room ? 2 * w->room : 64;
        w->list = xrealloc(w->list, w->room * sizeof(*w->list));
    }
    w->list[w->n++] = path;
}

/* ---- writing ---- */

int pack_flush(struct packer *p, size_t above)
{
    size_t done = 0;

    if (p->out.len <= above)
        return 0;
    while (done < p->out.len) {
        ssize_t n = write(p->request->out, p->out.data + done, p->out.len - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(p->err, "write the archive");
        done += (size_t)n;
    }
    p->stats->bytes += done;
    p->out.len = 0;
    return 0;
}

/* ---- names ---- */

/* Where a path of the layer is in the archive: r/ is the sandbox's root, u/ its /usr. */
static char *archive_name(const struct packer *p, const char *path)
{
    struct buf b = { 0 };

    if (p->request->style == PACK_LAYER)
        return xstrdup(path);
    buf_printf(&b, "%s%s", *path == 'u' ? "usr" : "", path + 1 + (*path == 'r' && path[1]));
    return b.data ? b.data : xstrdup("");
}

/* A line per name: what would end one is written as C does. */
static void note_removed(struct packer *p, const char *name, const char *end)
{
    p->stats->removed++;
    if (p->request->style == PACK_LAYER)
        return;
    for (; *name; name++) {
        if (*name == '\\' || *name == '\n')
            buf_putc(&p->removed, '\\');
        buf_putc(&p->removed, *name == '\n' ? 'n' : *name);
    }
    buf_printf(&p->removed, "%s\n", end);
}

/* ---- hard links ---- */

static struct pack_link *find_link(const struct packer *p, const struct stat *st)
{
    size_t at = (size_t)(st->st_ino * 0x9e3779b97f4a7c15ULL >> 20);

    for (;; at++) {
        struct pack_link *l = &p->links[at & (p->room - 1)];

        if (!l->name || (l->inode == st->st_ino && l->device == st->st_dev))
            return l;
    }
}

static void make_room(struct packer *p)
{
    struct packer larger = { .room = p->room ? 2 * p->room : 256, .nlinks = p->nlinks };

    if (p->nlinks * 2 < p->room)
        return;
    larger.links = xcalloc(larger.room, sizeof(*larger.links));
    for (size_t i = 0; i < p->room; i++)
        if (p->links[i].name)
            *find_link(&larger, &(struct stat){ .st_ino = p->links[i].inode,
                                                .st_dev = p->links[i].device }) = p->links[i];
    free(p->links);
    p->links = larger.links;
    p->room = larger.room;
}

/* The name under which the file is in the archive already, or NULL: then it is this. */
static const char *first_name(struct packer *p, const struct stat *st, const char *name)
{
    struct pack_link *l;

    if (st->st_nlink < 2)
        return NULL;
    make_room(p);
    l = find_link(p, st);
    if (l->name)
        return l->name;
    *l = (struct pack_link){ st->st_dev, st->st_ino, xstrdup(name) };
    p->nlinks++;
    return NULL;
}

static void packer_finish(struct packer *p)
{
    for (size_t i = 0; i < p->room; i++)
        free(p->links[i].name);
    free(p->links);
    buf_free(&p->out);
    buf_free(&p->removed);
}

/* ---- entries ---- */

static struct pack_head head_of(const struct stat *st, char type, const char *name)
{
    return (struct pack_head){ .type = type,
                               .name = str_of(name),
                               .mode = st->st_mode & 07777,
                               .uid = st->st_uid,
                               .gid = st->st_gid,
                               .mtime = st->st_mtim };
}

static int put_plain(struct packer *p, const struct pack_head *h)
{
    p->stats->entries++;
    pack_head_put(&p->out, h);
    return pack_flush(p, 256 << 10);
}

/* What is gone or another kind by now is nothing to fail for: it lives. */
static int vanished(struct packer *p, const char *what)
{
    if (errno != ENOENT && errno != ELOOP && errno != ENOTDIR)
        return err_sys(p->err, "%s of the sandbox", what);
    p->stats->changed++;
    return 0;
}

static int put_file(struct packer *p, int dir, const char *base, const char *name)
{
    AUTO(closep)
    int fd = openat(dir, base, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct pack_head h;
    struct stat st;
    int r;

    if (fd < 0 || fstat(fd, &st))
        return vanished(p, "open a file");
    if (!S_ISREG(st.st_mode)) {
        p->stats->changed++;
        return 0;
    }
    p->stats->entries++;
    h = head_of(&st, '0', name);
    pack_attributes(p, fd, &h.extra);
    r = pack_file(p, fd, &st, &h);
    buf_free(&h.extra);
    return r ? -1 : pack_flush(p, 256 << 10);
}

static int put_symlink(struct packer *p, int dir, const char *base, const struct stat *st,
                       const char *name)
{
    struct pack_head h = head_of(st, '2', name);
    char target[ENTRY_PATH];
    ssize_t n = readlinkat(dir, base, target, sizeof(target));

    if (n < 0)
        return vanished(p, "read a link");
    h.link = (struct str){ target, (size_t)n };
    return put_plain(p, &h);
}

static int put_device(struct packer *p, const struct stat *st, const char *name)
{
    struct pack_head h = head_of(st, '3', name);

    if (!S_ISCHR(st->st_mode) || st->st_rdev != makedev(0, 0)) {
        p->stats->left_out++; /* a sandbox cannot make one */
        return 0;
    }
    note_removed(p, name, "");
    return p->request->style == PACK_LAYER ? put_plain(p, &h) : 0;
}

static int put_hardlink(struct packer *p, const struct stat *st, const char *name,
                        const char *first)
{
    struct pack_head h = head_of(st, '1', name);

    h.link = str_of(first);
    return put_plain(p, &h);
}

static int put_entry(struct packer *p, int dir, const char *base, const struct stat *st,
                     const char *name)
{
    struct pack_head h = head_of(st, '6', name);
    const char *first;

    if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode))
        return put_device(p, st, name);
    if (S_ISSOCK(st->st_mode)) {
        p->stats->sockets++;
        return 0;
    }
    first = first_name(p, st, name);
    if (first)
        return put_hardlink(p, st, name, first);
    if (S_ISLNK(st->st_mode))
        return put_symlink(p, dir, base, st, name);
    return S_ISFIFO(st->st_mode) ? put_plain(p, &h) : put_file(p, dir, base, name);
}

/* ---- directories ---- */

static int take_name(struct packer *p, int dir, const char *path, const char *base,
                     struct waiting *w)
{
    AUTO(freep) char *name = NULL;
    struct buf full = { 0 };
    struct stat st;
    int r = 0;

    buf_printf(&full, "%s/%s", path, base);
    if (full.len >= ENTRY_PATH)
        p->stats->left_out++;
    else if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW))
        r = vanished(p, "look at a file");
    else if (S_ISDIR(st.st_mode)) {
        add_path(w, TAKE(full.data, NULL));
        return 0;
    } else {
        name = archive_name(p, full.data);
        r = put_entry(p, dir, base, &st, name);
    }
    buf_free(&full);
    return r;
}

static int compare(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_entry(const struct dirent *e)
{
    return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

static int put_directory(struct packer *p, int fd, const char *path)
{
    AUTO(freep) char *name = archive_name(p, path);
    struct pack_head h;
    struct stat st;
    int r;

    if (fstat(fd, &st))
        return err_sys(p->err, "look at a directory of the sandbox");
    if (pack_is_opaque(fd))
        note_removed(p, name, "/");
    if (!*name)
        return 0; /* the root of an export: where it is unpacked */
    h = head_of(&st, '5', name);
    pack_attributes(p, fd, &h.extra);
    r = put_plain(p, &h);
    buf_free(&h.extra);
    return r;
}

static int take_directory(struct packer *p, const char *path, struct waiting *w)
{
    struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV };
    AUTO(closep) int fd = (int)syscall(SYS_openat2, p->request->layer, path, &how, sizeof(how));
    struct dirent **names = NULL;
    int n, r;

    if (fd < 0)
        return vanished(p, "open a directory");
    r = put_directory(p, fd, path);
    n = r ? 0 : scandirat(fd, ".", &names, is_entry, compare);
    if (n < 0)
        return err_sys(p->err, "read a directory of the sandbox");
    for (int i = 0; i < n; i++) {
        if (!r)
            r = take_name(p, fd, path, names[i]->d_name, w);
        free(names[i]);
    }
    free(names);
    return r;
}

static int put_removed(struct packer *p)
{
    static const char zeros[PACK_BLOCK];
    struct pack_head h = { .type = '0',
                           .name = STR(REMOVED),
                           .mode = 0644,
                           .size = p->removed.len,
                           .mtime = { .tv_sec = time(NULL) } };

    if (!p->removed.len)
        return 0;
    pack_head_put(&p->out, &h);
    buf_add(&p->out, p->removed.data, p->removed.len);
    buf_add(&p->out, zeros, -p->removed.len % PACK_BLOCK);
    return 0;
}

static int pack_here(const struct pack_request *request, struct pack_stats *out, struct err *err)
{
    static const char zeros[2 * PACK_BLOCK];
    AUTO(waiting_free) struct waiting w = { 0 };
    AUTO(packer_finish) struct packer p = { .request = request, .stats = out, .err = err };

    *out = (struct pack_stats){ 0 };
    add_path(&w, xstrdup("u"));
    add_path(&w, xstrdup("r"));
    while (w.n) {
        AUTO(freep) char *path = w.list[--w.n];

        if (take_directory(&p, path, &w))
            return -1;
    }
    if (put_removed(&p))
        return -1;
    buf_add(&p.out, zeros, sizeof(zeros));
    return pack_flush(&p, 0);
}

/* ---- without root ---- */

struct report {
    struct pack_stats stats;
    struct err err;
    int result;
};

static void report_close(struct report **r) { munmap(*r, sizeof(**r)); }

/* In a child that is root over the caller's subordinate ids. */
static int pack_mapped(const struct pack_request *request, struct pack_stats *out, struct err *err)
{
    struct clone_args args = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
    AUTO(report_close)
    struct report *r =
        /* cppcheck-suppress invalidFunctionArg ; what an anonymous mapping wants */
        mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int go[2], mapped;
    char byte = 0;
    pid_t pid;

    if (r == MAP_FAILED || pipe2(go, O_CLOEXEC))
        return err_sys(err, "memory, or a pipe, for the child that reads");
    *r =
        (struct report){ .result = -1,
                         .err = { .code = ERR_INTERNAL, .msg = "the child that reads was ended" } };
    pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (!pid) {
        close(go[1]); /* else a parent that died would never show as the end */
        if (read(go[0], &byte, 1) == 1)
            r->result = pack_here(request, &r->stats, &r->err);
        _exit(0);
    }
    close(go[0]);
    mapped = pid < 0 ? err_sys(err, "make a user namespace") : idmap_write(pid, IDMAP_OWN, err);
    if (!mapped && write(go[1], &byte, 1) != 1)
        mapped = err_sys(err, "begin");
    close(go[1]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (mapped)
        return -1;
    *out = r->stats;
    if (r->result)
        *err = r->err;
    return r->result;
}

int pack_run(const struct pack_request *request, struct pack_stats *out, struct err *err)
{
    return geteuid() ? pack_mapped(request, out, err) : pack_here(request, out, err);
}
