/* net_sysctl.h - network settings under /proc/sys of the namespace the caller is in. */
#ifndef JAIL_NET_SYSCTL_H
#define JAIL_NET_SYSCTL_H

#include "base/err.h"

int net_sysctl_write(const char *path, const char *value);  /* "net/ipv4/ip_forward"; errno */
int net_sysctl_read(const char *path, char *out, size_t n); /* one word; errno */
/* Writes, and notes in the file what was there before unless it was the same. */
int net_sysctl_change(int notes, const char *path, const char *value, struct err *err);
void net_sysctl_restore(int notes); /* all that is noted, the last first; the file is then empty */

#endif
