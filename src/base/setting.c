/* setting.c - see setting.h. */
#include "base/setting.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"

static int set_value(const struct setting *s, struct str value, struct err *err)
{
    int64_t v;

    if (s->text) {
        if (value.n >= (size_t)s->max)
            return err_set(err, ERR_INVALID, "setting %s must be shorter than %lld bytes", s->name,
                           (long long)s->max);
        if (s->check(value.p, err))
            return -1;
        memcpy(s->text, value.p, value.n + 1);
        return 0;
    }
    if (str_i64(value, &v) || v < s->min || v > s->max)
        return err_set(err, ERR_INVALID, "setting %s must be a number from %lld to %lld", s->name,
                       (long long)s->min, (long long)s->max);
    *s->value = v;
    return 0;
}

/* The value is the end of the assignment, so that it has its NUL. */
int setting_set(const struct setting *const *tables, const char *assignment, struct err *err)
{
    struct str name, value;

    if (!str_cut(str_of(assignment), '=', &name, &value))
        return err_set(err, ERR_INVALID, "setting '%s' must look like NAME=VALUE", assignment);
    for (; *tables; tables++)
        for (const struct setting *s = *tables; s->name; s++) {
            if (!str_is(name, s->name))
                continue;
            if (set_value(s, value, err))
                return -1;
            if (s->gone)
                log_warn("a setting that does nothing any more", KV("name", s->name),
                         KV("why", s->help));
            return 0;
        }
    return err_set(err, ERR_INVALID, "there is no setting '%.*s'", STR_ARG(name));
}

void setting_value(const struct setting *s, struct buf *out)
{
    if (s->text)
        buf_puts(out, s->text);
    else
        buf_printf(out, "%lld", (long long)*s->value);
}

void setting_print(const struct setting *const *tables, struct buf *out)
{
    AUTO(buf_free) struct buf value = { 0 };

    for (; *tables; tables++)
        for (const struct setting *s = *tables; s->name; s++) {
            value.len = 0;
            setting_value(s, &value);
            buf_printf(out, "  %-26s %12s  %s%s\n", s->name, buf_cstr(&value),
                       s->gone ? "without effect: " : "", s->help);
        }
}
