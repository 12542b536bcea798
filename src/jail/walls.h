/* walls.h - how a process that strangers talk to gives up what it does not need: a root of its own
 * with almost nothing in it, another user without any capability, a list of system calls. For the
 * server (cli/serve_confine.c) and the name server relay (dns_relay.c). */
#ifndef JAIL_WALLS_H
#define JAIL_WALLS_H

#include <linux/filter.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* The leak check at the end of a sanitizer's build traces its own process, reads /proc, and writes
 * its report where only the caller may: such a build is not confined. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define WALLS_SANITIZED 1
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WALLS_SANITIZED 1
#endif
#endif
#ifndef WALLS_SANITIZED
#define WALLS_SANITIZED 0
#endif

/* The first makes a mount namespace, and an empty file system on WALLS_ROOT. The caller mounts
 * there what the process may see. The second makes that the root, read-only. Nothing that the
 * caller shows may lie below WALLS_ROOT. */
#define WALLS_ROOT "/sys"
int walls_root_begin(struct err *err);
int walls_root_enter(struct err *err);

/* Another user, without capabilities and without a way to get some. */
int walls_become(uid_t uid, gid_t gid, struct err *err);

/* ---- system calls: what is not allowed is EPERM, which a library takes for no ---- */

enum { WALLS_ROOM = 512 };

struct walls_filter { /* zeroed: begin with walls_filter_begin() */
    struct sock_filter code[WALLS_ROOM];
    unsigned short n;
};

void walls_filter_begin(struct walls_filter *f);
void walls_filter_allow(struct walls_filter *f, const unsigned *numbers, size_t n);
/* With one of these values in an argument, else the error. The kernel takes all of them as 32 bits.
 */
void walls_filter_values(struct walls_filter *f, unsigned nr, unsigned arg, const unsigned *values,
                         unsigned char n, unsigned error);
/* Memory, but none that is both written and executed; threads, but no process and no namespace. */
void walls_filter_memory(struct walls_filter *f);
void walls_filter_threads(struct walls_filter *f);
/* For the rest of this process's life. No-op in a sanitizer's build. */
int walls_filter_load(struct walls_filter *f, struct err *err);

#endif
