/* args.h - the command line from tables: a command is a row, an option is a row. The parser, its
 * error sentences, the help, the man page and the shells' completion read the same rows, so they
 * cannot disagree.
 *
 *   struct run_options { int64_t memory_bytes; struct args_list env; };
 *   static const struct args_option run_options[] = {
 *       OPTION(struct run_options, memory_bytes, "memory", ARGS_SIZE, .letter = 'm',
 *              .value = "SIZE", .min = 16 << 20, .def = "512M", .help = "memory it may use"),
 *       OPTION(struct run_options, env, "env", ARGS_TEXT, .letter = 'e', .value = "NAME=VALUE",
 *              .flags = ARGS_REPEAT, .help = "set a variable inside"),
 *       {}
 *   };
 *
 * The C type of the member follows from the option's type, as enum args_type says. Parsing touches
 * nothing but its arguments: tests reach it without a fixture. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include "base/err.h"
#include "base/str.h"

enum args_type {
    ARGS_SWITCH,   /* bool; takes no value */
    ARGS_TEXT,     /* const char *, NULL when absent; with ARGS_REPEAT struct args_list */
    ARGS_FILE,     /* the same; shells complete a file's name */
    ARGS_DIR,      /* the same; shells complete a directory's name */
    ARGS_CHOICE,   /* the same, one of .choices */
    ARGS_COMMAND,  /* the same, for words only: the name of a command */
    ARGS_SIZE,     /* int64_t bytes: 4096, 64K, 512M, 1.5G, 2GiB; every unit is a power of 1024 */
    ARGS_CPUS,     /* int64_t thousandths of a processor: 2, 0.5 */
    ARGS_DURATION, /* int64_t seconds: 30, 30s, 5m, 2h, 1d */
    ARGS_COUNT,    /* int64_t */
    ARGS_TYPES
};

enum {
    ARGS_REPEAT = 1,   /* an option that may come more than once */
    ARGS_HIDDEN = 2,   /* an option or a command that help does not show */
    ARGS_ENDS = 4,     /* a switch after which nothing else matters, as with --version */
    ARGS_OPTIONAL = 8, /* a word that may be left out */
    ARGS_MANY = 16,    /* the last word: any number of them */
    ARGS_STOP = 32,    /* a command whose first word ends its options: the rest is not ours */
    ARGS_SECOND = 64,  /* the same for the second word */
};

struct args_list {
    size_t n;
    const char **items; /* and a NULL; the array is struct args's, the strings are argv's */
};

struct args_option {
    const char *name; /* without the dashes; NULL ends the table */
    char letter;      /* 0: none; 'h' is always --help */
    enum args_type type;
    const char *value; /* what help calls the value; NULL exactly for a switch */
    const char *help;
    unsigned flags;
    int64_t min, max;           /* of a number, in the type's unit; max 0: no upper bound */
    const char *def;            /* as a user would write it */
    const char *env;            /* a variable for who does not give it: see args_environment() */
    const char *const *choices; /* ends with NULL */
    size_t offset;
    /* Instead of the type's own reading: text to values, whose type is the command's struct. */
    int (*set)(void *values, const char *text, struct err *err);
};

#define OPTION(s, mem, n, t, ...)                                                                  \
    {                                                                                              \
        .name = (n), .type = (t), .offset = offsetof(s, mem), __VA_ARGS__                          \
    }

struct args_word {    /* an argument that is no option */
    const char *name; /* "FILE"; NULL ends the table */
    const char *help;
    enum args_type type; /* text, file, directory, choice or command */
    const char *const *choices;
    unsigned flags;
};

struct args_exit {      /* for the man page and the help */
    const char *status; /* "0", "125"; NULL ends the table */
    const char *meaning;
};

struct args;

struct command {
    const char *name;
    const char *help;  /* one line */
    const char *about; /* paragraphs, an empty line between them; NULL: help says it all */
    const char *tail;  /* of the usage line, behind the options; NULL: made from .words */
    const struct args_option *options;
    size_t size; /* of the struct that the options fill */
    const struct args_word *words;
    const struct command *const *subs; /* ends with NULL; a command with subs has no words */
    const struct args_exit *exits;
    int usage_status; /* of a wrong command line; 0 stands for 2 */
    unsigned flags;
    int (*run)(struct args *a); /* returns the exit status; NULL: a sub-command is needed */
};

enum { ARGS_PATH = 64, ARGS_OPTIONS = 64, ARGS_NAME = 32 };

struct args {
    const struct command *command; /* the innermost one that was named */
    char path[ARGS_PATH];          /* "cove template add": how messages begin */
    void *values;                  /* the command's struct: read, bounded, defaulted */
    size_t n;
    char **words;   /* n of them and a NULL, borrowed from argv: fit for execv */
    bool help;      /* --help was there: print that instead of running */
    uint64_t given; /* which rows of .options were there */
};

/* Also after -1 path and command are set, and args_free() is due. */
int args_parse(struct args *a, const struct command *root, int argc, char **argv, struct err *err);
void args_free(struct args *a);
bool args_given(const struct args *a, const char *name); /* the user gave it: no default */
/* Options that were not given take the value of their variable, where that is set and not empty. */
int args_environment(struct args *a, struct err *err);
int args_usage_status(const struct args *a);
int args_fail(const struct args *a, int status, const struct err *err); /* says it; is status */

/* The sub-command of c with that name; NULL with err, which names the nearest one. */
const struct command *args_sub(const struct command *c, const char *name, struct err *err);

/* The name most like text, or NULL when none is like it. names are the members of an array of
 * records of step bytes, up to a NULL. */
const char *args_nearest(struct str text, const char *const *names, size_t step);

/* Sets the member of values that o describes. The error does not name the option. */
int args_value(const struct args_option *o, const char *text, void *values, struct err *err);
bool args_is_number(enum args_type type);
/* "16M to 4G, default 512M, or COVE_X"; nothing where the row has none of them. */
void args_bounds(const struct args_option *o, char *out, size_t n);

/* -1: not such a value, or beyond what int64_t holds. */
int args_size(struct str text, int64_t *bytes);
int args_cpus(struct str text, int64_t *thousandths);
int args_duration(struct str text, int64_t *seconds);
void args_print_size(int64_t bytes, char *out, size_t n); /* in the largest unit that is exact */

#endif
