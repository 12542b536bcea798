/* compose.c - POST /files/compose: several files become one, and are gone.
 *
 * A source is removed only while its name still leads to the file that was read, whole: not when
 * that is the result by another name, nor when somebody has replaced it or added to it since. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/mem.h"
#include "guest/auth.h"
#include "guest/files.h"
#include "guest/path.h"
#include "guest/upload.h"

enum { SOURCES_MAX = 4096 };

struct request {
    struct strs sources;
    char *destination, *username;
};

const struct field files_compose_fields[] = {
    FIELD_AS(struct request, sources, "source_paths", F_STRS, .flags = F_REQUIRED,
             .max = SOURCES_MAX),
    FIELD(struct request, destination, F_STR, .flags = F_REQUIRED, .max = 4096),
    FIELD(struct request, username, F_STR, .max = 64),
    {},
};

struct source {
    const char *path;
    struct inode file; /* that was read */
    int64_t bytes;     /* of it */
};

struct composing {
    struct arena *arena;
    struct user user;
    int root;
    struct source *sources;
    size_t n;
    const char *to;
    char *buf;
};

static int append(struct composing *w, struct upload *u, struct source *s, struct err *err)
{
    struct files_opening o = { .root = w->root, .fd = -1, .path = s->path };
    ssize_t n;
    int r = 0;

    if (files_open(&o, err))
        return -1;
    s->file = (struct inode){ o.st.st_dev, o.st.st_ino };
    while (!r && (n = read(o.fd, w->buf, FILES_COPY)) != 0) {
        r = n < 0 ? err_sys(err, "read '%.150s'", s->path)
                  : upload_write(u, (struct str){ w->buf, (size_t)n }, err);
        s->bytes += n;
    }
    close(o.fd);
    return r;
}

/* A link is removed itself; what it leads to stays. */
static int take_away(struct composing *w, const struct source *s, struct inode result,
                     struct err *err)
{
    AUTO(closep) int dir = -1;
    struct inode named;
    struct stat st;
    char *name;

    dir = path_open_parent(w->arena, w->root, s->path, NULL, &name, err);
    if (dir < 0 && err->code != ERR_NOT_FOUND)
        return -1;
    if (dir < 0 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW)) { /* somebody else has */
        *err = (struct err){ 0 };
        return 0;
    }
    named = (struct inode){ st.st_dev, st.st_ino };
    if (inode_same(named, result) || (!S_ISLNK(st.st_mode) && !inode_same(named, s->file)))
        return 0;
    if (S_ISREG(st.st_mode) && st.st_size != s->bytes)
        return err_set(err, ERR_CONFLICT,
                       "'%.100s' changed while '%.100s' was made of it: it stays, and what changed "
                       "is not in the result",
                       s->path, w->to);
    return unlinkat(dir, name, 0) && errno != ENOENT ? err_sys(err, "remove '%.150s'", s->path) : 0;
}

static int work_compose(void *arg, struct err *err)
{
    struct composing *w = arg;
    struct upload u;
    int r = upload_begin(&u, w->arena, w->root, w->to, &w->user, NULL, err);

    for (size_t i = 0; !r && i < w->n; i++)
        r = append(w, &u, &w->sources[i], err);
    if (!r)
        r = upload_commit(&u, err);
    upload_finish(&u);
    for (size_t i = 0; !r && i < w->n; i++)
        r = take_away(w, &w->sources[i], u.written, err);
    return r;
}

int files_compose(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };
    struct request *req = arena_alloc(&c->arena, sizeof(*req));
    struct composing *w = arena_alloc(&c->arena, sizeof(*w));
    const char *workdir = call_guest(c)->default_workdir;
    int r;

    (void)body;
    if (call_read_json(c, files_compose_fields, FIELDS_PROTO, req, err))
        return -1;
    if (req->username && *req->username
            ? user_find(call_guest(c), &c->arena, req->username, &w->user, err)
            : auth_user(c, &w->user, err))
        return -1;
    if (!req->sources.n)
        return err_set(err, ERR_INVALID, "field 'source_paths' must not be empty");
    w->arena = &c->arena;
    w->root = call_guest(c)->root;
    w->n = req->sources.n;
    w->sources = arena_alloc(&c->arena, w->n * sizeof(*w->sources));
    for (size_t i = 0; i < w->n; i++)
        w->sources[i] = (struct source){ .path = path_expand(&c->arena, req->sources.items[i],
                                                             &w->user, workdir) };
    w->to = path_expand(&c->arena, req->destination, &w->user, workdir);
    w->buf = xmalloc(FILES_COPY);
    r = guest_work(work_compose, w, err);
    free(w->buf);
    if (r)
        return -1;
    files_put_written(&json, w->to, &(struct map){ 0 });
    return call_reply_json(c, 200, &json);
}
