/* help.c - `cove help`, `cove CMD --help`: the tables as text for people. */
#include "cli/help.h"

#include <unistd.h>

#include "cli/commands.h"

enum { WIDTH = 80, COLUMN = 30 };

bool help_colours(void)
{
    const char *terminal = getenv("TERM");

    return !getenv("NO_COLOR") && terminal && strcmp(terminal, "dumb") != 0 &&
           isatty(STDOUT_FILENO);
}

/* Words of text, broken before WIDTH; what follows a break is indented. at: the column we are in.
 */
static void wrap(struct buf *b, const char *text, size_t at, size_t indent)
{
    bool first = true;

    while (*text) {
        size_t n = strcspn(text, " \n");

        if (!first && at + 1 + n > WIDTH) {
            buf_printf(b, "\n%*s", (int)indent, "");
            at = indent;
        } else if (!first) {
            buf_putc(b, ' ');
            at++;
        }
        buf_add(b, text, n);
        at += n;
        text += n;
        first = false;
        if (text[0] == '\n' && text[1] == '\n') { /* the end of a paragraph */
            buf_printf(b, "\n\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        text += strspn(text, " \n");
    }
    buf_putc(b, '\n');
}

static void heading(struct buf *b, const char *text, bool colours)
{
    buf_printf(b, "\n%s%s:%s\n", colours ? "\033[1m" : "", text, colours ? "\033[m" : "");
}

/* A left side that is too long has a line of its own. */
static void row(struct buf *b, const char *left, const char *right)
{
    size_t n = strlen(left), at = 2 + n;

    buf_printf(b, "  %s", left);
    if (at + 2 > COLUMN) {
        buf_printf(b, "\n%*s", COLUMN, "");
    } else {
        buf_printf(b, "%*s", (int)(COLUMN - at), "");
    }
    wrap(b, right, COLUMN, COLUMN);
}

void help_usage_tail(struct buf *b, const struct command *c)
{
    buf_puts(b, "[options]");
    if (c->tail) {
        buf_printf(b, " %s", c->tail);
        return;
    }
    if (c->subs)
        buf_puts(b, " COMMAND [argument...]");
    for (const struct args_word *w = c->words; w && w->name; w++) {
        const char *dots = w->flags & ARGS_MANY ? "..." : "";

        buf_printf(b, w->flags & ARGS_OPTIONAL ? " [%s%s]" : " %s%s", w->name, dots);
    }
}

void help_option_text(struct buf *b, const struct args_option *o)
{
    char bounds[160];

    buf_puts(b, o->help);
    args_bounds(o, bounds, sizeof(bounds));
    if (bounds[0])
        buf_printf(b, " (%s)", bounds);
    if (o->flags & ARGS_REPEAT)
        buf_puts(b, " (may be given more than once)");
}

static void write_options(struct buf *b, const struct command *c, bool colours)
{
    AUTO(buf_free) struct buf left = { 0 }, right = { 0 };

    heading(b, "options", colours);
    for (const struct args_option *o = c->options; o && o->name; o++) {
        if (o->flags & ARGS_HIDDEN)
            continue;
        left.len = right.len = 0;
        if (o->letter)
            buf_printf(&left, "-%c, ", o->letter);
        else
            buf_puts(&left, "    ");
        buf_printf(&left, "--%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
        help_option_text(&right, o);
        row(b, left.data, right.data);
    }
    row(b, "-h, --help", "print this");
}

static void write_subs(struct buf *b, const struct command *c, bool colours)
{
    heading(b, "commands", colours);
    for (const struct command *const *sub = c->subs; *sub; sub++)
        if (!((*sub)->flags & ARGS_HIDDEN))
            row(b, (*sub)->name, (*sub)->help);
}

void help_write(struct buf *b, const struct command *c, const char *path, bool colours)
{
    buf_printf(b, "usage: %s ", path);
    help_usage_tail(b, c);
    buf_puts(b, "\n\n");
    wrap(b, c->about ? c->about : c->help, 0, 0);
    if (c->subs)
        write_subs(b, c, colours);
    if (c->words) {
        heading(b, "arguments", colours);
        for (const struct args_word *w = c->words; w->name; w++)
            row(b, w->name, w->help);
    }
    write_options(b, c, colours);
    if (c->exits) {
        heading(b, "exit status", colours);
        for (const struct args_exit *e = c->exits; e->status; e++)
            row(b, e->status, e->meaning);
    }
}

void help_print(const struct command *c, const char *path)
{
    AUTO(buf_free) struct buf b = { 0 };

    help_write(&b, c, path, help_colours());
    fputs(buf_cstr(&b), stdout);
}

static int run_help(struct args *a)
{
    const struct command *c = &command_cove;
    AUTO(buf_free) struct buf path = { 0 };
    struct err err;

    buf_puts(&path, c->name);
    for (size_t i = 0; i < a->n; i++) {
        c = args_sub(c, a->words[i], &err);
        if (!c)
            return args_fail(a, args_usage_status(a), &err);
        buf_printf(&path, " %s", c->name);
    }
    help_print(c, path.data);
    return 0;
}

static const struct args_word help_words[] = { { "COMMAND",
                                                 "the command to explain, and its sub-command",
                                                 ARGS_COMMAND, .flags = ARGS_OPTIONAL | ARGS_MANY },
                                               {} };

const struct command command_help = {
    .name = "help",
    .help = "explain a command",
    .words = help_words,
    .run = run_help,
};
