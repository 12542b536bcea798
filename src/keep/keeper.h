/* keeper.h - what the files of the keeper share. Outside src/keep include keep/keep.h. */
#ifndef KEEP_KEEPER_H
#define KEEP_KEEPER_H

#include <sys/types.h>

#include "base/list.h"
#include "jail/cgroup.h"
#include "jail/host.h"
#include "jail/ids.h"
#include "jail/jail.h"
#include "jail/layers.h"
#include "jail/net.h"
#include "jail/template.h"
#include "jail/volume.h"
#include "keep/boxfile.h"
#include "keep/keep.h"
#include "keep/loop.h"
#include "keep/record.h"

struct keep_limits {
    int64_t stock, boxes, mount_ms, look_ms;
};
extern struct keep_limits keep_limits;

struct client { /* one connection */
    struct source source;
    struct keeper *keeper;
    struct list all;
    uint32_t version; /* of the wire: what it spoke last */
    pid_t pid;        /* 0: of a private keeper, which ends with it */
};

struct slot { /* a network namespace made ahead, with the number it was made for */
    struct list all;
    struct ids_claim ids;
    struct net_slot net;
    bool home; /* the zygote's own namespace: no descriptor of it before the sandbox exists */
};

struct generation { /* of template host; lives while a sandbox or the keeper uses it */
    struct host_template host;
    struct jail_stack root, usr;
    size_t users;
};

struct extra { /* a layer that all sandboxes see; lives while one of them or the keeper uses it */
    struct layers_held held;
    size_t users;
};

/* ASLEEP: paused, and its processes are gone; there are its files and a note of what it was.
 * UNREAD: there is a file of it, and we cannot read that or do what it asks for (unread.c) */
enum phase {
    PHASE_WAITING,
    PHASE_BUILDING,
    PHASE_RUNNING,
    PHASE_ENDING,
    PHASE_ASLEEP,
    PHASE_UNREAD
};
/* how far it is */
enum pausing { PAUSING_NOT, PAUSING_FLUSH, PAUSING_FREEZE, PAUSING_SETTLE, PAUSING_DROP };

struct pending {           /* a request that is answered later */
    struct client *client; /* NULL: it has left, or nobody asked */
    uint64_t serial;
    enum keep_verb verb;
};

struct box { /* one sandbox */
    struct list all;
    struct list waiting; /* in keeper.waiting while PHASE_WAITING */
    struct keeper *keeper;
    char id[ORDER_ID];
    char name[KEEP_NAME_ROOM]; /* of its cgroups and its layer */
    enum phase phase;
    bool frozen;           /* paused, and that is on disk */
    bool noted;            /* there is a note of it */
    bool waking;           /* being built again on its files */
    bool own_template;     /* on which they lie: host's files below them would be others */
    bool snapshotting;     /* a child takes one of it */
    bool fresh;            /* woken from its files, and not paused since */
    bool astray;           /* only its files were found, and nothing said that they were to stay */
    bool stray;            /* PHASE_UNREAD: nothing but its layer names it, which is looked at */
    enum pausing pausing;  /* on the way there: */
    struct pending freeze; /* whom to answer then ... */
    int64_t freeze_until;  /* ... or when freezing has failed */
    bool files_only;       /* ... and its processes are to end then */
    bool in_flush;         /* the flush that runs now is for it */
    int64_t flush_from;    /* us; when its wait for one began */
    uint64_t flush_us;     /* what its flushes took */
    int64_t left;          /* of its lifetime, while it is paused; NEVER */
    struct order order;    /* as asked, limits filled */
    struct buf unknown;    /* fields of its files that we do not know: written back */
    struct client *owner;  /* hears of events; NULL: nobody */
    struct pending create, end;
    struct opening *opening;    /* of its host directories, while PHASE_WAITING; NULL */
    struct jail_mount *sources; /* those that its mounts are of, until it is begun; or NULL */
    size_t nsources;
    struct slot *slot;
    struct generation *generation; /* template host, or */
    struct template template;      /* another one (root >= 0) */
    struct extra *python;          /* below either; NULL: there is none */
    char python_id[LAYERS_ID];     /* which it is, KEEP_NO_LAYER; "": nobody knows any more */
    uint32_t family;
    uint64_t started; /* pid 1, in clock ticks since boot; 0: not looked up yet */
    int layer;        /* -1: not made yet; holds the lock that says it is in use */
    int mounts;       /* its mount namespace, for the reaper to take down; -1: goes with pid 1 */
    bool cgroup_made, socket_made, collected;
    struct jail jail;
    int status;        /* of its pid 1, once that has ended */
    bool staying;      /* that has ended, and its files are to be noted as soon as possible */
    struct err *fault; /* why it could not be built, while its process is ending; owned */
    struct source ended, report, memory;
    pid_t client_pid;        /* ORDER_TIED: the process that it is made for; 0: not known */
    uint64_t client_started; /* ... in clock ticks since boot */
    struct source client;    /* ... while it is not connected to us, but to our predecessor was */
    int64_t deadline;
    uint64_t oom_kills, pids_refused;
    bool disk_met;
    /* what waited in its sockets, and the use with that, when it was ended for it; 0 */
    uint64_t socket_bytes, overrun_bytes;
    enum keep_reason reason;
    char unreadable[256];          /* PHASE_UNREAD: why ... */
    struct boxfile *known;         /* ... what is known of it; owned, NULL: nothing */
    enum boxfile_kind unread_kind; /* ... which file of it ... */
    int64_t look_again;            /* ... and when it is tried again */
};

#define KEEP_NO_LAYER "-"

struct sockets_watch { /* sockets.c */
    bool looking;
    int64_t next, all_at; /* ms; when the machine, and when every sandbox is looked at */
    uint64_t base;        /* bytes that the kernel had at the last look, or less since */
};

struct reaper {
    pid_t pid;
    int sock;
};

struct keeper {
    struct keep_options o;
    struct loop loop;
    struct source listener, signals, lifeline;
    struct keep_owner owner; /* shared: whose we are, and ... */
    char *place;             /* ... our own directory in the run directory; NULL: private */
    int place_dir, lock;
    /* while we look at what keepers of releases without such places left: their lock, the run
     * directory, the records in it; -1 */
    int old_lock, old_dir, old_boxes;
    struct list clients, boxes, jobs, late, openings;
    size_t nboxes;
    struct cgroups cgroups;
    struct ids ids;
    struct volume *volume;
    bool single;    /* made for one sandbox, whose network namespace the zygote makes ... */
    bool home_free; /* ... and nobody has taken yet */
    struct netmaker net;
    struct source net_ready;
    struct list stock[ORDER_NETWORKS], asked; /* of struct slot */
    size_t wanted[ORDER_NETWORKS];            /* how many to hold ready */
    struct list waiting;                      /* boxes without a slot, the oldest first */
    struct reaper reaper;
    struct generation *generation; /* the newest */
    int64_t generation_checked, generation_looked, generation_look_ms;
    bool generation_building;
    struct extra *python; /* the Python layer in force; NULL: none */
    const char *still;    /* why the one that is looked at again could not be reached before */
    int *old_layers;      /* locks for adopted sandboxes; NULL: none */
    struct zygote zygote;
    int sockets, records;
    int outside; /* the mount namespace that we came from; -1: we are in it */
    char stage[64];
    int64_t next_tick;
    struct sockets_watch sockets_watch;
    size_t freezing; /* boxes that are not quite frozen yet */
    bool flushing;   /* a child writes out the volume */
    int notes;       /* <data>/paused; -1: nothing of ours is paused for long */
    bool stopping;
    bool adopted; /* all that there is; before that nothing is swept */
    bool former;  /* our layers were used last in a former boot of the machine */
};

/* box.c */
struct box *box_find(struct keeper *k, const char *id);
int box_create(struct keeper *k, struct client *c, const struct keep_request *r, struct err *err);
void box_continue(struct box *b); /* it has its slot now */
void box_end(struct box *b, enum keep_reason reason);
/* It holds more than its memory limit, so much of it in sockets: ends it as want of memory does. */
void box_overrun(struct box *b, uint64_t sockets, uint64_t memory);
void box_end_again(struct box *b);  /* the first time may have failed */
void box_notice_end(struct box *b); /* of its processes, which the loop may not have come to yet */
void box_state(const struct box *b, struct keep_state *out);
void box_measure(struct box *b,
                 struct keep_state *out); /* and tells of limits met since the last */
void box_examine(struct box *b, struct keep_state *out); /* the same with what costs more */
int box_watch(struct box *b, struct err *err);
int box_network(const struct box *b);            /* its network namespace */
uint32_t box_unenforced(const struct keeper *k); /* bits 1 << enum limit_id */
struct box *box_new(struct keeper *k, const char *id);
/* Of its layer and its cgroup. */
void box_name(const struct keeper *k, const char *id, char out[static KEEP_NAME_ROOM]);
void box_free(struct box *b);  /* gives everything back; also half-made ones */
void box_sleep(struct box *b); /* the same, but for its files, its note and its name */
/* Starts it again on its files; answers later. */
int box_wake(struct box *b, const struct pending *reply, struct err *err);

/* freeze.c: a part of pausing; tells pause_frozen(), at once or later */
void freeze_begin(struct box *b);
void freeze_forget(struct box *b);
void freeze_tick(struct keeper *k);

/* pause.c */
int box_pause(struct box *b, const struct pending *reply, bool files_only,
              struct err *err);  /* 1 done, 0 later */
void pause_sleep(struct box *b); /* a paused one, whose processes are gone now */
/* lifetime_ms: from now on; 0: what was left of it. */
int box_resume(struct box *b, uint64_t lifetime_ms, struct err *err);
void pause_frozen(struct box *b, const struct err *err); /* err NULL: it is */
void pause_cancel(struct box *b, const char *why); /* one that is under way; else does nothing */
/* Its files are not to be kept any more. -1: they are, and the next keeper would have it paused. */
int pause_forget(struct box *b, struct err *err);
/* One that lives, of which there is this note or none (NULL). 1: it was only half woken. */
int pause_adopt(struct box *b, const struct boxfile *n);
int pause_adopt_all(struct keeper *k, struct err *err); /* those without processes */
void pause_consider(struct keeper *k, const char *id);  /* one of these */

/* note.c */
int note_open(struct keeper *k, struct err *err);
/* On disk but for its name: then sync; or (lasting false) as safe as a running sandbox's files. */
int note_write(const struct box *b, bool lasting, struct err *err);
void note_mark(const struct box *b); /* its layer says the same, of one that sleeps */
int note_put(const struct keeper *k, const struct boxfile *n, struct str unknown, bool lasting,
             struct err *err);
/* Replaces that of one that is paused, lastingly; answers later. */
int note_renew(struct box *b, const struct pending *reply, struct err *err);
int note_sync(const struct keeper *k, struct err *err);
/* As boxfile_decode(); ERR_NOT_FOUND: there is none. unknown: appended; may be NULL. */
int note_read(const struct keeper *k, const char *id, struct boxfile *out, struct buf *unknown,
              struct err *err);
bool note_exists(const struct keeper *k, const char *id);
int note_remove(const struct keeper *k, const char *id, struct err *err); /* 0: there is none */

/* source.c: what a sandbox is built on */
int source_open(struct box *b,
                struct err *err); /* finds its template; a host directory is opened later */
void source_add_python(const struct box *b, struct jail_stack *root); /* at the bottom */
bool source_outdated(const struct box *b); /* a new one would be built on something else */
int source_page(struct keeper *k, const char *after, struct keep_reply *out, struct err *err);
int source_adopt(struct box *b, const char *fingerprint, struct err *err); /* the very same one */
void source_close(struct box *b);
int source_start(struct keeper *k, struct err *err);
void source_refresh(struct keeper *k);     /* looks whether the machine has changed under us */
void source_sweep(const struct keeper *k); /* generations that nobody uses; slow: for the reaper */
void source_finish(struct keeper *k);

/* slots.c */
int slots_start(struct keeper *k, struct err *err);
struct slot *slots_take(struct keeper *k, enum order_network network); /* NULL: wait */
void slots_ahead(struct keeper *k, size_t n);                          /* of the likely kind */
int slots_want(struct keeper *k, enum order_network network, struct err *err);
void slots_put(struct keeper *k, struct slot *s);
void slots_finish(struct keeper *k);
void slots_wait(struct keeper *k); /* until the netmaker has ended */

/* reaper.c */
int reaper_start(struct keeper *k, struct err *err);
void reaper_may_sweep(struct keeper *k); /* all that there is has been adopted */
/* mounts: lent, or -1. Whether it has it now; patient: waits while its queue is full. */
bool reaper_hand_over(struct keeper *k, const char *layer, int mounts, bool patient);
void reaper_finish(struct keeper *k); /* waits until all that was asked is deleted */
void keeper_let_go(struct keeper *k); /* in a child: of all that belongs to sandboxes */

int keeper_begin(struct keeper *k, const struct jail_spec *s, struct jail *out, struct err *err);

/* late.c: at once, or as soon as that is possible */
void late_cgroup(struct keeper *k, const char *name);     /* removes it */
void late_cgroup_now(struct keeper *k, const char *name); /* its name is wanted again */
/* Has it deleted, and then its record (id NULL: there is none). mounts: lent, or -1. */
void late_delete(struct keeper *k, const char *layer, int mounts, const char *id);
int64_t late_due(const struct keeper *k, int64_t now);
void late_tick(struct keeper *k);
void late_finish(struct keeper *k);
void late_forked(const struct keeper *k);

/* jobs.c: what takes long, in a child, which has no descriptor of any sandbox */
typedef int job_work(struct keeper *k, void *arg, struct err *err);
typedef void job_done(struct keeper *k, void *arg, const struct err *err); /* err NULL: it worked */
/* arg is the job's from here on, even if it fails: it is freed behind done. reply: whom it will
 * answer (inside arg), or NULL. */
int job_start(struct keeper *k, job_work *work, job_done *done, void *arg, struct pending *reply,
              struct err *err);
void jobs_finish(struct keeper *k);
void jobs_forget(struct keeper *k, const struct client *c); /* it has left: nobody to answer */

/* opening.c: children that open host directories */
int64_t openings_due(const struct keeper *k);
void openings_tick(struct keeper *k);
void openings_finish(struct keeper *k); /* waits for none */
void opening_forked(const struct box *b);

/* sockets.c */
void sockets_start(struct keeper *k);
int64_t sockets_due(const struct keeper *k, const struct box *b);
void sockets_tick(struct keeper *k);

/* verbs.c */
void verbs_dispatch(struct client *c, const struct keep_request *r);

/* mounts.c */
int mounts_own(struct keeper *k, struct err *err);
int mounts_rootless(struct keeper *k, struct err *err);
/* At the end, without sandboxes: a volume that nobody uses is unmounted, so that it is in nobody's
 * way. Others may use it: then it stays. */
void mounts_leave(const struct keeper *k);

/* adopt.c */
int adopt_all(struct keeper *k, struct err *err);
int adopt_consider(struct keeper *k, const char *id, struct err *err); /* -1: we cannot go on */
bool adopt_is_name(const char *name); /* of a file: is it a sandbox's id? */
void adopt_living(struct keeper *k, const struct boxfile *r, struct str unknown, int pidfd);
int adopt_record(struct box *b, struct err *err); /* writes its record, if we keep any */
void adopt_forget(const struct box *b);
/* The id of this boot of the machine. false: not known; a keeper that knew it once always does. */
bool adopt_boot(char out[BOOT_ID]);
enum life { LIFE_ENDED, LIFE_LIVES, LIFE_UNKNOWN };
/* Is it the process that was started then? LIVES: *pidfd is of it. UNKNOWN: err says why. */
enum life adopt_process(pid_t pid, uint64_t began, int *pidfd, struct err *err);
/* The same of the process in a record or note. */
enum life adopt_life(const struct boxfile *r, int *pidfd, struct err *err);
int adopt_start_time(pid_t pid, uint64_t *out); /* in clock ticks since boot; -1 with errno */

/* tie.c: a sandbox that is tied to a client ends with it, also when keepers change meanwhile */
void tie_note(struct box *b, const struct client *c);
bool tie_is_of(const struct box *b, const struct client *c); /* or tied to nobody */
bool tie_lists(const struct box *b, const struct client *c);
void tie_adopt(struct box *b); /* ends it if its client is gone */
void tie_tick(struct box *b);  /* looks again where that could not be told */
void tie_forget(struct box *b);

/* strays.c: what a layer says of itself, for the day on which nothing else does */
void stray_record(const struct box *b, struct str record);
void stray_ended(const struct keeper *k, const char *layer);
int strays_adopt(struct keeper *k, struct err *err);   /* those that nothing else names */
void stray_consider(struct keeper *k, const char *id); /* one of these, again */
bool stray_has(int dir, const char *id); /* a file; false too if that cannot be told */
/* A note without a record whose processes live. true: it has been dealt with; else they are gone
 * now, and its files are left. */
bool stray_frozen(struct keeper *k, const struct boxfile *note);
/* Its note says nothing, and somebody holds its layer: a keeper of another run directory? */
bool stray_is_anothers(const struct keeper *k, int layer, const char *id);

/* unread.c: a sandbox with a file that we cannot read, or something else of which is out of reach,
 * is neither served nor taken away; it is looked at again until that works, or its end comes.
 * known: what its file says; NULL: that is what cannot be read */
void unread_begin(struct keeper *k, const char *id, enum boxfile_kind kind, const struct err *why,
                  const struct boxfile *known);
void unread_look(struct box *b); /* now; when it can be read, another takes its place */
void unread_tick(struct box *b);
void unread_end(struct box *b, enum keep_reason reason);

/* held.c: see keep_names() */
int held_register(const struct keeper *k, struct err *err); /* where our records are */
void held_look_from(int root); /* the machine's, if that is not ours; -1 */
/* Was it made in this boot with a run directory that is not ours, whatever that is called? And does
 * a keeper of our data directory work there now? */
bool held_elsewhere(const struct keeper *k, const struct boxfile *f);
bool held_by_another(const struct keeper *k, const struct boxfile *f);
bool held_living(const char *records); /* does any in this directory live, or may it? */
bool held_recorded(const struct keeper *k, const struct boxfile *f); /* has it a record there? */
/* -1: sandboxes have their files on another volume than this one, or it is missing and they would
 * be given a new one. made: it is there. */
int held_check_volume(const char *data_dir, bool made, struct err *err);

/* keeper.c */
void keeper_unlink(int dir, const char *name); /* it may be gone; a failure is tried once more */
void keeper_forked(struct keeper *k); /* in a child: lets go of what would keep others waiting */

/* answer.c */
void keeper_reply(const struct pending *p, const char *id, const struct err *err,
                  const struct keep_state *state);
void keeper_send(struct client *c, struct keep_reply *r, const int *fds, size_t nfds);
void keeper_event_limit(struct box *b, enum limit_id limit, uint64_t value, uint64_t use);
void keeper_event_failed(struct box *b, const struct err *err);
void keeper_event_ended(struct box *b, int status, const struct keep_state *last);

#endif
