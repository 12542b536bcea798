/* mountinfo.c - see mountinfo.h. */
#include "cli/mountinfo.h"

#include "base/str.h"

/* The kernel writes blanks, newlines and backslashes in a path as three octal digits. */
static void unescape(char *text)
{
    char *out = text;

    for (; *text; text++) {
        bool escape = text[0] == '\\' && text[1] >= '0' && text[1] <= '3' && text[2] >= '0' &&
                      text[2] <= '7' && text[3] >= '0' && text[3] <= '7';

        if (escape) {
            *out++ = (char)((text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0'));
            text += 3;
        } else {
            *out++ = *text;
        }
    }
    *out = 0;
}

static char *word(char **rest)
{
    char *start = *rest, *end;

    if (!start)
        return NULL;
    end = strchr(start, ' ');
    *rest = end ? end + 1 : NULL;
    if (end)
        *end = 0;
    return start;
}

/* "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue" */
bool mountinfo_parse(char *line, struct mountinfo *out)
{
    char *fields[5], *rest = line, *w;

    line[strcspn(line, "\n")] = 0;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (!(fields[i] = word(&rest)))
            return false;
    do /* its options and the optional fields, up to a single dash */
        w = word(&rest);
    while (w && strcmp(w, "-") != 0);
    out->root = fields[3];
    out->point = fields[4];
    out->type = word(&rest);
    w = word(&rest); /* the source */
    out->options = word(&rest);
    if (!w || !out->options)
        return false;
    unescape(fields[3]);
    unescape(fields[4]);
    return true;
}

int mountinfo_each(bool (*fn)(const struct mountinfo *m, void *arg), void *arg)
{
    FILE *in = fopen("/proc/self/mountinfo", "re");
    struct mountinfo m;
    char *line = NULL;
    size_t room = 0;
    bool more = true;

    if (!in)
        return -1;
    while (more && getline(&line, &room, in) > 0)
        if (mountinfo_parse(line, &m))
            more = fn(&m, arg);
    free(line);
    fclose(in);
    return 0;
}

bool mountinfo_has(const struct mountinfo *m, const char *option)
{
    struct str rest = str_of(m->options), item;

    while (str_next(&rest, ',', &item))
        if (str_is(item, option))
            return true;
    return false;
}
