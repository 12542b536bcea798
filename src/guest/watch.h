/* watch.h - watching directories with inotify.
 *
 * A watcher's coroutine reads the kernel's events and puts them in a bounded queue; a stream or
 * GetWatcherEvents takes them out. Whatever could not be told (the kernel's queue or ours was full,
 * a directory could not be added) becomes one overflow event, so a client knows to look again. */
#ifndef GUEST_WATCH_H
#define GUEST_WATCH_H

#include "guest/guest.h"

enum watch_type { WATCH_CREATE = 1, WATCH_WRITE, WATCH_REMOVE, WATCH_RENAME, WATCH_CHMOD };

struct watch_event {
    struct list all;
    enum watch_type type;
    bool overflow; /* events before this one are missing */
    char name[];   /* relative to the watched directory */
};

struct watch_dir { /* one directory under watch */
    int wd;
    char *name; /* relative; "" is the watched directory itself */
};

struct watcher {
    struct list all;
    char id[24];
    struct guest *guest;
    int inotify;
    char *path; /* owned: the directory, as the client called it */
    bool recursive, include_entry;
    struct watch_dir *dirs; /* sorted by wd */
    size_t ndirs, cap;
    struct list events;
    size_t nevents;
    bool overflowed;        /* an overflow event is due */
    bool closed;            /* to be freed as soon as nothing uses it */
    bool failed;            /* no more is read: after what is in the queue comes an error */
    struct co_cond changed; /* events arrived, or it was closed */
    struct co_ref reader;
};

struct watch_options {
    const char *path; /* expanded */
    bool recursive, include_entry, network;
};

int watch_open(struct guest *g, const struct watch_options *o, struct watcher **out,
               struct err *err);
struct watch_event *watch_next(struct watcher *w); /* caller frees; NULL: none now */
/* -1: what happens from now on will never be told. */
int watch_check(const struct watcher *w, struct err *err);
void watch_close(struct watcher *w);

#endif
