/* host.h - template `host`: read-only layers that turn this machine's /usr into a root file
 * system for sandboxes, without a download and without anything of the machine's own.
 *
 *   base     lower layer of / : generated and untouched package files in /etc, a snapshot of the
 *            package database, empty homes. Nothing of /root, /home, /opt, /srv comes along.
 *   usr.img  what /usr looks like inside: names, owners and modes of what everybody may see. The
 *            contents are opened in the machine's /usr, as somebody who is unknown there
 *   usrfix   instead, where the kernel cannot do that: a lower layer above the live /usr, whiteouts
 *            over what is not for everybody's eyes (idmapping makes root's files sandbox root's)
 *
 * These are a generation: DIR/<fingerprint>/{base,usr.img,info}, complete from the moment that it
 * has this name and never changed afterwards. The fingerprint covers the package database,
 * accounts, links, the directories of /usr, Cove's version, the kernel's and the options; when it
 * changes, a new generation is built beside the old one, which stays as long as somebody holds it.
 * It does not see what is put by hand deeper into /usr: host_look() does.
 *
 * Holding: host_open and host_hold take a shared flock on the generation's directory, kept by
 * `lock` until host_close. The keeper keeps one template open for each generation that a living or
 * paused sandbox uses. A lock belongs to the open file, so it ends with the process, crash or not:
 * while a keeper is dead the files of its sandboxes, which name their generations, hold them.
 *
 * All of this blocks and is for a process with one thread: a build (0.4 s quiet, seconds on a busy
 * disk) belongs into a child. Only host_fingerprint, host_hold and a host_open that finds its
 * generation are quick enough for the keeper itself.
 *
 * As an ordinary user: files belong to the caller (owners = false), and what only root can read is
 * left out. Whiteouts work there too (any user may make one since Linux 5.8). Where the
 * kernel refuses, whiteouts = false: the sandbox then runs with no more rights over /usr than
 * the caller has, so it reads what the caller can read there anyway, and nothing else. */
#ifndef JAIL_HOST_H
#define JAIL_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "jail/named.h"

struct host_options {             /* zero-initialised: the defaults, but for the resolver */
    const char *source;           /* the machine's root directory; NULL: "/" */
    const char *resolver;         /* address for resolv.conf; NULL: no name server in it */
    const char *const *etc_extra; /* names below /etc to take as they are; ends with NULL */
    bool hide_local;              /* nothing of /usr/local */
    bool no_ca;                   /* no certificate authorities, the machine's own neither */
    bool mirrors;                 /* where its packages come from, if no credential stands there */
    const char *stamp;            /* a file whose change is one of the machine's; NULL: none */
};

enum { HOST_FINGERPRINT = 33 }; /* 32 hexadecimal digits and a NUL */

struct host_template {
    char *base, *usrfix; /* directories; owned */
    char *image;         /* of /usr: a file; owned. NULL: there is usrfix instead, and vice versa */
    char fingerprint[HOST_FINGERPRINT];
    bool merged_usr; /* /bin, /sbin, /lib are links into /usr; otherwise base holds copies */
    bool whiteouts;  /* what must not be seen in /usr is hidden by usrfix */
    bool owners;     /* files in base have their right owners */
    uint64_t sum;    /* of what was seen of /usr; 0: not known */
    int lock;        /* descriptor of the generation's directory, with the shared lock */
};

/* The generation for the machine as it is now, built when there is none yet. DIR is made with
 * mode 0700; its parent must exist. */
int host_open(const char *dir, const struct host_options *o, struct host_template *out,
              struct err *err);
/* A generation that exists, whatever the machine looks like now. ERR_NOT_FOUND: gone;
 * ERR_UNAVAILABLE: somebody looks just now whether he may delete it. */
int host_hold(const char *dir, const char *fingerprint, struct host_template *out, struct err *err);
/* The image as a mount that is attached nowhere: gone with its last descriptor. */
int host_mount_image(const struct host_template *t, struct err *err);
void host_close(struct host_template *t); /* releases the lock; harmless on a zeroed one */

/* Differs from a held template's: the machine has changed under it. */
int host_fingerprint(const struct host_options *o, char out[static HOST_FINGERPRINT],
                     struct err *err);

/* Is all of /usr as it was for this template? Sees what the fingerprint does not: files that were
 * put deeper into it by hand, changed in place, opened or closed. 1: no. Slow, some 0.3 s. */
int host_look(const struct host_template *t, const struct host_options *o, struct err *err);

/* Deletes generations that nobody holds and nothing names, but for keep_fingerprint (NULL: none),
 * and what builds that died left behind. Slow: for a child. */
void host_sweep(const char *dir, const char *keep_fingerprint, jail_named_fn *named, void *arg);

#endif
