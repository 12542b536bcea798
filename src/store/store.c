/* store.c - what is the same for every kind of store. */
#include "store/store.h"

int store_backup(struct store *s, const char *path, struct err *err)
{
    return s->ops->backup(s, path, err);
}

int store_move(const struct sandbox *b, enum sandbox_state expect, struct err *err)
{
    enum sandbox_state to = (enum sandbox_state)b->state;

    if (to == expect || sandbox_may(expect, to))
        return 0;
    return err_set(err, ERR_CONFLICT, "sandbox %s is %s and cannot become %s", b->id,
                   sandbox_state_names[expect],
                   to < SANDBOX_STATES ? sandbox_state_names[to] : "what was asked");
}

void store_closep(struct store **s)
{
    if (*s)
        (*s)->ops->close(*s);
    *s = NULL;
}
