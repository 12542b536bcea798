/* bundle_file.c - see bundle.h: the part that reads and writes the file. */
#include <errno.h>
#include <nettle/sha2.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "keep/bundle.h"

enum { CHUNK = 1 << 20, ENDING = 2 * BUNDLE_BLOCK };

static const char zeros[ENDING];

static uint64_t padded(uint64_t n) { return (n + BUNDLE_BLOCK - 1) / BUNDLE_BLOCK * BUNDLE_BLOCK; }

/* ---- reading ---- */

static int read_at(int fd, void *to, size_t n, uint64_t at, struct err *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t r = pread(fd, (char *)to + done, n - done, (off_t)(at + done));

        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return err_sys(err, "read the backup");
        if (!r)
            return err_set(err, ERR_INVALID, "it is cut off after %llu bytes",
                           (unsigned long long)(at + done));
        done += (size_t)r;
    }
    return 0;
}

bool bundle_is(int fd)
{
    char block[BUNDLE_BLOCK];
    struct bundle_member m;
    struct err err;

    /* one whose first head is damaged is still ours by its name */
    return !read_at(fd, block, sizeof(block), 0, &err) &&
           (!strncmp(block, "cove-backup", BUNDLE_NAME) || !bundle_read_head(block, &m, &err));
}

static int sum_of(int fd, struct bundle_member *m, struct err *err)
{
    AUTO(freep) char *chunk = xmalloc((size_t)MIN(m->size + 1, (uint64_t)CHUNK));
    struct sha256_ctx hash;

    sha256_init(&hash);
    for (uint64_t done = 0; done < m->size;) {
        size_t n = (size_t)MIN(m->size - done, (uint64_t)CHUNK);

        if (read_at(fd, chunk, n, m->at + done, err))
            return -1;
        sha256_update(&hash, n, (const uint8_t *)chunk);
        done += n;
    }
    sha256_digest(&hash, sizeof(m->sum), m->sum);
    return 0;
}

int bundle_read(int fd, const struct bundle_member *m, size_t most, struct buf *out,
                struct err *err)
{
    if (m->size > most)
        return err_set(err, ERR_TOO_LARGE, "a member of %llu bytes, at most %zu",
                       (unsigned long long)m->size, most);
    buf_reserve(out, (size_t)m->size);
    if (read_at(fd, out->data + out->len, (size_t)m->size, m->at, err))
        return -1;
    out->len += (size_t)m->size;
    out->data[out->len] = 0;
    return 0;
}

static int check_sums(int fd, const struct bundle *b, struct err *err)
{
    const struct bundle_member *sums = &b->list[b->n - 1];
    AUTO(buf_free) struct buf want = { 0 };
    AUTO(buf_free) struct buf text = { 0 };

    bundle_put_sums(b, &want);
    if (sums->size != want.len || bundle_read(fd, sums, want.len, &text, err) ||
        !str_eq(buf_str(&want), buf_str(&text)))
        return err_set(err, ERR_INVALID,
                       "it is damaged: its bytes do not have the sums that were "
                       "written behind them");
    return 0;
}

static int check_version(int fd, const struct bundle *b, struct err *err)
{
    AUTO(buf_free) struct buf text = { 0 };

    if (bundle_read(fd, &b->list[0], 16, &text, err))
        return -1;
    if (!str_is(buf_str(&text), BUNDLE_FORMAT))
        return err_set(err, ERR_UNSUPPORTED, "it is of format %.8s, which a newer release writes",
                       buf_cstr(&text));
    return 0;
}

/* Zeros between a member and the next, and behind the last of them nothing else. */
static int check_zeros(int fd, uint64_t at, uint64_t n, struct err *err)
{
    char found[ENDING];

    if (read_at(fd, found, (size_t)n, at, err))
        return -1;
    return memcmp(found, zeros, (size_t)n) != 0
               ? err_set(err, ERR_INVALID, "it is damaged between two members")
               : 0;
}

static int check_member(int fd, struct bundle *b, uint64_t *at, struct err *err)
{
    char block[BUNDLE_BLOCK];
    struct bundle_member m, *kept;

    if (read_at(fd, block, sizeof(block), *at, err) || bundle_read_head(block, &m, err) ||
        bundle_check_order(b, &m, err))
        return -1;
    kept = bundle_add(b, m.kind, m.id);
    *kept = m;
    kept->at = *at + BUNDLE_BLOCK;
    if (sum_of(fd, kept, err) || check_zeros(fd, kept->at + m.size, padded(m.size) - m.size, err) ||
        (b->n == 1 && check_version(fd, b, err)))
        return -1;
    *at = kept->at + padded(m.size);
    return 0;
}

int bundle_check(int fd, struct bundle *out, struct err *err)
{
    struct stat st;
    uint64_t at = 0;

    do
        if (check_member(fd, out, &at, err))
            return -1;
    while (out->list[out->n - 1].kind != BUNDLE_SUMS);
    if (check_sums(fd, out, err) || check_zeros(fd, at, ENDING, err))
        return -1;
    if (fstat(fd, &st) || (uint64_t)st.st_size != at + ENDING)
        return err_set(err, ERR_INVALID, "it has bytes behind its end");
    return 0;
}

/* ---- writing ---- */

static int write_all(int fd, const void *p, size_t n, struct err *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t w = write(fd, (const char *)p + done, n - done);

        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return err_sys(err, "write the backup");
        done += (size_t)w;
    }
    return 0;
}

/* Its head comes at its end, when its size is known. */
int bundle_begin(int fd, struct bundle *b, enum bundle_kind kind, const char *id, struct err *err)
{
    struct bundle_member *m = bundle_add(b, kind, id);
    off_t at = lseek(fd, 0, SEEK_CUR);

    if (at < 0)
        return err_sys(err, "write the backup");
    m->at = (uint64_t)at + BUNDLE_BLOCK;
    return write_all(fd, zeros, BUNDLE_BLOCK, err);
}

int bundle_end(int fd, struct bundle *b, struct err *err)
{
    struct bundle_member *m = &b->list[b->n - 1];
    off_t at = lseek(fd, 0, SEEK_CUR);
    char head[BUNDLE_BLOCK];

    if (at < 0)
        return err_sys(err, "write the backup");
    m->size = (uint64_t)at - m->at;
    m->time_s = time(NULL);
    bundle_head(m, head);
    if (pwrite(fd, head, sizeof(head), (off_t)(m->at - BUNDLE_BLOCK)) != sizeof(head))
        return err_sys(err, "write the backup");
    return write_all(fd, zeros, (size_t)(padded(m->size) - m->size), err) || sum_of(fd, m, err) ? -1
                                                                                                : 0;
}

int bundle_put(int fd, struct bundle *b, enum bundle_kind kind, const char *id, struct str bytes,
               struct err *err)
{
    return bundle_begin(fd, b, kind, id, err) || write_all(fd, bytes.p, bytes.n, err) ||
                   bundle_end(fd, b, err)
               ? -1
               : 0;
}

int bundle_drop_last(int fd, struct bundle *b, struct err *err)
{
    off_t at = (off_t)(b->list[--b->n].at - BUNDLE_BLOCK);

    return ftruncate(fd, at) || lseek(fd, at, SEEK_SET) < 0 ? err_sys(err, "write the backup") : 0;
}

int bundle_finish(int fd, struct bundle *b, struct err *err)
{
    AUTO(buf_free) struct buf sums = { 0 };

    bundle_put_sums(b, &sums);
    if (bundle_put(fd, b, BUNDLE_SUMS, NULL, buf_str(&sums), err) ||
        write_all(fd, zeros, ENDING, err))
        return -1;
    return fsync(fd) ? err_sys(err, "write the backup") : 0;
}
