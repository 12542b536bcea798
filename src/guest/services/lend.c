/* lend.c - see lend.h. */
#include "guest/services/lend.h"

#include <ctype.h>
#include <stdio.h>

#include "base/str.h"

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

/* What stands before the colon of "host:8888": an address to listen on is all of the machine's. */
static bool is_everywhere(struct str before)
{
    static const char *const any[] = { "0.0.0.0", "[::]", "*" };

    if (!before.n || !(is_word(before.p[before.n - 1]) || strchr("]*", before.p[before.n - 1])))
        return true; /* ":8888" */
    for (size_t i = 0; i < ARRAY_LEN(any); i++) {
        size_t n = strlen(any[i]);

        if (before.n >= n && !memcmp(before.p + before.n - n, any[i], n) &&
            (before.n == n || !is_word(before.p[before.n - n - 1])))
            return true;
    }
    return false;
}

/* The number at text[at, end) is a port that somebody listens on, by what is around it. */
static bool is_listened(struct str text, size_t at, size_t end)
{
    if (end < text.n && (is_word(text.p[end]) || text.p[end] == '/'))
        return false;
    if (!at)
        return true;
    if (text.p[at - 1] == ':')
        return is_everywhere((struct str){ text.p, at - 1 });
    return !is_word(text.p[at - 1]);
}

static bool names(const char *text, const char *port)
{
    struct str all = str_of(text);
    size_t n = strlen(port);

    for (const char *p = text; p && (p = strstr(p, port)); p += n)
        if (is_listened(all, (size_t)(p - text), (size_t)(p - text) + n))
            return true;
    return false;
}

static bool is_port_variable(const char *name)
{
    size_t n = strlen(name);

    return n >= 4 && !strcmp(name + n - 4, "PORT");
}

bool lend_wanted(const struct process_config *c, int port)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", port);
    for (size_t i = 0; i < c->args.n; i++)
        if (names(c->args.items[i], text))
            return true;
    for (size_t i = 0; i < c->envs.n; i++)
        if (is_port_variable(c->envs.items[i].key) && !strcmp(c->envs.items[i].value, text))
            return true;
    return false;
}
