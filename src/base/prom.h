/* prom.h - the Prometheus text format. */
#ifndef BASE_PROM_H
#define BASE_PROM_H

#include "base/buf.h"

void prom_head(struct buf *b, const char *name, const char *type, const char *help);
/* labels: key, value, key, value, NULL; may be NULL itself */
void prom_value(struct buf *b, const char *name, const char *const *labels, double v);

#endif
