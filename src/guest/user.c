/* user.c - see user.h. */
#include "guest/user.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "guest/guest.h"
#include "guest/path.h"

enum { FILE_MAX = 1 << 20 };

bool user_next_line(struct str *rest, struct str field[7], int *count)
{
    struct str line;

    do {
        if (!rest->p || !rest->n)
            return false;
        str_cut(*rest, '\n', &line, rest);
    } while (!line.n || line.p[0] == '#');
    for (*count = 0; *count < 7; (*count)++) {
        if (!line.p)
            break;
        str_cut(line, ':', &field[*count], &line);
    }
    return true;
}

static struct str read_small(struct arena *a, int root, const char *path)
{
    AUTO(closep) int fd = path_open(root, path, O_RDONLY | O_NONBLOCK, 0);
    struct stat st;
    ssize_t n;
    char *p;

    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX)
        return (struct str){ 0 };
    p = arena_alloc(a, (size_t)st.st_size + 1);
    n = pread(fd, p, (size_t)st.st_size, 0);
    return (struct str){ p, (size_t)MAX(n, (ssize_t)0) };
}

static bool parse_passwd(struct str f[7], int n, struct arena *a, struct user *out)
{
    uint64_t uid, gid;

    if (n < 6 || str_u64(f[2], &uid) || str_u64(f[3], &gid) || uid > UINT32_MAX - 1 ||
        gid > UINT32_MAX - 1)
        return false;
    out->name = arena_strdup(a, f[0]);
    out->home = f[5].n && f[5].p[0] == '/' ? arena_strdup(a, f[5]) : "/";
    out->shell = n > 6 && f[6].n ? arena_strdup(a, f[6]) : "/bin/sh";
    out->uid = (uid_t)uid;
    out->gid = (gid_t)gid;
    return true;
}

static bool find_entry(struct str passwd, struct arena *a, const char *name, const uid_t *uid,
                       struct user *out)
{
    struct str f[7];
    int n;

    while (user_next_line(&passwd, f, &n))
        if ((name ? str_is(f[0], name) : true) && parse_passwd(f, n, a, out) &&
            (!uid || out->uid == *uid))
            return true;
    return false;
}

static void add_group(struct user *u, gid_t gid)
{
    for (size_t i = 0; i < u->ngroups; i++)
        if (u->groups[i] == gid)
            return;
    if (u->ngroups < USER_GROUPS)
        u->groups[u->ngroups++] = gid;
}

static void find_groups(struct str group, struct user *u)
{
    struct str f[7];
    uint64_t gid;
    int n;

    add_group(u, u->gid);
    while (user_next_line(&group, f, &n))
        if (n >= 4 && !str_u64(f[2], &gid) && gid < UINT32_MAX && f[3].n) {
            struct str members = f[3], one;

            while (str_next(&members, ',', &one))
                if (str_is(one, u->name))
                    add_group(u, (gid_t)gid);
        }
}

int user_find(struct guest *g, struct arena *a, const char *name, struct user *out, struct err *err)
{
    uid_t self = geteuid();

    *out = (struct user){ .switchable = g->privileged };
    if (!name || !*name)
        name = g->default_user;
    if (!find_entry(read_small(a, g->root, "/etc/passwd"), a, name, NULL, out)) {
        uint64_t uid;

        /* a machine whose /etc/passwd does not know us: our own number will do, nobody else's */
        if (str_u64(str_of(name), &uid) || uid != self)
            return err_set(err, ERR_UNAUTHENTICATED, "there is no user '%.64s'", name);
        *out = (struct user){ .name = arena_strdup(a, str_of(name)),
                              .home = "/",
                              .shell = "/bin/sh",
                              .uid = self,
                              .gid = getegid() };
        return 0;
    }
    if (!g->privileged && out->uid != self)
        return err_set(err, ERR_UNAUTHENTICATED,
                       "this guest runs without root and cannot become user '%.64s'", name);
    find_groups(read_small(a, g->root, "/etc/group"), out);
    return 0;
}

char *user_default(struct guest *g)
{
    struct arena a = { 0 };
    struct str passwd = read_small(&a, g->root, "/etc/passwd");
    struct user u;
    uid_t self = geteuid();
    char *name;

    if ((g->privileged && find_entry(passwd, &a, "user", NULL, &u)) ||
        find_entry(passwd, &a, NULL, &self, &u))
        name = xstrdup(u.name);
    else if (asprintf(&name, "%u", self) < 0)
        abort();
    arena_free(&a);
    return name;
}

void id_names_load(struct id_names *n, struct arena *a, int root)
{
    n->passwd = read_small(a, root, "/etc/passwd");
    n->group = read_small(a, root, "/etc/group");
}

static char *name_of(struct str file, struct arena *a, uint64_t id)
{
    struct str f[7];
    uint64_t v;
    int n;

    while (user_next_line(&file, f, &n))
        if (n >= 3 && !str_u64(f[2], &v) && v == id)
            return arena_strdup(a, f[0]);
    return arena_printf(a, "%llu", (unsigned long long)id);
}

char *id_name_user(const struct id_names *n, struct arena *a, uid_t uid)
{
    return name_of(n->passwd, a, uid);
}

char *id_name_group(const struct id_names *n, struct arena *a, gid_t gid)
{
    return name_of(n->group, a, gid);
}
