/* network_allow.c - see network_allow.h. */
#include "cli/network_allow.h"

#include "base/buf.h"
#include "cli/settings.h"

int network_allow(const struct args_list *prefixes, struct err *err)
{
    AUTO(buf_free) struct buf text = { 0 };

    if (!prefixes->n)
        return 0;
    buf_puts(&text, "network.allow=");
    for (size_t i = 0; i < prefixes->n; i++)
        buf_printf(&text, "%s%s", i ? "," : "", prefixes->items[i]);
    return setting_set(settings_of_keep, buf_cstr(&text), err) ? err_in(err, "--network-allow") : 0;
}
