/* fdpass.h - one record and some descriptors over a Unix socket, in one message.
 *
 * For processes that trust each other's code but not each other's state: the number of descriptors
 * that can arrive is bounded by the caller, and a message that carried more is refused whole. */
#ifndef IO_FDPASS_H
#define IO_FDPASS_H

#include <stddef.h>
#include <sys/types.h>

enum { FDPASS_MAX = 24 };

/* The bytes sent, or -1 with errno. The descriptors stay the caller's. */
ssize_t fdpass_send(int sock, const void *p, size_t n, const int *fds, size_t nfds, int flags);
/* The bytes received, 0 at the end, -1 with errno; *nfds is the room, then the number. EPROTO: more
 * descriptors than there was room for, or a truncated record; all were closed. A process at its
 * RLIMIT_NOFILE gets the record with *nfds 0, whatever came along: that is the error of what the
 * record is about, and no reason to take the sender for gone. */
ssize_t fdpass_recv(int sock, void *p, size_t n, int *fds, size_t *nfds, int flags);

#endif
