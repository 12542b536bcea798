/* columns.c - see columns.h. */
#include "cli/columns.h"

#include <stdio.h>
#include <time.h>

#include "base/mem.h"
#include "cli/help.h"

enum { GAP = 2 };

void columns_init(struct columns *t, const char *const *heads)
{
    *t = (struct columns){ .heads = heads };
    while (heads[t->columns] && t->columns < COLUMNS_MAX)
        t->columns++;
}

void columns_finish(struct columns *t)
{
    arena_free(&t->text);
    free(t->cells);
    *t = (struct columns){ 0 };
}

void columns_clean(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 127)
            *text = '?';
}

void columns_row(struct columns *t, const char *const *cells)
{
    size_t at = t->rows * t->columns;

    if (at + t->columns > t->cap) {
        t->cap = MAX(t->cap * 2, at + t->columns);
        t->cells = xrealloc(t->cells, t->cap * sizeof(*t->cells));
    }
    for (size_t i = 0; i < t->columns; i++) {
        t->cells[at + i] = arena_strdup(&t->text, str_of(cells[i] && *cells[i] ? cells[i] : "-"));
        columns_clean(t->cells[at + i]);
    }
    t->rows++;
}

/* Characters, not bytes: one for each byte that does not continue one. */
static size_t width(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void put_row(const struct columns *t, const char *const *cells, const size_t *widths,
                    struct buf *out)
{
    for (size_t i = 0; i < t->columns; i++) {
        buf_puts(out, cells[i]);
        if (i + 1 < t->columns)
            buf_printf(out, "%*s", (int)(widths[i] - width(cells[i]) + GAP), "");
    }
}

void columns_write(const struct columns *t, bool colours, struct buf *out)
{
    size_t widths[COLUMNS_MAX];

    for (size_t i = 0; i < t->columns; i++) {
        widths[i] = width(t->heads[i]);
        for (size_t r = 0; r < t->rows; r++)
            widths[i] = MAX(widths[i], width(t->cells[r * t->columns + i]));
    }
    if (colours)
        buf_puts(out, "\033[1m");
    put_row(t, t->heads, widths, out);
    buf_puts(out, colours ? "\033[m\n" : "\n");
    for (size_t r = 0; r < t->rows; r++) {
        put_row(t, (const char *const *)t->cells + r * t->columns, widths, out);
        buf_putc(out, '\n');
    }
}

void columns_print(const struct columns *t)
{
    AUTO(buf_free) struct buf b = { 0 };

    columns_write(t, help_colours(), &b);
    fwrite(b.data, 1, b.len, stdout);
}

void columns_span(int64_t seconds, char *out, size_t n)
{
    static const struct {
        int64_t seconds;
        char unit;
    } units[] = { { 86400, 'd' }, { 3600, 'h' }, { 60, 'm' }, { 1, 's' } };
    size_t i = 0;

    seconds = MAX(seconds, (int64_t)0);
    while (i + 1 < ARRAY_LEN(units) && seconds < units[i].seconds)
        i++;
    snprintf(out, n, "%lld%c", (long long)(seconds / units[i].seconds), units[i].unit);
}

int64_t columns_time(const char *rfc3339)
{
    struct tm t = { 0 };
    const char *rest = rfc3339 ? strptime(rfc3339, "%Y-%m-%dT%H:%M:%S", &t) : NULL;

    if (rest && *rest == '.')
        rest += 1 + strspn(rest + 1, "0123456789");
    return rest && (*rest == 'Z' || !strncmp(rest, "+00:00", 6)) ? (int64_t)timegm(&t) : -1;
}
