/* prom.c - see prom.h. */
#include "base/prom.h"

void prom_head(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_label(struct buf *b, const char *value)
{
    for (; *value; value++) {
        if (*value == '\n') {
            buf_puts(b, "\\n");
            continue;
        }
        if (*value == '"' || *value == '\\')
            buf_putc(b, '\\');
        buf_putc(b, *value);
    }
}

void prom_value(struct buf *b, const char *name, const char *const *labels, double v)
{
    buf_puts(b, name);
    if (labels && labels[0]) {
        for (size_t i = 0; labels[i]; i += 2) {
            buf_printf(b, "%c%s=\"", i ? ',' : '{', labels[i]);
            put_label(b, labels[i + 1]);
            buf_putc(b, '"');
        }
        buf_putc(b, '}');
    }
    buf_printf(b, " %.15g\n", v);
}
