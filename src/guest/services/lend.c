/* lend.c - see lend.h. */
#include "guest/services/lend.h"

#include <ctype.h>
#include <stdio.h>

#include "base/buf.h"

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

static bool ends_with(struct str s, const char *word)
{
    size_t n = strlen(word);

    return s.n >= n && !memcmp(s.p + s.n - n, word, n) && (s.n == n || !is_word(s.p[s.n - n - 1]));
}

/* What stands before the colon of "host:8888": an address to listen on is all of the machine's. */
static bool is_everywhere(struct str before)
{
    static const char *const any[] = { "0.0.0.0", "[::]", "*" };

    if (!before.n || !(is_word(before.p[before.n - 1]) || strchr("]*", before.p[before.n - 1])))
        return true; /* ":8888" */
    for (size_t i = 0; i < ARRAY_LEN(any); i++)
        if (ends_with(before, any[i]))
            return true;
    return false;
}

/* nc localhost 8888, connect(("127.0.0.1", 8888)): a server on this host alone looks the same, and
 * has to ask. */
static bool follows_host(struct str before)
{
    while (before.n && strchr(" \t\"',", before.p[before.n - 1]))
        before.n--;
    return ends_with(before, "localhost") || ends_with(before, "127.0.0.1") ||
           ends_with(before, "::1");
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
    if (text.p[at - 1] == '/') /* of an address, as in /dev/tcp */
        return false;
    return !is_word(text.p[at - 1]) && !follows_host((struct str){ text.p, at });
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
    AUTO(buf_free) struct buf line = { 0 };
    char text[16];

    snprintf(text, sizeof(text), "%d", port);
    for (size_t i = 0; i < c->args.n; i++)
        buf_printf(&line, " %s", c->args.items[i]);
    if (names(buf_cstr(&line), text))
        return true;
    for (size_t i = 0; i < c->envs.n; i++)
        if (is_port_variable(c->envs.items[i].key) && !strcmp(c->envs.items[i].value, text))
            return true;
    return false;
}
