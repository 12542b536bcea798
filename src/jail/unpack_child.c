/* unpack_child.c - reads the archive entry by entry and has each written; see unpack.h for where
 * this runs. Nothing it holds is worth anything outside. */
#include "jail/unpack_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "jail/unpack_tree.h"

enum {
    INPUT = 256 << 10,
    BLOCK = 512,     /* of a tar archive */
    REPORT_MS = 100, /* between two reports */
    NOBODY = 65534,  /* for owners that a sandbox cannot have */
    LAST_ID = 65535,
};

struct child {
    const struct unpack_job *job;
    const struct unpack_archive *lib;
    struct archive *archive;
    struct unpack_tree tree;
    struct unpack_stats stats;
    int64_t reported_ms;
    char *input;
};

static void send_report(struct child *c, enum report_kind kind, const struct err *err)
{
    struct unpack_report r = { .kind = kind, .code = err ? err->code : ERR_NONE };

    c->stats.entries = c->tree.made;
    r.stats = c->stats;
    if (err)
        memcpy(r.text, err->msg, sizeof(r.text));
    /* a parent that is gone has taken its end of the pipe with it: nothing left to do here */
    if (write(c->job->report, &r, sizeof(r)) != sizeof(r))
        _exit(1);
}

static void report_progress(struct child *c)
{
    int64_t now = clock_ms();

    if (now - c->reported_ms < REPORT_MS)
        return;
    c->reported_ms = now;
    send_report(c, REPORT_PROGRESS, NULL);
}

/* ---- bounds ---- */

static bool address_space_countable(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false; /* sanitizers reserve terabytes of it */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return false;
#else
    return true;
#endif
#else
    return true;
#endif
}

static int set_limits_of(__rlimit_resource_t resource, int64_t value, int64_t most, struct err *err)
{
    struct rlimit limit = { (rlim_t)value, (rlim_t)most };

    if (setrlimit(resource, &limit))
        return err_sys(err, "limit the unpacker (resource %d to %lld)", (int)resource,
                       (long long)value);
    return 0;
}

static int set_limit(__rlimit_resource_t resource, int64_t value, struct err *err)
{
    return set_limits_of(resource, value, value, err);
}

static int set_limits(const struct unpack_bounds *b, struct err *err)
{
    signal(SIGXFSZ, SIG_IGN); /* EFBIG, with a sentence, instead of a death */
    if (address_space_countable() && set_limit(RLIMIT_AS, b->memory_bytes, err) < 0)
        return -1;
    /* at the hard limit the kernel kills without a word, so SIGXCPU comes a second before it */
    if (set_limits_of(RLIMIT_CPU, b->seconds, b->seconds + 1, err) < 0 ||
        set_limit(RLIMIT_FSIZE, b->bytes, err) < 0 || set_limit(RLIMIT_CORE, 0, err) < 0)
        return -1;
    return set_limit(RLIMIT_NPROC, 0, err); /* it never forks */
}

/* Claims are counted as well as bytes: a hole costs nothing here, but everything to who copies it.
 */
static int count_bytes(struct child *c, uint64_t *counter, uint64_t more, struct err *err)
{
    uint64_t most = (uint64_t)c->job->bounds.bytes;

    if (more > most || *counter > most - more)
        return err_set(err, ERR_LIMIT, "brings more than unpack.bytes (%llu) allows",
                       (unsigned long long)most);
    *counter += more;
    return 0;
}

/* ---- reading ---- */

static la_ssize_t read_input(struct archive *a, void *arg, const void **data)
{
    struct child *c = arg;
    ssize_t n;

    (void)a;
    do
        n = read(c->job->input, c->input, INPUT);
    while (n < 0 && errno == EINTR);
    *data = c->input;
    return n;
}

static int fail_archive(struct child *c, const char *what, struct err *err)
{
    const char *why = c->lib->error_string(c->archive);

    if (why && strcasestr(why, "memory")) /* a dictionary of gigabytes: ours to give or not */
        return err_set(err, ERR_LIMIT, "needs more than unpack.memory-bytes (%lld): %.120s",
                       (long long)c->job->bounds.memory_bytes, why);
    return err_set(err, ERR_INVALID, "%s: %.150s", what, why ? why : "it is damaged");
}

static enum entry_type type_of(const struct unpack_archive *lib, struct archive_entry *e)
{
    if (lib->entry_hardlink(e) || lib->entry_hardlink_utf8(e))
        return ENTRY_HARDLINK;
    switch (lib->entry_filetype(e)) {
    case AE_IFREG: return ENTRY_FILE;
    case AE_IFDIR: return ENTRY_DIRECTORY;
    case AE_IFLNK: return ENTRY_SYMLINK;
    case AE_IFIFO: return ENTRY_FIFO;
    case AE_IFCHR:
    case AE_IFBLK: return ENTRY_DEVICE;
    case AE_IFSOCK: return ENTRY_SOCKET;
    default: return ENTRY_UNKNOWN;
    }
}

/* The bytes as they stand in the archive; where libarchive cannot give those (a pax header in
 * UTF-8, a locale without it), as UTF-8. */
static struct str text_of(struct archive_entry *e, const char *(*plain)(struct archive_entry *),
                          const char *(*utf8)(struct archive_entry *))
{
    const char *s = plain(e);

    return str_of(s ? s : utf8(e));
}

static struct entry_raw raw_of(const struct unpack_archive *lib, struct archive_entry *e)
{
    struct entry_raw raw = { .type = type_of(lib, e) };

    raw.zero = raw.type == ENTRY_DEVICE && lib->entry_filetype(e) == AE_IFCHR &&
               !lib->entry_rdevmajor(e) && !lib->entry_rdevminor(e);

    raw.name = text_of(e, lib->entry_pathname, lib->entry_pathname_utf8);
    if (raw.type == ENTRY_HARDLINK)
        raw.link = text_of(e, lib->entry_hardlink, lib->entry_hardlink_utf8);
    if (raw.type == ENTRY_SYMLINK)
        raw.link = text_of(e, lib->entry_symlink, lib->entry_symlink_utf8);
    return raw;
}

static struct tree_attr attr_of(struct child *c, struct archive_entry *e)
{
    int64_t uid = c->lib->entry_uid(e), gid = c->lib->entry_gid(e);
    bool foreign = uid < 0 || uid > LAST_ID || gid < 0 || gid > LAST_ID;

    c->stats.owners += foreign && !c->tree.squash;
    return (struct tree_attr){
        .mode = c->lib->entry_perm(e) & 07777,
        .uid = uid < 0 || uid > LAST_ID ? NOBODY : (uid_t)uid,
        .gid = gid < 0 || gid > LAST_ID ? NOBODY : (gid_t)gid,
        .mtime = { c->lib->entry_mtime(e), c->lib->entry_mtime_nsec(e) },
    };
}

/* ---- writing ---- */

static int write_block(struct child *c, int fd, const char *p, size_t n, int64_t at,
                       struct err *err)
{
    if (count_bytes(c, &c->stats.written, n, err) < 0)
        return -1;
    while (n) {
        ssize_t w = pwrite(fd, p, n, at);

        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return err_sys(err, "cannot be written");
        p += w;
        n -= (size_t)w;
        at += w;
    }
    return 0;
}

/* Block by block with their offsets: holes stay holes. */
static int write_data(struct child *c, int fd, int64_t size, struct err *err)
{
    const void *p;
    size_t n;
    int64_t at;
    int r;

    while ((r = c->lib->read_data_block(c->archive, &p, &n, &at)) == ARCHIVE_OK) {
        if (at < 0 || at > size || (int64_t)n > size - at)
            return err_set(err, ERR_INVALID, "has bytes beyond its size");
        if (write_block(c, fd, p, n, at, err) < 0)
            return -1;
        report_progress(c);
    }
    if (r != ARCHIVE_EOF)
        return fail_archive(c, "is cut off or damaged", err);
    if (ftruncate(fd, size))
        return err_sys(err, "cannot be made %lld bytes long", (long long)size);
    return 0;
}

/* After owner and mode: a change of owner clears a file's capabilities. */
static bool keeps(const struct child *c, enum entry_type type, const char *name, const void *value,
                  size_t size)
{
    return name && (c->job->layer ? unpack_entry_layer_xattr(str_of(name), value, size)
                                  : unpack_entry_keep_xattr(type, str_of(name), value, size));
}

static int write_xattrs(struct child *c, struct archive_entry *e, enum entry_type type, int fd,
                        struct err *err)
{
    int n = c->lib->entry_xattr_reset(e);

    for (; n > 0; n--) {
        const char *name = NULL;
        const void *value = NULL;
        size_t size = 0;

        if (c->lib->entry_xattr_next(e, &name, &value, &size) != ARCHIVE_OK)
            break;
        if (fd < 0 || !keeps(c, type, name, value, size)) {
            if (c->job->layer)
                return err_set(err, ERR_INVALID, "has the attribute '%.64s', which no layer has",
                               name ? name : "");
            c->stats.xattrs++;
            continue;
        }
        if (count_bytes(c, &c->stats.written, strlen(name) + size, err) < 0)
            return -1;
        /* what the file system has no room or no word for is not worth the template */
        if (!fsetxattr(fd, name, value, size, 0))
            continue;
        if (c->job->layer)
            return err_sys(err, "cannot have its attribute '%.64s'", name);
        c->stats.xattrs++;
    }
    c->stats.xattrs += (uint64_t)MAX(
        c->lib->entry_acl_count(e, ARCHIVE_ENTRY_ACL_TYPE_ACCESS | ARCHIVE_ENTRY_ACL_TYPE_DEFAULT),
        0);
    return 0;
}

static int write_file(struct child *c, struct archive_entry *e, const char *path,
                      const struct tree_attr *attr, struct err *err)
{
    int64_t size = c->lib->entry_size(e);
    AUTO(closep) int fd = -1;

    if (size < 0)
        return err_set(err, ERR_INVALID, "has a negative size");
    if (count_bytes(c, &c->stats.bytes, (uint64_t)size, err) < 0)
        return -1;
    fd = unpack_tree_file(&c->tree, path, err);
    if (fd < 0 || write_data(c, fd, size, err) < 0 ||
        unpack_tree_file_attr(&c->tree, fd, attr, err) < 0)
        return -1;
    return write_xattrs(c, e, ENTRY_FILE, fd, err);
}

static int write_directory(struct child *c, struct archive_entry *e, const char *path,
                           const struct tree_attr *attr, struct err *err)
{
    AUTO(closep) int fd = -1;

    if (unpack_tree_directory(&c->tree, path, attr, &fd, err) < 0)
        return -1;
    return write_xattrs(c, e, ENTRY_DIRECTORY, fd, err);
}

static int write_entry(struct child *c, struct archive_entry *e, enum entry_type type,
                       const struct entry_clean *clean, struct err *err)
{
    struct tree_attr attr = attr_of(c, e);

    switch (type) {
    case ENTRY_FILE: return write_file(c, e, clean->path, &attr, err);
    case ENTRY_DIRECTORY: return write_directory(c, e, clean->path, &attr, err);
    case ENTRY_HARDLINK: return unpack_tree_hardlink(&c->tree, clean->path, clean->link, err);
    case ENTRY_FIFO: return unpack_tree_fifo(&c->tree, clean->path, &attr, err);
    case ENTRY_SYMLINK:
        if (count_bytes(c, &c->stats.written, strlen(clean->link), err) < 0)
            return -1;
        return unpack_tree_symlink(&c->tree, clean->path, clean->link, &attr, err);
    case ENTRY_DEVICE:
    case ENTRY_SOCKET:
    case ENTRY_UNKNOWN: break;
    }
    return err_set(err, ERR_INTERNAL, "is of a kind that was to be skipped");
}

static int write_whiteout(struct child *c, struct archive_entry *e, const struct entry_clean *clean,
                          struct err *err)
{
    struct tree_attr attr = attr_of(c, e);

    c->stats.whiteouts++;
    return unpack_tree_whiteout(&c->tree, clean->path, &attr, err);
}

/* Entries that are skipped count too: a million device nodes are as much work as a million files.
 */
static int skip_entry(struct child *c, enum entry_verdict verdict, struct err *err)
{
    const struct unpack_stats *s = &c->stats;

    c->stats.devices += verdict == ENTRY_SKIP_DEVICE;
    c->stats.sockets += verdict == ENTRY_SKIP_SOCKET;
    c->stats.whiteouts += verdict == ENTRY_SKIP_WHITEOUT;
    if (s->devices + s->sockets + s->whiteouts > (uint64_t)c->job->bounds.entries)
        return err_set(err, ERR_LIMIT, "is one more than unpack.entries (%lld) allows",
                       (long long)c->job->bounds.entries);
    return 0;
}

static int take_entry(struct child *c, struct archive_entry *e, struct err *err)
{
    struct entry_raw raw = raw_of(c->lib, e);
    struct entry_clean clean;
    enum entry_verdict verdict =
        c->job->layer ? unpack_entry_check_layer(&raw, &clean) : unpack_entry_check(&raw, &clean);
    char label[ENTRY_LABEL];
    int r;

    if (verdict == ENTRY_REJECT)
        r = err_set(err, ERR_INVALID, "%s", clean.why);
    else if (verdict == ENTRY_KEEP)
        r = write_entry(c, e, raw.type, &clean, err);
    else if (verdict == ENTRY_KEEP_WHITEOUT)
        r = write_whiteout(c, e, &clean, err);
    else
        r = skip_entry(c, verdict, err);
    c->stats.stripped += clean.stripped;
    if (!r && c->lib->read_data_skip(c->archive) < ARCHIVE_WARN)
        r = fail_archive(c, "is cut off or damaged", err);
    if (!r)
        return 0;
    unpack_entry_label(raw.name, label);
    err_in(err, "entry '%s'", label);
    return -1;
}

/* Tells an end from a cut: libarchive takes the end of the file as the end of the archive, but
 * behind the last entry and its padding there must be a block of zeros. */
static int check_end(struct child *c, int64_t last, const char *label, struct err *err)
{
    if (!c->tree.made && !(c->stats.devices + c->stats.sockets + c->stats.whiteouts))
        return err_set(err, ERR_INVALID, "the archive holds no entry");
    if (c->lib->filter_bytes(c->archive, 0) - last < BLOCK)
        return err_set(err, ERR_INVALID,
                       "the archive is cut off behind entry '%s': it has no end mark", label);
    return 0;
}

static int read_all(struct child *c, struct err *err)
{
    struct archive_entry *e;
    char label[ENTRY_LABEL] = "";
    int64_t last = 0;
    int r;

    if (c->lib->read_open(c->archive, c, NULL, read_input, NULL) != ARCHIVE_OK)
        return fail_archive(c, "not an archive we read (tar; gzip, bzip2, xz or zstd)", err);
    while ((r = c->lib->read_next_header(c->archive, &e)) == ARCHIVE_OK || r == ARCHIVE_WARN) {
        if (take_entry(c, e, err) < 0)
            return -1;
        unpack_entry_label(text_of(e, c->lib->entry_pathname, c->lib->entry_pathname_utf8), label);
        last = c->lib->filter_bytes(c->archive, 0);
        report_progress(c);
    }
    if (r == ARCHIVE_EOF)
        return check_end(c, last, label, err);
    fail_archive(c, "is damaged", err);
    return label[0] ? err_in(err, "what follows entry '%s'", label)
                    : err_in(err, "the archive's first entry");
}

/* So that the parent has hashed all of it; what stands behind the end mark is nobody's. */
static void drain(struct child *c)
{
    const void *p;

    while (read_input(NULL, c, &p) > 0)
        ;
}

static int unpack_here(struct child *c, struct err *err)
{
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (root < 0)
        return err_sys(err, "open the target");
    if (set_limits(&c->job->bounds, err) < 0)
        return -1;
    umask(0);
    unpack_tree_init(&c->tree, root);
    c->tree.squash = c->job->squash;
    c->tree.entries = (uint64_t)c->job->bounds.entries;
    c->tree.memory = (size_t)c->job->bounds.memory_bytes / 4; /* growing takes twice that */
    c->input = xmalloc(INPUT);
    c->archive = unpack_archive_new(c->lib, !c->job->layer);
    if (read_all(c, err) < 0)
        return -1;
    unpack_tree_times(&c->tree);
    drain(c);
    return 0;
}

void unpack_child_main(const struct unpack_job *job)
{
    static struct child c;
    const int keep[] = { job->input, job->report };
    struct err err = { 0 };

    c.job = job;
    c.lib = job->lib;
    if (unpack_ns_enter(job->ns, keep, ARRAY_LEN(keep), &err) < 0 || unpack_here(&c, &err) < 0) {
        send_report(&c, REPORT_FAILED, &err);
        _exit(1);
    }
    send_report(&c, REPORT_DONE, NULL);
    _exit(0); /* no destructors: the memory goes with the process, faster */
}
