/* completion.c - `cove completion bash|zsh|fish`: what each shell needs to complete our command
 * lines, from the tables. None of the scripts starts cove, so that a key press costs nothing. */
#include "base/buf.h"
#include "base/mem.h"
#include "cli/commands.h"

/* Calls fn for the program and every command that can be seen, with its path: "cove", "cove run".
 */
static void each(struct buf *b, const struct command *c, const char *path,
                 void (*fn)(struct buf *b, const struct command *c, const char *path))
{
    fn(b, c, path);
    for (const struct command *const *sub = c->subs; sub && *sub; sub++) {
        AUTO(buf_free) struct buf name = { 0 };

        if ((*sub)->flags & ARGS_HIDDEN)
            continue;
        buf_printf(&name, "%s %s", path, (*sub)->name);
        each(b, *sub, name.data, fn);
    }
}

static void put_subs(struct buf *b, const struct command *c)
{
    for (const struct command *const *sub = c->subs; *sub; sub++)
        if (!((*sub)->flags & ARGS_HIDDEN))
            buf_printf(b, " %s", (*sub)->name);
}

/* The words that can stand for a value of this type, each with a space before it; none: free. */
static void put_words(struct buf *b, enum args_type type, const char *const *choices)
{
    if (type == ARGS_COMMAND)
        put_subs(b, &command_cove);
    for (; type == ARGS_CHOICE && *choices; choices++)
        buf_printf(b, " %s", *choices);
}

/* ---- bash: one function with two tables, and no need of the bash-completion package ---- */

static void bash_path(struct buf *b, const struct command *c, const char *path)
{
    (void)c;
    if (strchr(path, ' '))
        buf_printf(b, "%s\"%s\"", b->data[b->len - 1] == ' ' ? "" : " | ", path);
}

static void bash_action(struct buf *b, enum args_type type, const char *const *choices)
{
    if (type == ARGS_DIR)
        buf_puts(b, "kind=-d");
    else if (type == ARGS_CHOICE || type == ARGS_COMMAND) {
        buf_puts(b, "words='");
        put_words(b, type, choices);
        buf_puts(b, "'");
    } else if (type == ARGS_FILE) {
        buf_puts(b, "kind=-f");
    } else {
        buf_puts(b, ":");
    }
}

/* "cove doctor --data-dir") what the next word may be ;; */
static void bash_values(struct buf *b, const struct command *c, const char *path)
{
    for (const struct args_option *o = c->options; o && o->name; o++) {
        if (!o->value || o->flags & ARGS_HIDDEN)
            continue;
        buf_printf(b, "    \"%s --%s\"", path, o->name);
        if (o->letter)
            buf_printf(b, " | \"%s -%c\"", path, o->letter);
        buf_puts(b, ") ");
        bash_action(b, o->type, o->choices);
        buf_puts(b, " ;;\n");
    }
}

static void bash_options(struct buf *b, const struct command *c, const char *path)
{
    buf_printf(b, "    \"%s\")\n        options='--help", path);
    for (const struct args_option *o = c->options; o && o->name; o++)
        if (!(o->flags & ARGS_HIDDEN))
            buf_printf(b, " --%s", o->name);
    buf_puts(b, "'\n        ");
    if (c->subs) {
        buf_puts(b, "words='");
        put_subs(b, c);
        buf_puts(b, "'");
    } else if (c->words) {
        bash_action(b, c->words->type, c->words->choices);
    } else {
        buf_puts(b, ":");
    }
    buf_puts(b, " ;;\n");
}

static void write_bash(struct buf *b)
{
    buf_puts(b, "# cove completion for bash, made by `cove completion bash`\n"
                "_cove()\n{\n"
                "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
                "    local path=cove options= words= kind= value=1 i\n"
                "    COMPREPLY=()\n"
                "    # --name=value comes as three words\n"
                "    if [ \"$cur\" = = ]; then\n"
                "        cur=\n"
                "    elif [ \"$prev\" = = ] && [ \"$COMP_CWORD\" -gt 2 ]; then\n"
                "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
                "    fi\n"
                "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                "        case \"$path ${COMP_WORDS[i]}\" in\n"
                "        ");
    each(b, &command_cove, command_cove.name, bash_path);
    buf_puts(b, ") path=\"$path ${COMP_WORDS[i]}\" ;;\n"
                "        esac\n"
                "    done\n"
                "    case \"$path $prev\" in\n");
    each(b, &command_cove, command_cove.name, bash_values);
    buf_puts(b, "    *) value= ;;\n"
                "    esac\n"
                "    [ \"$value\" ] || case \"$path\" in\n");
    each(b, &command_cove, command_cove.name, bash_options);
    buf_puts(b, "    esac\n"
                "    case $cur in -*) [ \"$value\" ] || { words=$options kind=; } ;; esac\n"
                "    if [ \"$kind\" ]; then\n"
                "        compopt -o filenames\n"
                "        mapfile -t COMPREPLY < <(compgen \"$kind\" -- \"$cur\")\n"
                "    else\n"
                "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
                "    fi\n"
                "}\n"
                "complete -F _cove cove\n");
}

/* ---- zsh: _arguments knows everything that our rows say ---- */

/* Within the description in [] and behind a colon, where both of them and the backslash count. */
static void zsh_text(struct buf *b, const char *text)
{
    for (; *text; text++)
        if (*text == '\'')
            buf_puts(b, "'\\''");
        else if (strchr("[]:\\", *text))
            buf_printf(b, "\\%c", *text);
        else
            buf_putc(b, *text);
}

static void zsh_function(struct buf *b, const char *path)
{
    for (buf_putc(b, '_'); *path; path++)
        buf_putc(b, (char)(*path == ' ' || *path == '-' ? '_' : *path));
}

static void zsh_action(struct buf *b, enum args_type type, const char *const *choices)
{
    if (type == ARGS_DIR)
        buf_puts(b, "_files -/");
    else if (type == ARGS_FILE)
        buf_puts(b, "_files");
    else if (type == ARGS_CHOICE || type == ARGS_COMMAND) {
        buf_puts(b, "(");
        put_words(b, type, choices);
        buf_puts(b, " )");
    } else {
        buf_puts(b, " "); /* a message with what is expected, and nothing to choose from */
    }
}

/* "--name=" takes the value behind the sign or as the next word, "-n+" attached or as the next. */
static void zsh_option(struct buf *b, const struct args_option *o, const char *name)
{
    buf_printf(b, " \\\n        '%s%s%s[", o->flags & ARGS_REPEAT ? "*" : "", name,
               !o->value        ? ""
               : name[1] == '-' ? "="
                                : "+");
    zsh_text(b, o->help);
    buf_puts(b, "]");
    if (o->value) {
        buf_puts(b, ":");
        zsh_text(b, o->value);
        buf_puts(b, ":");
        zsh_action(b, o->type, o->choices);
    }
    buf_puts(b, "'");
}

static void zsh_options(struct buf *b, const struct command *c)
{
    char name[ARGS_NAME + 8];

    buf_puts(b, " \\\n        '(-h --help)'{-h,--help}'[explain this command]'");
    for (const struct args_option *o = c->options; o && o->name; o++) {
        if (o->flags & ARGS_HIDDEN)
            continue;
        snprintf(name, sizeof(name), "--%s", o->name);
        zsh_option(b, o, name);
        if (o->letter) {
            snprintf(name, sizeof(name), "-%c", o->letter);
            zsh_option(b, o, name);
        }
    }
}

static void zsh_words(struct buf *b, const struct command *c)
{
    for (const struct args_word *w = c->words; w && w->name; w++) {
        buf_printf(b, " \\\n        '%s:",
                   w->flags & ARGS_MANY       ? "*"
                   : w->flags & ARGS_OPTIONAL ? ":"
                                              : "");
        zsh_text(b, w->name);
        buf_puts(b, ":");
        zsh_action(b, w->type, w->choices);
        buf_puts(b, "'");
    }
}

/* A command with sub-commands: the first word chooses the function that completes the rest. */
static void zsh_subs(struct buf *b, const struct command *c, const char *path)
{
    buf_puts(b, " \\\n        '1:command:->command' '*::argument:->argument' && return\n"
                "    case $state in\n    command)\n        commands=(");
    for (const struct command *const *sub = c->subs; *sub; sub++) {
        if ((*sub)->flags & ARGS_HIDDEN)
            continue;
        buf_printf(b, "\n            '%s:", (*sub)->name);
        zsh_text(b, (*sub)->help);
        buf_puts(b, "'");
    }
    buf_puts(b, ")\n        _describe command commands ;;\n    argument)\n"
                "        case $words[1] in\n");
    for (const struct command *const *sub = c->subs; *sub; sub++) {
        AUTO(buf_free) struct buf name = { 0 };

        if ((*sub)->flags & ARGS_HIDDEN)
            continue;
        buf_printf(&name, "%s %s", path, (*sub)->name);
        buf_printf(b, "        %s) ", (*sub)->name);
        zsh_function(b, name.data);
        buf_puts(b, " ;;\n");
    }
    buf_puts(b, "        esac ;;\n    esac\n");
}

static void zsh_command(struct buf *b, const struct command *c, const char *path)
{
    zsh_function(b, path);
    buf_puts(b, "()\n{\n    local context state state_descr line\n    local -A opt_args\n"
                "    local -a commands\n    _arguments -s");
    if (c->subs)
        buf_puts(b, " -C");
    zsh_options(b, c);
    if (c->subs)
        zsh_subs(b, c, path);
    else
        zsh_words(b, c);
    buf_puts(b, c->subs ? "}\n\n" : "\n}\n\n");
}

static void write_zsh(struct buf *b)
{
    buf_puts(b, "#compdef cove\n# cove completion for zsh, made by `cove completion zsh`\n\n");
    each(b, &command_cove, command_cove.name, zsh_command);
    /* Loaded by compinit this file is the function's body; sourced by hand it must register. */
    buf_puts(b, "if [ \"$funcstack[1]\" = _cove ]; then\n    _cove \"$@\"\nelse\n"
                "    compdef _cove cove\nfi\n");
}

/* ---- fish: one line an option ---- */

static void fish_start(struct buf *b, const char *path)
{
    buf_printf(b, "complete -c cove -n '__cove_at %s'", path);
}

static void fish_value(struct buf *b, enum args_type type, const char *const *choices)
{
    if (type == ARGS_DIR)
        buf_puts(b, " -x -a '(__fish_complete_directories)'");
    else if (type == ARGS_FILE)
        buf_puts(b, " -r -F");
    else if (type == ARGS_CHOICE || type == ARGS_COMMAND) {
        buf_puts(b, " -x -a '");
        put_words(b, type, choices);
        buf_puts(b, "'");
    } else {
        buf_puts(b, " -x");
    }
}

static void fish_help(struct buf *b, const char *help)
{
    buf_puts(b, " -d '");
    for (; *help; help++)
        buf_printf(b, *help == '\'' || *help == '\\' ? "\\%c" : "%c", *help);
    buf_puts(b, "'\n");
}

/* Each condition is the whole path, so that options of one command are not offered for another. */
static void fish_command(struct buf *b, const struct command *c, const char *path)
{
    for (const struct command *const *sub = c->subs; sub && *sub; sub++) {
        if ((*sub)->flags & ARGS_HIDDEN)
            continue;
        fish_start(b, path);
        buf_printf(b, " -a %s", (*sub)->name);
        fish_help(b, (*sub)->help);
    }
    for (const struct args_option *o = c->options; o && o->name; o++) {
        if (o->flags & ARGS_HIDDEN)
            continue;
        fish_start(b, path);
        buf_printf(b, " -l %s", o->name);
        if (o->letter)
            buf_printf(b, " -s %c", o->letter);
        if (o->value)
            fish_value(b, o->type, o->choices);
        fish_help(b, o->help);
    }
    for (const struct args_word *w = c->words; w && w->name; w++) {
        fish_start(b, path);
        fish_value(b, w->type, w->choices);
        buf_putc(b, '\n');
    }
}

static void fish_path(struct buf *b, const struct command *c, const char *path)
{
    (void)c;
    if (strchr(path, ' '))
        buf_printf(b, " '%s'", path);
}

static void write_fish(struct buf *b)
{
    buf_puts(b, "# cove completion for fish, made by `cove completion fish`\n"
                "# __cove_at PATH...: the command line has come to this command\n"
                "function __cove_at\n"
                "    set -l path cove\n"
                "    for word in (commandline -opc)[2..-1]\n"
                "        contains -- \"$path $word\"");
    each(b, &command_cove, command_cove.name, fish_path);
    buf_puts(b, "\n        and set path \"$path $word\"\n"
                "    end\n"
                "    test \"$path\" = \"$argv\"\n"
                "end\n"
                "complete -c cove -f\n"
                "complete -c cove -s h -l help -d 'explain this command'\n");
    each(b, &command_cove, command_cove.name, fish_command);
}

static const char *const shells[] = { "bash", "zsh", "fish", NULL };
static void (*const writers[])(struct buf *) = { write_bash, write_zsh, write_fish };

static int run_completion(struct args *a)
{
    AUTO(buf_free) struct buf b = { 0 };

    for (size_t i = 0; shells[i]; i++)
        if (!strcmp(shells[i], a->words[0]))
            writers[i](&b);
    fputs(buf_cstr(&b), stdout);
    return 0;
}

static const struct args_word completion_words[] = {
    { "SHELL", "bash, zsh or fish", ARGS_CHOICE, .choices = shells }, {}
};

const struct command command_completion = {
    .name = "completion",
    .help = "print completion for a shell",
    .about = "Prints what makes a shell complete cove's commands and options. "
             "For this session alone: source <(cove completion bash)",
    .words = completion_words,
    .run = run_completion,
};
