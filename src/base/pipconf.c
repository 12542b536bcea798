/* pipconf.c - see pipconf.h. The format is Python's configparser as far as pip.conf uses it:
 * sections, "key = value" or "key: value", comments at line starts, values that go on on lines that
 * begin with a blank. */
#include "base/pipconf.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/util.h"

enum { FILE_BYTES = 64 << 10 };

static struct str trim_end(struct str s)
{
    while (s.n && (s.p[s.n - 1] == '\r' || s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

static bool key_is(struct str name, const char *key)
{
    name = str_trim(name);
    if (name.n != strlen(key))
        return false;
    for (size_t i = 0; i < name.n; i++) /* index_url and index-url are the same to pip */
        if ((name.p[i] == '_' ? '-' : name.p[i]) != key[i])
            return false;
    return true;
}

static bool our_section(struct str line)
{
    return str_starts(line, "[global]") || str_starts(line, "[install]");
}

/* The name and value of a line, by whichever of '=' and ':' comes first. */
static bool split(struct str line, struct str *name, struct str *value)
{
    size_t i = 0;

    while (i < line.n && line.p[i] != '=' && line.p[i] != ':')
        i++;
    if (i == line.n)
        return false;
    *name = (struct str){ line.p, i };
    *value = str_trim((struct str){ line.p + i + 1, line.n - i - 1 });
    return true;
}

char *pipconf_get(struct str text, const char *key, struct arena *a)
{
    struct str line, name, value;
    bool ours = false, ends = false;
    char *found = NULL;
    bool joining = false;

    while (!ends) {
        ends = !str_cut(text, '\n', &line, &text);
        line = trim_end(line);
        if (!line.n || line.p[0] == '#' || line.p[0] == ';')
            continue;
        if (line.p[0] == ' ' || line.p[0] == '\t') {
            value = str_trim(line);
            if (joining && value.n)
                found = *found ? arena_printf(a, "%s %.*s", found, STR_ARG(value))
                               : arena_strdup(a, value);
            continue;
        }
        joining = false;
        if (line.p[0] == '[') {
            ours = our_section(line);
        } else if (ours && split(line, &name, &value) && key_is(name, key)) {
            found = arena_strdup(a, value);
            joining = true;
        }
    }
    return found && *found ? found : NULL;
}

static void look(const char *path, const char *key, struct arena *a, char **found)
{
    AUTO(closep) int fd = path ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    AUTO(freep) char *text = fd < 0 ? NULL : xmalloc(FILE_BYTES);
    ssize_t n = text ? read(fd, text, FILE_BYTES) : -1;
    char *value = n > 0 ? pipconf_get((struct str){ text, (size_t)n }, key, a) : NULL;

    if (value)
        *found = value;
}

char *pipconf_find(const char *key, struct arena *a)
{
    const char *home = getenv("HOME"), *config = getenv("XDG_CONFIG_HOME");
    char *found = NULL;

    look("/etc/xdg/pip/pip.conf", key, a, &found);
    look("/etc/pip.conf", key, a, &found);
    if (home)
        look(arena_printf(a, "%s/.pip/pip.conf", home), key, a, &found);
    if (config && *config)
        look(arena_printf(a, "%s/pip/pip.conf", config), key, a, &found);
    else if (home)
        look(arena_printf(a, "%s/.config/pip/pip.conf", home), key, a, &found);
    look(getenv("PIP_CONFIG_FILE"), key, a, &found);
    return found;
}
