/* host_accounts.c - see host_accounts.h.
 *
 * Of a line only name and ids are taken. The full name, the members of a group, a home directory
 * outside the system's places and a login shell say who works on this machine. */
#include "jail/host_accounts.h"

#include "base/mem.h"

enum { ENTRIES_MAX = 4096, NAME_BYTES = 32, FIELDS = 7, FIRST_HUMAN = 1000 };

static const char *const homes[] = { "/var", "/usr", "/run", "/bin", "/dev", "/nonexistent" };
static const char *const shells_kept[] = {
    "/usr/sbin/nologin", "/sbin/nologin", "/usr/bin/nologin", "/bin/false",
    "/usr/bin/false",    "/bin/sync",     "/usr/bin/sync",
};

static bool valid_name(struct str s)
{
    if (!s.n || s.n > NAME_BYTES || s.p[0] == '-')
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';

        if (!letter && !(i && ((c >= '0' && c <= '9') || c == '-' || c == '.')))
            return false;
    }
    return true;
}

static bool plain_path(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= ' ' || s.p[i] == 0x7f)
            return false;
    return s.n < 256;
}

/* Splits at colons; false unless exactly n fields, the name is one and the id a number. */
static bool split(struct str line, struct str *field, size_t n)
{
    size_t i = 0;

    while (i < n && str_cut(line, ':', &field[i], &line))
        i++;
    return i == n - 1 && valid_name(field[0]);
}

static bool number(struct str s, unsigned *out)
{
    uint64_t v;

    if (str_u64(s, &v) || v > UINT32_MAX)
        return false;
    *out = (unsigned)v;
    return true;
}

/* "UID_MIN 1000"; a larger bound than 1000 is not believed: people may have been numbered from
 * 1000 before somebody raised it, and 1000 itself is ours inside. */
static unsigned first_human(struct str login_defs)
{
    struct str line, word;
    unsigned min = FIRST_HUMAN, v;

    while (login_defs.n) {
        str_cut(login_defs, '\n', &line, &login_defs);
        line = str_trim(line);
        for (size_t i = 0; i < line.n; i++)
            if (line.p[i] == '\t' || line.p[i] == ' ') {
                word = (struct str){ line.p, i };
                line = str_trim((struct str){ line.p + i, line.n - i });
                if ((str_is(word, "UID_MIN") || str_is(word, "GID_MIN")) && number(line, &v) && v)
                    min = MIN(min, v);
                break;
            }
    }
    return min;
}

bool host_accounts_system(const struct host_accounts *a, unsigned id)
{
    return id < a->first_human || id == HOST_NOBODY_ID;
}

static const struct host_account *find(const struct host_account *list, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_is(name, list[i].name))
            return &list[i];
    return NULL;
}

static struct host_account *add(struct host_accounts *a, bool user, struct str name)
{
    struct host_account *list = user ? a->users : a->groups;
    size_t *n = user ? &a->n_users : &a->n_groups;

    if (*n == ENTRIES_MAX || find(list, *n, name))
        return NULL;
    list[*n].name = arena_strdup(&a->arena, name);
    return &list[(*n)++];
}

static bool below(struct str path, const char *dir)
{
    size_t n = strlen(dir);

    return str_starts(path, dir) && (path.n == n || path.p[n] == '/');
}

static char *kept_home(struct host_accounts *a, struct str home)
{
    for (size_t i = 0; i < ARRAY_LEN(homes); i++)
        if (below(home, homes[i]) && plain_path(home))
            return arena_strdup(&a->arena, home);
    return arena_strdup(&a->arena, STR("/nonexistent"));
}

static char *kept_shell(struct host_accounts *a, struct str name, struct str shell,
                        const struct host_shells *shells)
{
    if (str_is(name, "postgres")) /* its own scripts run through su */
        return arena_strdup(&a->arena, STR("/bin/sh"));
    for (size_t i = 0; i < ARRAY_LEN(shells_kept); i++)
        if (str_is(shell, shells_kept[i]))
            return arena_strdup(&a->arena, shell);
    return arena_strdup(&a->arena, str_of(shells->nologin));
}

static void parse_user(struct host_accounts *a, struct str line, const struct host_shells *shells)
{
    struct str f[FIELDS];
    struct host_account *u;
    unsigned id, gid;

    /* a second name for uid 0 is a person's */
    if (!split(line, f, 7) || !number(f[2], &id) || !number(f[3], &gid) || !id ||
        !host_accounts_system(a, id) || !(u = add(a, true, f[0])))
        return;
    u->id = id;
    u->gid = host_accounts_system(a, gid) ? gid : HOST_NOBODY_ID;
    u->home = kept_home(a, f[5]);
    u->shell = kept_shell(a, f[0], f[6], shells);
}

static void parse_group(struct host_accounts *a, struct str line)
{
    struct str f[FIELDS];
    struct host_account *g;
    unsigned id;

    if (split(line, f, 4) && number(f[2], &id) && id && host_accounts_system(a, id) &&
        (g = add(a, false, f[0])))
        g->id = id;
}

static void add_ours(struct host_accounts *a, const struct host_shells *shells, const char *name,
                     unsigned id, const char *home)
{
    struct host_account *u = add(a, true, str_of(name)), *g = add(a, false, str_of(name));

    if (!u || !g)
        return;
    g->id = u->id = u->gid = id;
    u->home = arena_strdup(&a->arena, str_of(home));
    u->shell = arena_strdup(&a->arena, str_of(shells->login));
}

void host_accounts_parse(struct host_accounts *a, struct str passwd, struct str group,
                         struct str login_defs, const struct host_shells *shells)
{
    struct str line;

    a->users = xcalloc(ENTRIES_MAX, sizeof(*a->users));
    a->groups = xcalloc(ENTRIES_MAX, sizeof(*a->groups));
    a->first_human = first_human(login_defs);
    /* ours first: an entry of the machine with one of these names is passed over */
    add_ours(a, shells, "root", 0, "/root");
    add_ours(a, shells, "user", HOST_USER_ID, "/home/user");
    while (passwd.n) {
        str_cut(passwd, '\n', &line, &passwd);
        parse_user(a, line, shells);
    }
    while (group.n) {
        str_cut(group, '\n', &line, &group);
        parse_group(a, line);
    }
}

unsigned host_accounts_uid(const struct host_accounts *a, const char *name)
{
    const struct host_account *u = find(a->users, a->n_users, str_of(name));

    return u ? u->id : 0;
}

unsigned host_accounts_gid(const struct host_accounts *a, const char *name)
{
    const struct host_account *g = find(a->groups, a->n_groups, str_of(name));

    return g ? g->id : 0;
}

bool host_accounts_has(const struct host_accounts *a, struct str user, struct str group)
{
    return find(a->users, a->n_users, user) && find(a->groups, a->n_groups, group);
}

void host_accounts_passwd(const struct host_accounts *a, struct buf *out)
{
    for (size_t i = 0; i < a->n_users; i++) {
        const struct host_account *u = &a->users[i];

        buf_printf(out, "%s:x:%u:%u::%s:%s\n", u->name, u->id, u->gid, u->home, u->shell);
    }
}

static const char *members(const struct host_account *g)
{
    return !strcmp(g->name, "sudo") || !strcmp(g->name, "wheel") ? "user" : "";
}

void host_accounts_group(const struct host_accounts *a, struct buf *out)
{
    for (size_t i = 0; i < a->n_groups; i++)
        buf_printf(out, "%s:x:%u:%s\n", a->groups[i].name, a->groups[i].id, members(&a->groups[i]));
}

/* A fixed day of the last change: an empty or zero one makes PAM ask for a new password. */
void host_accounts_shadow(const struct host_accounts *a, struct buf *out)
{
    for (size_t i = 0; i < a->n_users; i++)
        buf_printf(out, "%s:*:19000:0:99999:7:::\n", a->users[i].name);
}

void host_accounts_gshadow(const struct host_accounts *a, struct buf *out)
{
    for (size_t i = 0; i < a->n_groups; i++)
        buf_printf(out, "%s:*::%s\n", a->groups[i].name, members(&a->groups[i]));
}

void host_accounts_free(struct host_accounts *a)
{
    free(a->users);
    free(a->groups);
    arena_free(&a->arena);
    *a = (struct host_accounts){ 0 };
}
