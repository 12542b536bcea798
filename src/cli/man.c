/* man.c - `cove man`: the manual page cove(1) from the tables, as roff with the man macros.
 *
 * No date in it: the same source gives the same bytes. */
#include "base/buf.h"
#include "cli/commands.h"
#include "cli/help.h"

/* Text of ours as running text: no line of it may look like a request, and a dash is a minus sign,
 * so that an option can be copied from the page. */
static void put_text(struct buf *b, const char *text)
{
    for (; *text; text++) {
        bool start = !b->len || b->data[b->len - 1] == '\n';

        if (text[0] == '\n' && text[1] == '\n') {
            buf_puts(b, "\n.PP\n");
            text++;
            continue;
        }
        if (start && (*text == '.' || *text == '\''))
            buf_puts(b, "\\&");
        if (*text == '\\')
            buf_puts(b, "\\e");
        else if (*text == '-')
            buf_puts(b, "\\-");
        else if (*text == '\'')
            buf_puts(b, "\\(aq");
        else
            buf_putc(b, *text);
    }
}

static void paragraph(struct buf *b, const char *text)
{
    put_text(b, text);
    buf_putc(b, '\n');
}

static void section(struct buf *b, const char *title) { buf_printf(b, ".SH %s\n", title); }

/* One line in bold; a macro's argument would need another kind of quoting. */
static void bold(struct buf *b, const char *text)
{
    buf_puts(b, "\\fB");
    put_text(b, text);
    buf_puts(b, "\\fR");
}

static void put_option(struct buf *b, const struct args_option *o)
{
    AUTO(buf_free) struct buf text = { 0 };
    char name[ARGS_NAME + 8];

    buf_puts(b, ".TP\n");
    if (o->letter) {
        snprintf(name, sizeof(name), "-%c", o->letter);
        bold(b, name);
        buf_puts(b, ", ");
    }
    snprintf(name, sizeof(name), "--%s", o->name);
    bold(b, name);
    if (o->value) {
        buf_puts(b, " \\fI");
        put_text(b, o->value);
        buf_puts(b, "\\fR");
    }
    buf_putc(b, '\n');
    help_option_text(&text, o);
    paragraph(b, text.data);
}

static void put_exits(struct buf *b, const struct args_exit *exits)
{
    for (; exits->status; exits++) {
        buf_puts(b, ".TP\n");
        bold(b, exits->status);
        buf_putc(b, '\n');
        paragraph(b, exits->meaning);
    }
}

static void put_command(struct buf *b, const struct command *c, const char *path)
{
    AUTO(buf_free) struct buf usage = { 0 };

    help_usage_tail(&usage, c);
    buf_puts(b, ".SS ");
    put_text(b, path);
    buf_puts(b, "\n");
    bold(b, path);
    buf_puts(b, " ");
    put_text(b, usage.data);
    buf_puts(b, "\n.PP\n");
    paragraph(b, c->about ? c->about : c->help);
    for (const struct args_word *w = c->words; w && w->name; w++) {
        buf_puts(b, ".TP\n\\fI");
        put_text(b, w->name);
        buf_puts(b, "\\fR\n");
        paragraph(b, w->help);
    }
    for (const struct args_option *o = c->options; o && o->name; o++)
        if (!(o->flags & ARGS_HIDDEN))
            put_option(b, o);
    if (c->exits) {
        buf_puts(b, ".PP\nExit status:\n");
        put_exits(b, c->exits);
    }
}

static void put_commands(struct buf *b, const struct command *parent, const char *path)
{
    for (const struct command *const *sub = parent->subs; *sub; sub++) {
        AUTO(buf_free) struct buf name = { 0 };

        if ((*sub)->flags & ARGS_HIDDEN)
            continue;
        buf_printf(&name, "%s %s", path, (*sub)->name);
        if ((*sub)->subs)
            put_commands(b, *sub, name.data);
        else
            put_command(b, *sub, name.data);
    }
}

static int run_man(struct args *a)
{
    const struct command *c = &command_cove;
    AUTO(buf_free) struct buf b = { 0 };

    (void)a;
    buf_printf(&b, ".TH COVE 1 \"\" \"cove %s\"\n", COVE_VERSION);
    section(&b, "NAME");
    buf_printf(&b, "%s \\- %s\n", c->name, c->help);
    section(&b, "SYNOPSIS");
    buf_puts(&b, "\\fBcove\\fR \\fICOMMAND\\fR [options] [argument...]\n.br\n"
                 "\\fBcove\\fR [\\fB\\-\\-help\\fR | \\fB\\-\\-version\\fR]\n");
    section(&b, "DESCRIPTION");
    paragraph(&b, c->about);
    section(&b, "OPTIONS");
    buf_puts(&b, "Every command has \\fB\\-h\\fR, \\fB\\-\\-help\\fR. "
                 "\\fB\\-\\-\\fR ends the options.\n");
    for (const struct args_option *o = c->options; o->name; o++)
        put_option(&b, o);
    section(&b, "COMMANDS");
    put_commands(&b, c, c->name);
    section(&b, "EXIT STATUS");
    buf_puts(&b, "Of every command that names no other:\n");
    put_exits(&b, c->exits);
    section(&b, "ENVIRONMENT");
    buf_puts(&b, ".TP\n\\fBNO_COLOR\\fR\n");
    paragraph(&b, "when set, nothing is printed in colour, not even to a terminal");
    fputs(buf_cstr(&b), stdout);
    return 0;
}

const struct command command_man = {
    .name = "man",
    .help = "print the manual page",
    .about = "Prints the manual page cove(1) in roff: cove man | man -l -",
    .run = run_man,
};
