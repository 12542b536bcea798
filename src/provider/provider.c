/* provider.c - see provider.h: what every kind of provider has in common. */
#include "provider/provider.h"

void provider_closep(struct provider **p)
{
    if (*p)
        (*p)->ops->close(*p);
    *p = NULL;
}
