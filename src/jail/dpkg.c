/* dpkg.c - see dpkg.h.
 *
 *   Package: bash
 *   Conffiles:
 *    /etc/bash.bashrc 3101b81a4bb1ea33ab7d5ba3bfb5f7b4
 *    /etc/old 5d41402abc4b2a76b9719d911017c592 obsolete
 *    /etc/new newconffile
 *
 * A name may contain spaces, so a line is read from its end. */
#include "jail/dpkg.h"

static bool clean_component(struct str c)
{
    if (!c.n || str_is(c, ".") || str_is(c, ".."))
        return false;
    for (size_t i = 0; i < c.n; i++)
        if ((unsigned char)c.p[i] < ' ' || c.p[i] == 0x7f)
            return false;
    return true;
}

bool dpkg_clean_path(struct str path)
{
    struct str part;

    if (path.n < 2 || path.n >= DPKG_PATH_MAX || path.p[0] != '/')
        return false;
    path.p++, path.n--;
    while (str_cut(path, '/', &part, &path))
        if (!clean_component(part))
            return false;
    return clean_component(part);
}

/* Cuts the word after the last space off. */
static struct str last_word(struct str *line)
{
    size_t at = line->n;
    struct str word;

    while (at && line->p[at - 1] != ' ')
        at--;
    word = (struct str){ line->p + at, line->n - at };
    *line = str_trim((struct str){ line->p, at });
    return word;
}

static bool parse_md5(struct str hex, unsigned char out[16])
{
    if (hex.n != 32)
        return false;
    for (size_t i = 0; i < 16; i++) {
        uint64_t byte;

        if (str_hex((struct str){ hex.p + 2 * i, 2 }, &byte))
            return false;
        out[i] = (unsigned char)byte;
    }
    return true;
}

static bool parse_line(struct str line, struct dpkg_conffile *out)
{
    struct str word;

    line = str_trim(line);
    do
        word = last_word(&line);
    while (str_is(word, "obsolete") || str_is(word, "remove-on-upgrade"));
    out->path = line;
    return parse_md5(word, out->md5) && dpkg_clean_path(line);
}

bool dpkg_next_conffile(struct dpkg_conffiles *it, struct dpkg_conffile *out)
{
    while (it->rest.n) {
        struct str line, name, value;

        if (!str_cut(it->rest, '\n', &line, &it->rest))
            it->rest.n = 0;
        if (line.n && line.p[0] == ' ') {
            if (it->inside && parse_line(line, out))
                return true;
        } else { /* a field, or the empty line between two packages */
            it->inside = str_cut(line, ':', &name, &value) && str_iis(name, "Conffiles");
        }
    }
    return false;
}
