/* net_sysctl.h - network settings under /proc/sys of the namespace the caller is in. */
#ifndef JAIL_NET_SYSCTL_H
#define JAIL_NET_SYSCTL_H

#include <stdbool.h>

#include "base/err.h"

int net_sysctl_write(const char *path, const char *value);  /* "net/ipv4/ip_forward"; errno */
int net_sysctl_read(const char *path, char *out, size_t n); /* one word; errno */
/* Writes, and notes in the file what was there before unless it was the same. */
int net_sysctl_change(int notes, const char *path, const char *value, struct err *err);
/* All that is noted, the last first, unless it is to stay; the file is then empty. */
void net_sysctl_restore(int notes, bool stay);

#endif
