/* args.c - from argv to a command, its values and its words.
 *
 * Not getopt_long: it cannot say which value was wrong or which name was meant, accepts
 * abbreviations that a later option makes ambiguous, and keeps its state in globals. */
#include "cli/args.h"

#include <stdlib.h>
#include <strings.h>

#include "base/mem.h"

struct cursor {
    char **argv;
    int argc, at;
    bool words_only; /* behind "--", or behind the word that ends them (ARGS_STOP) */
};

/* The distance of optimal string alignment: one letter more, less, other, or two swapped. */
static size_t distance(struct str a, const char *b)
{
    unsigned char d[ARGS_NAME + 1][ARGS_NAME + 1];
    size_t m = a.n, n = strlen(b);

    if (m > ARGS_NAME || n > ARGS_NAME)
        return ARGS_NAME;
    for (size_t i = 0; i <= m; i++)
        d[i][0] = (unsigned char)i;
    for (size_t j = 0; j <= n; j++)
        d[0][j] = (unsigned char)j;
    for (size_t i = 1; i <= m; i++)
        for (size_t j = 1; j <= n; j++) {
            bool same = a.p[i - 1] == b[j - 1];
            bool swapped = i > 1 && j > 1 && a.p[i - 1] == b[j - 2] && a.p[i - 2] == b[j - 1];
            int best = MIN(d[i - 1][j], d[i][j - 1]) + 1;

            best = MIN(best, d[i - 1][j - 1] + !same);
            if (swapped)
                best = MIN(best, d[i - 2][j - 2] + 1);
            d[i][j] = (unsigned char)best;
        }
    return d[m][n];
}

const char *args_nearest(struct str text, const char *const *names, size_t step)
{
    size_t best = MAX(text.n / 3, (size_t)1) + 1; /* up to a third of the letters may be wrong */
    const char *found = NULL;

    for (; *names; names = (const void *)((const char *)names + step)) {
        size_t n = distance(text, *names);

        if (text.n >= 3 && !strncmp(*names, text.p, text.n))
            n = 0; /* the beginning of the name: as others' abbreviations are */
        if (n < best && n < text.n)
            best = n, found = *names;
    }
    return found;
}

static const struct args_option *find_long(const struct command *c, struct str name)
{
    for (const struct args_option *o = c->options; o && o->name; o++)
        if (str_is(name, o->name))
            return o;
    return NULL;
}

static const struct args_option *find_letter(const struct command *c, char letter)
{
    for (const struct args_option *o = c->options; o && o->name; o++)
        if (o->letter && o->letter == letter)
            return o;
    return NULL;
}

static int unknown_option(const struct command *c, struct str name, struct err *err)
{
    static const struct args_option none[] = { {} };
    const struct args_option *rows = c->options ? c->options : none;
    const char *meant = args_nearest(name, &rows->name, sizeof(*rows));
    const struct args_option *o = meant ? find_long(c, str_of(meant)) : NULL;

    if (o && !(o->flags & ARGS_HIDDEN))
        return err_set(err, ERR_INVALID, "there is no option --%.*s (did you mean --%s?)",
                       (int)MIN(name.n, (size_t)60), name.p, meant);
    return err_set(err, ERR_INVALID, "there is no option --%.*s (--help lists them)",
                   (int)MIN(name.n, (size_t)60), name.p);
}

/* text NULL for a switch. */
static int give(struct args *a, const struct args_option *o, const char *text, struct err *err)
{
    uint64_t bit = (uint64_t)1 << (o - a->command->options);

    /* Two values for one thing are a mistake in a script; the later one is not what both meant. */
    if (o->value && !(o->flags & ARGS_REPEAT) && a->given & bit)
        return err_set(err, ERR_INVALID, "is there twice");
    a->given |= bit;
    return args_value(o, text, a->values, err);
}

/* Whatever it looks like: a value may begin with a dash, as with getopt. */
static const char *next_argument(struct cursor *c)
{
    return c->at < c->argc ? c->argv[c->at++] : NULL;
}

/* --help is here and not in the tables: every command has it. */
static int take_long(struct args *a, struct cursor *c, const char *argument, struct err *err)
{
    struct str name, rest;
    bool attached = str_cut(str_of(argument), '=', &name, &rest);
    const struct args_option *o = find_long(a->command, name);
    const char *text = NULL;

    if (str_is(name, "help") && !attached) {
        a->help = true;
        return 1;
    }
    if (!o)
        return unknown_option(a->command, name, err);
    if (attached && !o->value)
        return err_set(err, ERR_INVALID, "--%s takes no value", o->name);
    if (o->value)
        text = attached ? rest.p : next_argument(c);
    if (o->value && !text)
        return err_set(err, ERR_INVALID, "--%s needs a value: %s", o->name, o->value);
    if (give(a, o, text, err))
        return err_in(err, "--%s", o->name);
    return o->flags & ARGS_ENDS ? 1 : 0;
}

/* "-j", "-jd DIR", "-dDIR" */
static int take_letters(struct args *a, struct cursor *c, const char *letters, struct err *err)
{
    for (; *letters; letters++) {
        const struct args_option *o = find_letter(a->command, *letters);
        const char *text = NULL;

        if (*letters == 'h') {
            a->help = true;
            return 1;
        }
        if (!o)
            return err_set(err, ERR_INVALID, "there is no option -%c (--help lists them)",
                           *letters);
        if (o->value)
            text = letters[1] ? letters + 1 : next_argument(c);
        if (o->value && !text)
            return err_set(err, ERR_INVALID, "-%c needs a value: %s", o->letter, o->value);
        if (give(a, o, text, err))
            return err_in(err, "-%c", o->letter);
        if (o->flags & ARGS_ENDS)
            return 1;
        if (o->value)
            return 0;
    }
    return 0;
}

static const char *const yes[] = { "1", "true", "yes", "on", NULL };
static const char *const no[] = { "0", "false", "no", "off", NULL };

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (!strcasecmp(text, *words))
            return true;
    return false;
}

static int take_variable(struct args *a, const struct args_option *o, const char *text,
                         struct err *err)
{
    if (o->type != ARGS_SWITCH)
        return args_value(o, text, a->values, err);
    if (is_one_of(text, no))
        return 0;
    if (!is_one_of(text, yes))
        return err_set(err, ERR_INVALID, "'%.60s' is neither true nor false", text);
    return args_value(o, NULL, a->values, err);
}

int args_environment(struct args *a, struct err *err)
{
    for (const struct args_option *o = a->command->options; o && o->name; o++) {
        const char *text = o->env ? getenv(o->env) : NULL;

        if (!text || !*text || args_given(a, o->name))
            continue;
        if (take_variable(a, o, text, err))
            return err_in(err, "%s", o->env);
    }
    return 0;
}

static void drop_values(struct args *a)
{
    const struct command *c = a->command;

    for (const struct args_option *o = c ? c->options : NULL; o && o->name; o++)
        if (o->flags & ARGS_REPEAT && !o->set)
            free(((struct args_list *)(void *)((char *)a->values + o->offset))->items);
    free(a->values);
    a->values = NULL;
}

/* Options belong to the command they follow: what the one before was given is dropped. */
static void enter(struct args *a, const struct command *c)
{
    size_t n = strlen(a->path);
    struct err err;

    snprintf(a->path + n, sizeof(a->path) - n, "%s%s", n ? " " : "", c->name);
    drop_values(a);
    a->command = c;
    a->given = 0;
    a->values = xcalloc(1, MAX(c->size, (size_t)1));
    for (const struct args_option *o = c->options; o && o->name; o++)
        if (o->def && args_value(o, o->def, a->values, &err))
            abort(); /* our own table is wrong; test_args reads every row */
}

const struct command *args_sub(const struct command *c, const char *name, struct err *err)
{
    const char *names[ARGS_OPTIONS + 1] = { NULL };
    const char *meant;
    size_t n = 0;

    for (const struct command *const *sub = c->subs; sub && *sub; sub++) {
        if (!strcmp((*sub)->name, name))
            return *sub;
        if (!((*sub)->flags & ARGS_HIDDEN) && n < ARGS_OPTIONS)
            names[n++] = (*sub)->name;
    }
    meant = args_nearest(str_of(name), names, sizeof(*names));
    if (meant)
        err_set(err, ERR_INVALID, "there is no command '%.60s' (did you mean '%s'?)", name, meant);
    else
        err_set(err, ERR_INVALID, "there is no command '%.60s' (--help lists them)", name);
    return NULL;
}

static int check_words(const struct args *a, struct err *err)
{
    const struct args_word *w = a->command->words;
    size_t i = 0;

    if (!a->command->run)
        return err_set(err, ERR_INVALID, "a command is missing (--help lists them)");
    for (; w && w->name; w++) {
        if (i == a->n && !(w->flags & ARGS_OPTIONAL))
            return err_set(err, ERR_INVALID, "%s is missing (see --help)", w->name);
        for (; i < a->n; i++) {
            struct args_option o = { .type = w->type, .choices = w->choices };
            const char *unused;

            if (w->type == ARGS_CHOICE && args_value(&o, a->words[i], (void *)&unused, err))
                return err_in(err, "%s", w->name);
            if (!(w->flags & ARGS_MANY)) {
                i++;
                break;
            }
        }
    }
    if (i < a->n)
        return err_set(err, ERR_INVALID, "unexpected argument '%.60s' (see --help)", a->words[i]);
    return 0;
}

static int take(struct args *a, struct cursor *c, struct err *err)
{
    char *argument = c->argv[c->at++];

    if (!c->words_only && !strcmp(argument, "--")) {
        c->words_only = true;
        return 0;
    }
    if (!c->words_only && argument[0] == '-' && argument[1])
        return argument[1] == '-' ? take_long(a, c, argument + 2, err)
                                  : take_letters(a, c, argument + 1, err);
    if (a->command->subs) {
        const struct command *sub = args_sub(a->command, argument, err);

        if (!sub)
            return -1;
        enter(a, sub);
        c->words_only = false;
        return 0;
    }
    a->words[a->n++] = argument;
    if (a->command->flags & ARGS_STOP || (a->command->flags & ARGS_SECOND && a->n == 2))
        c->words_only = true;
    return 0;
}

int args_parse(struct args *a, const struct command *root, int argc, char **argv, struct err *err)
{
    struct cursor c = { .argv = argv, .argc = argc, .at = 1 };
    int r;

    *a = (struct args){ .words = xcalloc((size_t)MAX(argc, 1) + 1, sizeof(*a->words)) };
    enter(a, root);
    while (c.at < argc) {
        r = take(a, &c, err);
        if (r)
            return r < 0 ? -1 : 0; /* 1: --help or the like, nothing else matters */
    }
    return check_words(a, err);
}

void args_free(struct args *a)
{
    if (a->values)
        drop_values(a);
    free(a->words);
    a->words = NULL;
}

bool args_given(const struct args *a, const char *name)
{
    const struct args_option *o = find_long(a->command, str_of(name));

    return o && a->given & (uint64_t)1 << (o - a->command->options);
}

int args_usage_status(const struct args *a)
{
    return a->command->usage_status ? a->command->usage_status : 2;
}

int args_fail(const struct args *a, int status, const struct err *err)
{
    char text[sizeof(err->msg)];

    memcpy(text, err->msg, sizeof(text));
    for (char *p = text; *p; p++) /* it may quote what a stranger wrote, and a terminal obeys */
        if ((unsigned char)*p < ' ' || *p == 127)
            *p = '?';
    fprintf(stderr, "%s: %s\n", a->path, text);
    return status;
}
