/* test_args.c - the command line from tables: values, options, words, sub-commands, and that every
 * row of the real table is one that the parser, the help and the man page can use. */
#include "cli/args.h"

#include "base/buf.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/mountinfo.h"
#include "test.h"

struct run_values {
    int64_t memory, cpus, timeout, pids;
    bool interactive, quiet;
    const char *name, *network;
    struct args_list env;
    int doubled;
};

static int set_doubled(void *values, const char *text, struct err *err)
{
    struct run_values *v = values;
    uint64_t n;

    if (str_u64(str_of(text), &n) || n > 100)
        return err_set(err, ERR_INVALID, "'%s' cannot be doubled", text);
    v->doubled = 2 * (int)n;
    return 0;
}

static const char *const networks[] = { "none", "open", NULL };

static const struct args_option run_options[] = {
    OPTION(struct run_values, memory, "memory", ARGS_SIZE, .letter = 'm', .value = "SIZE",
           .min = 16 << 20, .max = (int64_t)64 << 30, .def = "512M", .help = "memory it may use"),
    OPTION(struct run_values, cpus, "cpus", ARGS_CPUS, .value = "N", .min = 10,
           .help = "processors"),
    OPTION(struct run_values, timeout, "timeout", ARGS_DURATION, .letter = 't', .value = "TIME",
           .max = 86400, .help = "end it after this long"),
    OPTION(struct run_values, pids, "pids", ARGS_COUNT, .value = "N", .help = "processes"),
    OPTION(struct run_values, interactive, "interactive", ARGS_SWITCH, .letter = 'i', .help = "i"),
    OPTION(struct run_values, quiet, "quiet", ARGS_SWITCH, .letter = 'q', .help = "say less"),
    OPTION(struct run_values, name, "name", ARGS_TEXT, .letter = 'n', .value = "NAME", .help = "n"),
    OPTION(struct run_values, network, "network", ARGS_CHOICE, .value = "KIND", .choices = networks,
           .def = "none", .help = "its network"),
    OPTION(struct run_values, env, "env", ARGS_TEXT, .letter = 'e', .value = "NAME=VALUE",
           .flags = ARGS_REPEAT, .help = "set a variable"),
    { .name = "doubled",
      .type = ARGS_TEXT,
      .value = "N",
      .set = set_doubled,
      .help = "a setter",
      .flags = ARGS_HIDDEN },
    {}
};

static int run_nothing(struct args *a)
{
    (void)a;
    return 0;
}

static const struct args_word run_words[] = { { "COMMAND", "what to run", .flags = ARGS_OPTIONAL },
                                              { "ARGUMENT", "its arguments",
                                                .flags = ARGS_OPTIONAL | ARGS_MANY },
                                              {} };
static const struct command run = {
    .name = "run",
    .help = "run it",
    .options = run_options,
    .size = sizeof(struct run_values),
    .words = run_words,
    .usage_status = 125,
    .flags = ARGS_STOP,
    .run = run_nothing,
};
static const struct args_word add_words[] = { { "NAME", "its name" }, { "FILE", "from" }, {} };
static const struct command template_add = {
    .name = "add",
    .help = "add one",
    .options = run_options,
    .size = sizeof(struct run_values),
    .words = add_words,
    .run = run_nothing,
};
static const struct args_word kind_words[] = { { "KIND", "one of two", ARGS_CHOICE, networks },
                                               {} };
static const struct command template_kind = {
    .name = "kind",
    .help = "choose",
    .words = kind_words,
    .run = run_nothing,
};
static const struct args_word exec_words[] = { { "ID", "where" },
                                               { "COMMAND", "what to run" },
                                               { "ARGUMENT", "its arguments",
                                                 .flags = ARGS_OPTIONAL | ARGS_MANY },
                                               {} };
static const struct command exec_in = {
    .name = "exec",
    .help = "run it there",
    .options = run_options,
    .size = sizeof(struct run_values),
    .words = exec_words,
    .flags = ARGS_SECOND,
    .run = run_nothing,
};
static const struct command *const template_subs[] = { &template_add, &template_kind, NULL };
static const struct command template = { .name = "template", .help = "t", .subs = template_subs };
static const struct command *const subs[] = { &run, &template, &exec_in, NULL };
static const struct args_option root_options[] = {
    OPTION(struct run_values, quiet, "version", ARGS_SWITCH, .flags = ARGS_ENDS, .help = "v"), {}
};
static const struct command root = {
    .name = "cove",
    .help = "h",
    .options = root_options,
    .size = sizeof(struct run_values),
    .subs = subs,
    .run = run_nothing,
};

static struct args a;
static struct err err;

/* Parses "cove" and these words; args_free() of the one before. */
static int parse_(const char *const *words)
{
    static char *argv[64];
    int argc = 0;

    args_free(&a);
    argv[argc++] = (char[]){ "cove" };
    for (; *words; words++)
        argv[argc++] = (char *)(uintptr_t)*words;
    argv[argc] = NULL;
    err = (struct err){ 0 };
    return args_parse(&a, &root, argc, argv, &err);
}
#define parse(...) parse_((const char *const[]){ __VA_ARGS__, NULL })
#define VALUES     ((const struct run_values *)a.values)

TEST(sizes_are_powers_of_1024_in_every_spelling)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {
        { "0", 0 },
        { "4096", 4096 },
        { "4096B", 4096 },
        { "1K", 1024 },
        { "1k", 1024 },
        { "1KB", 1024 },
        { "1KiB", 1024 },
        { "1kib", 1024 },
        { "512M", 512 << 20 },
        { "1.5G", 3LL << 29 },
        { "0.5K", 512 },
        { ".5K", 512 },
        { "2T", 2LL << 40 },
        { "8388607T", 8388607LL << 40 },
    };
    static const char *const bad[] = { "",
                                       "K",
                                       "12Q",
                                       "-1",
                                       "1.5",
                                       "1.K",
                                       "1 K",
                                       "1e3",
                                       "1.B",
                                       "1KK",
                                       "0x1",
                                       "+1",
                                       "1iB",
                                       "1.0001K",
                                       " 1",
                                       "1K ",
                                       "8388608T",
                                       "99999999999999999999",
                                       "9223372036854775808" };
    int64_t v;

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        v = -1;
        CHECK_INT(args_size(str_of(good[i].text), &v), 0);
        CHECK_INT(v, good[i].bytes);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (!args_size(str_of(bad[i]), &v))
            test_fail(__FILE__, __LINE__, "'%s' was taken as %lld", bad[i], (long long)v);
}

TEST(processors_are_counted_in_thousandths)
{
    int64_t v;

    CHECK_INT(args_cpus(str_of("1.5"), &v), 0);
    CHECK_INT(v, 1500);
    CHECK_INT(args_cpus(str_of("0.001"), &v), 0);
    CHECK_INT(v, 1);
    CHECK_INT(args_cpus(str_of("2"), &v), 0);
    CHECK_INT(v, 2000);
    CHECK_INT(args_cpus(str_of("0.0005"), &v), -1);
    CHECK_INT(args_cpus(str_of("2c"), &v), -1);
    CHECK_INT(args_cpus(str_of("1."), &v), -1);
    CHECK_INT(args_cpus(str_of("9223372036854775807"), &v), -1);
}

TEST(durations_are_seconds_unless_a_letter_says_otherwise)
{
    static const struct {
        const char *text;
        int64_t seconds;
    } good[] = { { "30", 30 },    { "30s", 30 },  { "5m", 300 },   { "2h", 7200 },
                 { "1d", 86400 }, { "1.5m", 90 }, { "0.5h", 1800 } };
    static const char *const bad[] = { "",    "s",    "5 m", "5ms",   "5M",
                                       "0.5", "0.5s", "-1",  "1h30m", "9223372036854775807h" };
    int64_t v;

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        CHECK_INT(args_duration(str_of(good[i].text), &v), 0);
        CHECK_INT(v, good[i].seconds);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (!args_duration(str_of(bad[i]), &v))
            test_fail(__FILE__, __LINE__, "'%s' was taken as %lld", bad[i], (long long)v);
}

TEST(a_size_is_printed_in_the_largest_unit_that_is_exact)
{
    char text[32];

    args_print_size(512 << 20, text, sizeof(text));
    CHECK_STR(text, "512M");
    args_print_size((3 << 20) / 2, text, sizeof(text));
    CHECK_STR(text, "1536K");
    args_print_size(1000, text, sizeof(text));
    CHECK_STR(text, "1000");
    args_print_size(0, text, sizeof(text));
    CHECK_STR(text, "0");
    args_print_size(2048LL << 40, text, sizeof(text));
    CHECK_STR(text, "2048T");
}

TEST(options_come_in_four_spellings)
{
    CHECK_INT(parse("run", "--memory", "1G", "--name=a=b", "-t", "5m", "-eA=1", "-iq", "-e", "B="),
              0);
    CHECK_STR(a.path, "cove run");
    CHECK_INT(VALUES->memory, 1 << 30);
    CHECK_STR(VALUES->name, "a=b");
    CHECK_INT(VALUES->timeout, 300);
    CHECK(VALUES->interactive && VALUES->quiet);
    CHECK_INT(VALUES->env.n, 2);
    CHECK_STR(VALUES->env.items[0], "A=1");
    CHECK_STR(VALUES->env.items[1], "B=");
}

TEST(letters_share_a_dash_and_the_last_may_have_a_value)
{
    CHECK_INT(parse("run", "-iqm1G"), 0);
    CHECK(VALUES->interactive && VALUES->quiet);
    CHECK_INT(VALUES->memory, 1 << 30);
    CHECK_INT(parse("run", "-im", "2G"), 0);
    CHECK_INT(VALUES->memory, 2LL << 30);
    CHECK_INT(parse("run", "-ix"), -1);
    CHECK_STR(err.msg, "there is no option -x (--help lists them)");
    CHECK_INT(parse("run", "-im"), -1);
    CHECK_STR(err.msg, "-m needs a value: SIZE");
}

TEST(an_absent_option_has_its_default)
{
    CHECK_INT(parse("run"), 0);
    CHECK_INT(VALUES->memory, 512 << 20);
    CHECK_STR(VALUES->network, "none");
    CHECK(!VALUES->name && !VALUES->env.n && !VALUES->cpus);
    CHECK(!args_given(&a, "memory"));
    CHECK_INT(parse("run", "--memory=512M"), 0);
    CHECK(args_given(&a, "memory"));
    CHECK(!args_given(&a, "nothing"));
}

TEST(a_wrong_value_is_named_with_an_example)
{
    CHECK_INT(parse("run", "--memory", "12Q"), -1);
    CHECK_STR(a.path, "cove run");
    CHECK_STR(err.msg, "--memory: '12Q' is not a size (try 512M, 2G)");
    CHECK_INT(parse("run", "-m12Q"), -1);
    CHECK_STR(err.msg, "-m: '12Q' is not a size (try 512M, 2G)");
    CHECK_INT(parse("run", "--cpus=two"), -1);
    CHECK_STR(err.msg, "--cpus: 'two' is not a number of processors (try 0.5, 2)");
    CHECK_INT(parse("run", "--timeout=1y"), -1);
    CHECK_STR(err.msg, "--timeout: '1y' is not a duration (try 30s, 5m, 2h)");
    CHECK_INT(parse("run", "--pids=-1"), -1);
    CHECK_STR(err.msg, "--pids: '-1' is not a number (try 10)");
    CHECK_INT(parse("run", "--network", "lan"), -1);
    CHECK_STR(err.msg, "--network: 'lan' is not one of none, open");
    CHECK_INT(parse("run", "--memory="), -1);
    CHECK_STR(err.msg, "--memory: '' is not a size (try 512M, 2G)");
}

TEST(a_value_beyond_its_bounds_is_told_the_bound)
{
    CHECK_INT(parse("run", "--memory=1M"), -1);
    CHECK_STR(err.msg, "--memory: '1M' is too small: at least 16M");
    CHECK_INT(parse("run", "--memory=65G"), -1);
    CHECK_STR(err.msg, "--memory: '65G' is too large: at most 64G");
    CHECK_INT(parse("run", "--cpus=0.001"), -1);
    CHECK_STR(err.msg, "--cpus: '0.001' is too small: at least 0.01");
    CHECK_INT(parse("run", "--timeout=25h"), -1);
    CHECK_STR(err.msg, "--timeout: '25h' is too large: at most 1d");
    CHECK_INT(parse("run", "--memory=16M", "--timeout=1d"), 0);
}

TEST(a_setter_reads_what_no_type_does)
{
    CHECK_INT(parse("run", "--doubled", "21"), 0);
    CHECK_INT(VALUES->doubled, 42);
    CHECK_INT(parse("run", "--doubled", "x"), -1);
    CHECK_STR(err.msg, "--doubled: 'x' cannot be doubled");
}

TEST(an_unknown_option_is_told_the_nearest)
{
    CHECK_INT(parse("run", "--memroy", "1G"), -1);
    CHECK_STR(err.msg, "there is no option --memroy (did you mean --memory?)");
    CHECK_INT(parse("run", "--inter"), -1);
    CHECK_STR(err.msg, "there is no option --inter (did you mean --interactive?)");
    CHECK_INT(parse("run", "--colour"), -1);
    CHECK_STR(err.msg, "there is no option --colour (--help lists them)");
    CHECK_INT(parse("run", "--doubledd"), -1); /* a hidden one is no suggestion */
    CHECK_STR(err.msg, "there is no option --doubledd (--help lists them)");
    CHECK_INT(parse("template", "kind", "--verbose"), -1); /* a command without options */
    CHECK_STR(err.msg, "there is no option --verbose (--help lists them)");
}

TEST(the_nearest_name_is_a_third_of_the_letters_away_at_most)
{
    static const char *const names[] = { "run", "doctor", "template", NULL };

    CHECK_STR(args_nearest(str_of("rnu"), names, sizeof(*names)), "run");
    CHECK_STR(args_nearest(str_of("docter"), names, sizeof(*names)), "doctor");
    CHECK_STR(args_nearest(str_of("tmeplate"), names, sizeof(*names)), "template");
    CHECK_STR(args_nearest(str_of("temp"), names, sizeof(*names)), "template");
    CHECK(!args_nearest(str_of("r"), names, sizeof(*names)));
    CHECK(!args_nearest(str_of(""), names, sizeof(*names)));
    CHECK(!args_nearest(str_of("foo"), names, sizeof(*names)));
    CHECK(!args_nearest(str_of("a-name-that-is-far-longer-than-any-of-ours-is"), names,
                        sizeof(*names)));
}

TEST(a_value_twice_is_a_mistake_but_a_switch_is_not)
{
    CHECK_INT(parse("run", "--memory=1G", "-m", "2G"), -1);
    CHECK_STR(err.msg, "-m: is there twice");
    CHECK_INT(parse("run", "-q", "--quiet"), 0);
}

TEST(a_missing_or_needless_value_is_named)
{
    CHECK_INT(parse("run", "--name"), -1);
    CHECK_STR(err.msg, "--name needs a value: NAME");
    CHECK_INT(parse("run", "--quiet=yes"), -1);
    CHECK_STR(err.msg, "--quiet takes no value");
}

TEST(the_first_word_of_run_ends_its_options)
{
    CHECK_INT(parse("run", "-q", "ls", "-l", "--memory", "--", "x"), 0);
    CHECK_INT(a.n, 5);
    CHECK_STR(a.words[0], "ls");
    CHECK_STR(a.words[1], "-l");
    CHECK_STR(a.words[3], "--");
    CHECK(!a.words[5]);
    CHECK_INT(parse("run", "--", "-l", "--help"), 0);
    CHECK(!a.help);
    CHECK_INT(a.n, 2);
    CHECK_STR(a.words[0], "-l");
    CHECK_INT(parse("run", "-"), 0); /* a word, as everywhere */
    CHECK_STR(a.words[0], "-");
}

TEST(the_second_word_of_exec_ends_its_options)
{
    CHECK_INT(parse("exec", "i1", "-q", "ls", "-l", "--", "x"), 0);
    CHECK(VALUES->quiet);
    CHECK_INT(a.n, 5);
    CHECK_STR(a.words[0], "i1");
    CHECK_STR(a.words[2], "-l");
    CHECK_STR(a.words[3], "--");
    CHECK_INT(parse("exec", "-q", "i1", "--", "-l", "--help"), 0);
    CHECK(VALUES->quiet && !a.help);
    CHECK_INT(a.n, 3);
    CHECK_STR(a.words[1], "-l");
    CHECK_INT(parse("exec", "i1"), -1);
    CHECK_STR(err.msg, "COMMAND is missing (see --help)");
}

TEST(elsewhere_options_and_words_mix)
{
    CHECK_INT(parse("template", "add", "one", "--memory=1G", "file"), 0);
    CHECK_STR(a.path, "cove template add");
    CHECK_INT(a.n, 2);
    CHECK_STR(a.words[1], "file");
    CHECK_INT(VALUES->memory, 1 << 30);
    CHECK_INT(parse("template", "add", "one", "--", "--memory"), 0);
    CHECK_STR(a.words[1], "--memory");
}

TEST(words_are_counted_and_chosen)
{
    CHECK_INT(parse("template", "add", "one"), -1);
    CHECK_STR(err.msg, "FILE is missing (see --help)");
    CHECK_INT(parse("template", "add", "one", "two", "three"), -1);
    CHECK_STR(err.msg, "unexpected argument 'three' (see --help)");
    CHECK_INT(parse("template", "kind", "open"), 0);
    CHECK_INT(parse("template", "kind", "shut"), -1);
    CHECK_STR(err.msg, "KIND: 'shut' is not one of none, open");
}

TEST(a_command_that_needs_a_sub_command_says_so)
{
    CHECK_INT(parse("template"), -1);
    CHECK_STR(a.path, "cove template");
    CHECK_STR(err.msg, "a command is missing (--help lists them)");
    CHECK_INT(parse("template", "ad"), -1);
    CHECK_STR(err.msg, "there is no command 'ad' (did you mean 'add'?)");
    CHECK_INT(parse("rnu"), -1);
    CHECK_STR(err.msg, "there is no command 'rnu' (did you mean 'run'?)");
    CHECK_INT(parse("--memory", "run"), -1); /* the program itself has other options */
    CHECK_STR(a.path, "cove");
}

TEST(help_and_version_end_the_parsing)
{
    CHECK_INT(parse("run", "--help", "--nonsense"), 0);
    CHECK(a.help);
    CHECK_STR(a.path, "cove run");
    CHECK_INT(parse("template", "add", "-qh"), 0);
    CHECK(a.help);
    CHECK_INT(parse("template", "--help"), 0);
    CHECK(a.help);
    CHECK_INT(parse("--version", "nonsense"), 0);
    CHECK_STR(a.path, "cove");
    CHECK(VALUES->quiet);
}

TEST(usage_errors_have_the_status_of_their_command)
{
    CHECK_INT(parse("run", "--nonsense"), -1);
    CHECK_INT(args_usage_status(&a), 125);
    CHECK_INT(parse("template", "add"), -1);
    CHECK_INT(args_usage_status(&a), 2);
    CHECK_INT(parse("nonsense"), -1);
    CHECK_INT(args_usage_status(&a), 2);
}

TEST(an_empty_argv_is_the_program_alone)
{
    char *argv[] = { NULL };

    args_free(&a);
    CHECK_INT(args_parse(&a, &root, 0, argv, &err), 0);
    CHECK_STR(a.path, "cove");
    CHECK_INT(a.n, 0);
    args_free(&a);
}

TEST(the_help_shows_bounds_and_defaults_from_the_rows)
{
    struct buf b = { 0 };

    help_write(&b, &run, "cove run", false);
    CHECK(strstr(b.data, "usage: cove run [options] [COMMAND] [ARGUMENT...]\n"));
    CHECK(strstr(b.data,
                 "  -m, --memory SIZE           memory it may use (16M to 64G, default 512M)\n"));
    CHECK(strstr(b.data,
                 "  -e, --env NAME=VALUE        set a variable (may be given more than once)\n"));
    CHECK(!strstr(b.data, "doubled"));
    CHECK(!strchr(b.data, '\033'));
    b.len = 0;
    help_write(&b, &run, "cove run", true);
    CHECK(strstr(b.data, "\033[1moptions:\033[m\n"));
    buf_free(&b);
}

/* ---- the real table ---- */

static void check_option(const struct command *c, const struct args_option *o)
{
    bool list = o->flags & ARGS_REPEAT && !o->set;

    CHECK(o->help && o->help[0]);
    CHECK(strlen(o->name) <= ARGS_NAME);
    CHECK(o->letter != 'h' && strcmp(o->name, "help") != 0);
    CHECK((o->value == NULL) == (o->type == ARGS_SWITCH));
    CHECK((o->choices != NULL) == (o->type == ARGS_CHOICE));
    CHECK(o->offset < c->size || o->set);
    CHECK(!list || (!args_is_number(o->type) && !o->def));
    CHECK(o->type != ARGS_COMMAND);
    CHECK(!o->max || o->max >= o->min);
    for (const struct args_option *other = c->options; other < o; other++) {
        CHECK(strcmp(other->name, o->name) != 0);
        CHECK(!o->letter || other->letter != o->letter);
    }
}

static void check_command(const struct command *c, size_t length)
{
    size_t n = 0;

    CHECK(c->name && c->help && c->help[0]);
    CHECK(length + strlen(c->name) + 2 < ARGS_PATH);
    CHECK(c->run || c->subs);
    CHECK(!c->subs || !c->words);
    for (const struct args_option *o = c->options; o && o->name; o++, n++)
        check_option(c, o);
    CHECK(n <= ARGS_OPTIONS);
    for (const struct args_word *w = c->words; w && w->name; w++) {
        CHECK(w->help && w->help[0]);
        CHECK((w->choices != NULL) == (w->type == ARGS_CHOICE));
        CHECK(!(w->flags & ARGS_MANY) || !w[1].name);
    }
    for (const struct command *const *sub = c->subs; sub && *sub; sub++)
        check_command(*sub, length + strlen(c->name) + 1);
}

static void check_defaults(const struct command *c)
{
    static char room[4096];

    CHECK(c->size <= sizeof(room));
    for (const struct args_option *o = c->options; o && o->name; o++)
        CHECK(!o->def || !args_value(o, o->def, room, &err));
    for (const struct command *const *sub = c->subs; sub && *sub; sub++)
        check_defaults(*sub);
}

TEST(every_row_of_the_real_table_is_whole)
{
    check_command(&command_cove, 0);
    check_defaults(&command_cove);
}

/* ---- mountinfo, which doctor reads ---- */

TEST(a_line_of_mountinfo_is_taken_apart)
{
    char line[] = "36 35 98:0 /mnt\\0401 /mnt2\\134x rw,noatime master:1 shared:2 - ext3 /dev/root "
                  "rw,errors=continue\n";
    struct mountinfo m;

    CHECK(mountinfo_parse(line, &m));
    CHECK_STR(m.root, "/mnt 1");
    CHECK_STR(m.point, "/mnt2\\x");
    CHECK_STR(m.type, "ext3");
    CHECK_STR(m.options, "rw,errors=continue");
    CHECK(mountinfo_has(&m, "rw"));
    CHECK(mountinfo_has(&m, "errors=continue"));
    CHECK(!mountinfo_has(&m, "errors"));
}

TEST(a_line_that_is_no_mount_is_passed_over)
{
    static const char *const bad[] = { "", "1 2 3", "36 35 98:0 / /x rw",
                                       "36 35 98:0 / /x rw - ext4",
                                       "36 35 98:0 / /x rw - ext4 none" };
    char line[64];
    struct mountinfo m;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        snprintf(line, sizeof(line), "%s", bad[i]);
        CHECK(!mountinfo_parse(line, &m));
    }
}
