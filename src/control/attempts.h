/* attempts.h - what strangers try, counted: by address within a window, by user while wrong ones
 * follow each other. In tables that do not grow and that nobody can push a count out of. */
#ifndef CONTROL_ATTEMPTS_H
#define CONTROL_ATTEMPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ATTEMPT_SLOTS = 1024, ATTEMPT_KEY = 24 };

struct attempt {
    unsigned char of[ATTEMPT_KEY]; /* all of the key, so that no two share a count */
    int64_t since;                 /* monotonic ms: see the table */
    int64_t count;
    int64_t trying; /* under way, and not counted yet; such a one is never forgotten */
};

struct attempts {
    int64_t lasts_ms; /* so long after `since` a count is 0 again */
    struct attempt slots[ATTEMPT_SLOTS];
};

/* The one of that key. A new one takes the place of what matters least: what has lapsed, else the
 * smallest count, else the oldest. To have a count forgotten takes as many others that are
 * as high. Valid until the next call. */
struct attempt *attempt_of(struct attempts *a, const void *key, size_t n, int64_t now);

/* The key of an address in text, into out: IPv6 by its /64, which is what one customer has. "" and
 * what is no address are one key. */
void attempt_address(const char *text, unsigned char out[static 16]);

#endif
