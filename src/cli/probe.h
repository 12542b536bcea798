/* probe.h - what the probes of doctor share: saying what was found, children in namespaces of their
 * own, running a program, reading a file of the kernel's. */
#ifndef CLI_PROBE_H
#define CLI_PROBE_H

#include <sys/types.h>

#include "cli/doctor.h"

void probe_say(struct finding *f, enum doctor_status status, const char *fmt, ...) PRINTF(3, 4);
void probe_fail(struct finding *f, const char *fmt, ...) PRINTF(2, 3); /* FAIL, with errno */
void probe_fix(struct finding *f, const char *fmt, ...) PRINTF(2, 3);
void probe_fix_root(const struct doctor *d, struct finding *f, const char *fmt, ...)
    PRINTF(3, 4); /* a command that only root may run */

/* fork() into new namespaces and, where it is not -1, a cgroup. The child dies with its parent. */
pid_t probe_clone(uint64_t namespaces, int cgroup, int *pidfd);
int probe_wait(pid_t pid); /* exit status, 128 + n for signal n, -1 */

/* Runs inside in a child with these namespaces: root of its user namespace where that is one of
 * them, with mounts that nobody else sees. false, with a finding, when we could not get there. */
bool probe_inside(const struct doctor *d, uint64_t namespaces,
                  void (*inside)(const struct doctor *d, struct finding *f), struct finding *f);

/* Runs a program to its end. -1 with a message, which may be what it wrote to standard error. */
int probe_program(const char *const *argv, char *message, size_t n);
bool probe_find_program(const char *name, char *path, size_t n); /* in PATH and the sbins */
void probe_fix_package(const struct doctor *d, struct finding *f, const char *program);

int probe_read(const char *path, char *out, size_t n); /* at most n - 1 bytes; length or -1 */
int probe_read_at(int dir, const char *path, char *out, size_t n);
int probe_read_number(const char *path, int64_t *out);
int probe_write(const char *path, const char *text); /* -1 with errno */
int probe_write_at(int dir, const char *path, const char *text);

#endif
