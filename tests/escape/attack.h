/* attack.h - one attempt to leave the sandbox, and how it tells what came of it.
 *
 * An attempt asserts the mechanism that is supposed to stop it: a refusal with any other error than
 * the expected ones is not "held" but "unclear", so that a test cannot pass because its attack was
 * set up wrongly. Each runs in a process of its own and ends it. */
#ifndef ESCAPE_ATTACK_H
#define ESCAPE_ATTACK_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

enum { HELD = 0, ESCAPED = 1, UNCLEAR = 2 };

struct attempt {
    const char *name;
    /* As a system call: -1 and errno is a refusal, everything else an escape. */
    long (*try)(const struct attempt *a);
    int refusals[4]; /* the errors that count as held */
    const char *path;
    long nr;
    uintptr_t args[6];
};

extern const struct attempt attack_mounts[], attack_proc[], attack_pid1[], attack_ids[],
    attack_calls[], attack_filter[], attack_host[], attack_fill[],
    attack_queues[]; /* each ends with {} */

/* Say what came of it, and end. */
_Noreturn void held(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void escaped(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void unclear(const char *format, ...) __attribute__((format(printf, 1, 2)));

const char *setting(const char *name);  /* from the environment; unclear() without it */
bool strict(void);                      /* the profile this sandbox was made with */
bool run_helper(int argc, char **argv); /* attack_ids.c: what executes us again */

/* The line of /proc/self/status that begins with this word, or of another file like it. */
bool status_field(const char *file, const char *word, char *out, unsigned long size);
/* Reads up to size - 1 bytes; -1 with errno when it cannot. */
long read_text(const char *path, char *out, unsigned long size);
long copy_self(const char *to, unsigned mode); /* this program, as another file */

#endif
