/* setting.c - see setting.h. */
#include "base/setting.h"

#include "base/log.h"

int setting_set(const struct setting *const *tables, const char *assignment, struct err *err)
{
    struct str name, value;
    int64_t v;

    if (!str_cut(str_of(assignment), '=', &name, &value))
        return err_set(err, ERR_INVALID, "setting '%s' must look like NAME=VALUE", assignment);
    for (; *tables; tables++)
        for (const struct setting *s = *tables; s->name; s++) {
            if (!str_is(name, s->name))
                continue;
            if (str_i64(value, &v) || v < s->min || v > s->max)
                return err_set(err, ERR_INVALID, "setting %s must be a number from %lld to %lld",
                               s->name, (long long)s->min, (long long)s->max);
            *s->value = v;
            if (s->gone)
                log_warn("a setting that does nothing any more", KV("name", s->name),
                         KV("why", s->help));
            return 0;
        }
    return err_set(err, ERR_INVALID, "there is no setting '%.*s'", STR_ARG(name));
}

void setting_print(const struct setting *const *tables, struct buf *out)
{
    for (; *tables; tables++)
        for (const struct setting *s = *tables; s->name; s++)
            buf_printf(out, "  %-26s %12lld  %s%s\n", s->name, (long long)*s->value,
                       s->gone ? "without effect: " : "", s->help);
}
