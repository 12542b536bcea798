/* door.c - see door.h. */
#include "model/door.h"

static const struct door_row {
    const char *service, *variable;
    uint16_t port;
} rows[] = {
    { "rest", DOOR_REST_VARIABLE, DOOR_REST },
    { "kernels", DOOR_JUPYTER_VARIABLE, DOOR_JUPYTER },
    { "kernels", DOOR_INTERPRETER_VARIABLE, DOOR_INTERPRETER },
};

bool door_is_kept(const char *names, const char *service)
{
    struct str list = str_of(names), item;

    if (!list.n || str_is(list, "all"))
        return true;
    while (str_next(&list, ',', &item))
        if (str_is(item, service))
            return true;
    return false;
}

static uint16_t port_of(const struct sandbox *s, const struct door_row *row)
{
    const char *text = map_get(&s->env, row->variable);
    uint64_t port;

    if (!text || str_u64(str_of(text), &port) || !port || port > UINT16_MAX)
        return row->port;
    return (uint16_t)port;
}

bool door_of_sandbox(const struct sandbox *s, uint16_t port)
{
    const char *kept = map_get(&s->env, DOOR_SERVICES_VARIABLE);

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (port_of(s, &rows[i]) == port && door_is_kept(kept, rows[i].service))
            return true;
    return false;
}
