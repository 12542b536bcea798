/* session.h - ending everything that a terminal or command started. */
#ifndef GUEST_SESSION_H
#define GUEST_SESSION_H

#include <sys/types.h>

/* SIGKILL to every process of the session: a shell's jobs have groups of their own. */
void session_kill(pid_t session);

#endif
