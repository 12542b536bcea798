/* args_value.c - typed values of options: sizes, processors, durations, counts, choices.
 *
 * All arithmetic is on integers: "0.1" of a processor is 100 thousandths, not nearly 100. */
#include "base/buf.h"
#include "base/mem.h"
#include "cli/args.h"

/* Reads "12", "12.5", ".5": thousandths must come out whole, so at most three decimals count. */
static int take_decimal(struct str *s, int64_t *whole, int64_t *thousandths)
{
    size_t digits = 0, decimals = 0;
    uint64_t n = 0;

    while (digits < s->n && s->p[digits] >= '0' && s->p[digits] <= '9')
        digits++;
    if (digits && (str_u64((struct str){ s->p, digits }, &n) || n > INT64_MAX))
        return -1;
    *whole = (int64_t)n;
    *thousandths = 0;
    s->p += digits, s->n -= digits;
    if (!s->n || s->p[0] != '.')
        return digits ? 0 : -1;
    s->p++, s->n--;
    for (int unit = 100; s->n && s->p[0] >= '0' && s->p[0] <= '9'; s->p++, s->n--, unit /= 10) {
        *thousandths += (s->p[0] - '0') * unit;
        if (++decimals > 3)
            return -1;
    }
    return decimals ? 0 : -1;
}

/* Both parts times the unit; the thousandths may leave a part of a byte, which nobody means. */
static int times(int64_t whole, int64_t thousandths, int64_t unit, int64_t *out)
{
    int64_t part;

    if (__builtin_mul_overflow(whole, unit, &whole) ||
        __builtin_mul_overflow(thousandths, unit, &part))
        return -1;
    return __builtin_add_overflow(whole, part / 1000, out) ? -1 : 0;
}

static const char size_units[] = "KMGT";

int args_size(struct str text, int64_t *bytes)
{
    int64_t whole, part;
    const char *unit;
    int shift = 0;

    if (take_decimal(&text, &whole, &part))
        return -1;
    if (text.n) {
        unit = strchr(size_units, text.p[0] & ~0x20);
        if (unit && *unit) { /* a space becomes NUL, which strchr finds too */
            shift = 10 * (int)(unit - size_units + 1);
            text.p++, text.n--;
        }
    }
    /* "KB" is as much as "KiB" here, as with Docker: who types --memory 512MB means 512M. */
    if (text.n && !str_iis(text, "B") && !(shift && str_iis(text, "iB")))
        return -1;
    if (part && !shift)
        return -1;
    return times(whole, part, (int64_t)1 << shift, bytes);
}

int args_cpus(struct str text, int64_t *thousandths)
{
    int64_t whole, part;

    if (take_decimal(&text, &whole, &part) || text.n)
        return -1;
    return __builtin_mul_overflow(whole, 1000, thousandths) ||
                   __builtin_add_overflow(*thousandths, part, thousandths)
               ? -1
               : 0;
}

int args_duration(struct str text, int64_t *seconds)
{
    static const struct {
        char letter;
        int64_t seconds;
    } units[] = { { 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 } };
    int64_t whole, part, unit = 1;

    if (take_decimal(&text, &whole, &part))
        return -1;
    for (size_t i = 0; text.n && i < ARRAY_LEN(units); i++)
        if (text.p[0] == units[i].letter) {
            unit = units[i].seconds;
            text.p++, text.n--;
            break;
        }
    if (text.n || part * unit % 1000) /* half a second is no number of seconds */
        return -1;
    return times(whole, part, unit, seconds);
}

static int count(struct str text, int64_t *n)
{
    uint64_t v;

    if (str_u64(text, &v) || v > INT64_MAX)
        return -1;
    *n = (int64_t)v;
    return 0;
}

void args_print_size(int64_t bytes, char *out, size_t n)
{
    int unit = 0;

    while (unit < 4 && bytes && !(bytes & 1023))
        bytes >>= 10, unit++;
    /* a precision of its own: gcc 12 ends with an internal error on "%.1s" here without -O */
    snprintf(out, n, "%lld%.*s", (long long)bytes, unit ? 1 : 0, &size_units[unit ? unit - 1 : 0]);
}

static void print_cpus(int64_t v, char *out, size_t n)
{
    size_t len;

    snprintf(out, n, "%lld.%03lld", (long long)v / 1000, (long long)v % 1000);
    for (len = strlen(out); out[len - 1] == '0'; len--)
        out[len - 1] = 0;
    if (out[len - 1] == '.')
        out[len - 1] = 0;
}

static void print_duration(int64_t v, char *out, size_t n)
{
    static const struct {
        int64_t seconds;
        char letter;
    } units[] = { { 86400, 'd' }, { 3600, 'h' }, { 60, 'm' }, { 1, 's' } };
    size_t i = 0;

    while (v % units[i].seconds)
        i++;
    snprintf(out, n, "%lld%c", (long long)(v / units[i].seconds), v ? units[i].letter : 's');
}

static void print_count(int64_t v, char *out, size_t n) { snprintf(out, n, "%lld", (long long)v); }

static const struct number {
    const char *noun, *examples;
    int (*read)(struct str text, int64_t *out);
    void (*print)(int64_t v, char *out, size_t n);
} numbers[ARGS_TYPES] = {
    [ARGS_SIZE] = { "a size", "512M, 2G", args_size, args_print_size },
    [ARGS_CPUS] = { "a number of processors", "0.5, 2", args_cpus, print_cpus },
    [ARGS_DURATION] = { "a duration", "30s, 5m, 2h", args_duration, print_duration },
    [ARGS_COUNT] = { "a number", "10", count, print_count },
};

bool args_is_number(enum args_type type) { return numbers[type].read != NULL; }

void args_bounds(const struct args_option *o, char *out, size_t n)
{
    const struct number *type = &numbers[o->type];
    char low[32], high[32], range[96] = "";

    if (type->print) {
        type->print(o->min, low, sizeof(low));
        type->print(o->max, high, sizeof(high));
        if (o->max)
            snprintf(range, sizeof(range), "%s to %s", low, high);
        else if (o->min)
            snprintf(range, sizeof(range), "at least %s", low);
    }
    snprintf(out, n, "%s%s%s%s%s%s%s", range, range[0] && o->def ? ", " : "",
             o->def ? "default " : "", o->def ? o->def : "",
             o->env && (range[0] || o->def) ? ", " : "", o->env ? "or " : "", o->env ? o->env : "");
}

static int set_number(const struct args_option *o, const char *text, int64_t *out, struct err *err)
{
    const struct number *type = &numbers[o->type];
    char bound[32];
    int64_t v;

    if (type->read(str_of(text), &v))
        return err_set(err, ERR_INVALID, "'%.60s' is not %s (try %s)", text, type->noun,
                       type->examples);
    if (v < o->min || (o->max && v > o->max)) {
        type->print(v < o->min ? o->min : o->max, bound, sizeof(bound));
        return err_set(err, ERR_INVALID, "'%.60s' is too %s: %s %s", text,
                       v < o->min ? "small" : "large", v < o->min ? "at least" : "at most", bound);
    }
    *out = v;
    return 0;
}

static int set_choice(const char *const *choices, const char *text, struct err *err)
{
    AUTO(buf_free) struct buf all = { 0 };

    for (size_t i = 0; choices[i]; i++) {
        if (!strcmp(choices[i], text))
            return 0;
        buf_printf(&all, "%s%s", i ? ", " : "", choices[i]);
    }
    return err_set(err, ERR_INVALID, "'%.60s' is not one of %s", text, buf_cstr(&all));
}

/* The array grows by one at a time: a command line has few of each. */
static void append(struct args_list *list, const char *text)
{
    list->items = xrealloc(list->items, (list->n + 2) * sizeof(*list->items));
    list->items[list->n++] = text;
    list->items[list->n] = NULL;
}

int args_value(const struct args_option *o, const char *text, void *values, struct err *err)
{
    void *member = (char *)values + o->offset;

    if (o->set)
        return o->set(values, text, err);
    if (o->type == ARGS_SWITCH) {
        *(bool *)member = true;
        return 0;
    }
    if (args_is_number(o->type))
        return set_number(o, text, member, err);
    if (o->type == ARGS_CHOICE && set_choice(o->choices, text, err))
        return -1;
    if (o->flags & ARGS_REPEAT)
        append(member, text);
    else
        *(const char **)member = text;
    return 0;
}
