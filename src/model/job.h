/* job.h - a piece of work that is due at some time: what a queue holds. No I/O.
 *
 * A job is in one of three states:
 *   waiting   due_ms says when it may be claimed
 *   claimed   the same, and due_ms says when it may be claimed by another: its lease
 *   dead      tried too often; kept for people, until it is put back or dropped */
#ifndef MODEL_JOB_H
#define MODEL_JOB_H

#include "base/str.h"

enum { JOB_TOPIC = 64, JOB_KEY = 64, JOB_PAYLOAD = 4096, JOB_ERROR = 256, JOB_CLAIM = 64 };

struct job {
    const char *topic; /* who works on it */
    const char *key;   /* within its topic there is one job of a key */
    struct str payload;
    int64_t due_ms, first_ms;       /* first_ms: pushed; retries leave it as it is */
    int64_t attempts, attempts_max; /* claims so far; 0: no bound */
    int64_t ticket;                 /* of the claim that has it now; 0: none */
    int64_t dead_ms;                /* 0: not dead */
    const char *error;              /* why the last attempt failed, "" */
};

/* What to do where there is a job of that topic and key. */
enum job_push {
    JOB_REPLACE, /* the new one takes its place, and whoever had claimed it has lost it */
    JOB_STAY,    /* it stays, unless it is dead */
};

#endif
