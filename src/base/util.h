/* util.h - the few macros every file may use: cleanup attributes, visible ownership transfer. */
#ifndef BASE_UTIL_H
#define BASE_UTIL_H

#include <stddef.h>

#include "base/banned.h"

#define AUTO(done) __attribute__((cleanup(done)))
#define TAKE(v, none)                                                                              \
    ({                                                                                             \
        __auto_type taken_ = (v);                                                                  \
        (v) = (none);                                                                              \
        taken_;                                                                                    \
    })
#define ARRAY_LEN(a)               (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(p, type, mem) ((type *)(void *)((char *)(p)-offsetof(type, mem)))
#define PRINTF(fmt, args)          __attribute__((format(printf, fmt, args)))
#define LIKELY(x)                  __builtin_expect(!!(x), 1)
#define UNLIKELY(x)                __builtin_expect(!!(x), 0)
#ifdef MIN_MAX_PLAIN /* for a checker that cannot read statement expressions (tools/lint) */
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#else
#define MIN(a, b)                                                                                  \
    ({                                                                                             \
        __auto_type a_ = (a);                                                                      \
        __auto_type b_ = (b);                                                                      \
        a_ < b_ ? a_ : b_;                                                                         \
    })
#define MAX(a, b)                                                                                  \
    ({                                                                                             \
        __auto_type a_ = (a);                                                                      \
        __auto_type b_ = (b);                                                                      \
        a_ > b_ ? a_ : b_;                                                                         \
    })
#endif

#endif
