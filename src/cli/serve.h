/* serve.h - what the files of `cove serve` share.
 *
 * Three processes. The monitor is what the user started: it opens what needs privilege (listeners,
 * key files), starts the keeper and the server, and starts either again when it dies. The server
 * is the one that strangers talk to: no privilege, a root directory with almost nothing in it, a
 * system call filter. They are forks of one program, so nothing travels but by memory. */
#ifndef CLI_SERVE_H
#define CLI_SERVE_H

#include "cli/args.h"
#include "io/netrange.h"
#include "io/sock.h"
#include "jail/walls.h"
#include "keep/keep.h"

#define SERVE_SANITIZED WALLS_SANITIZED

struct serve_options { /* of the command line */
    const char *data, *run_dir, *listen, *preview_listen, *domain, *user;
    const char *tls_cert, *tls_key, *config;
    const char *provider, *template, *scheme, *by_path;
    const char *log_level, *log_format;
    const char *fetch_ca;
    const char *forward_ports;
    struct args_list allow_mounts, fetch_allow, hosts, network_allow, trusted_proxies, set;
    int64_t lifeline, paused_retention, mcp_port, code_port;
    bool ephemeral, new;
};

enum { SERVE_KEY = 64, SERVE_PASSWORD = 160 };

struct serve {
    const struct serve_options *o;
    char *data_dir, *run_dir; /* absolute */
    char *place;              /* of this data directory in the run directory */
    struct keep_owner owner;  /* ... and its name */
    bool old_keeper;          /* one of a release before works for us, and is in run_dir */
    char *state_dir;          /* <data>/serve: all that the server may write */
    char *url, *preview_url, *domain;
    uid_t uid;
    gid_t gid;
    bool root;     /* started by it */
    bool one_user; /* inside a sandbox there is root only: the caller has no more ids to give */
    bool made_key, made_password;     /* by us, in this start: the user is told, once */
    bool terminal;                    /* standard output is one: secrets may be said there */
    bool new_password;                /* made or given now: the store follows */
    bool *ready;                      /* shared by all three: said so once, whoever dies later */
    int listener, preview;            /* preview: -1 where there is none */
    int lock;                         /* <data>/serve.lock, held until the last of us has ended */
    int lifeline;                     /* -1: none */
    int template_news;                /* inotify's, of the templates' directory; 0: none */
    int keeper_line[2];               /* a pipe: the keeper ends when monitor and server are gone */
    pid_t monitor;                    /* without it the server ends too */
    char *tls_chain, *tls_key;        /* absolute; NULL: plain HTTP */
    char *shown_chain, *shown_key;    /* what the server reads: those, or copies that it may read */
    struct netrange_list fetch_allow; /* may be fetched from though not public */
    struct netrange_list proxies;     /* whose X-Forwarded-For is believed */
    int64_t forward_min, forward_max; /* host ports that every user may name; 0: none */
    char *fetch_ca;                   /* absolute; NULL: the machine's */
    char boot[40];                    /* names this start of the machine */
    char key[SERVE_KEY];              /* the admin's API key and password */
    char password[SERVE_PASSWORD];
    char *token_secret;       /* that signs logins' tokens; NULL: the store's */
    const char *create_fault; /* why no sandbox can be made; NULL: they can */
};

/* serve_setup.c: directories, listeners, keys, before anything is given up */
int serve_setup(struct serve *s, struct err *err);
int serve_lock(struct serve *s, struct err *err); /* of the data directory: ERR_CONFLICT */
void serve_announce(const struct serve *s);       /* <data>/server.json, for the command line */
void serve_withdraw(const struct serve *s);

/* serve_database.c: is the database there, or is this a first start? Else refused. */
struct store;
int serve_database(const struct serve *s, struct err *err);
int serve_database_open(const struct serve *s, struct store **out, struct err *err);

/* serve_tls.c: the server's user cannot read root's key; 1: there are new copies, 0: none needed */
int serve_tls_copy(struct serve *s, struct err *err);
void serve_tls_forget(const struct serve *s);

/* serve_admin.c: in the server, there is always one who may do everything */
struct control;
int serve_admin(struct serve *s, struct control *c, struct err *err);

/* serve_contract.c: the variables that the control-plane contract names */
struct api;
int serve_contract(struct serve *s, struct err *err);
/* In the server. May park. */
void serve_contract_api(const struct serve *s, struct api *a);

/* serve_monitor.c: returns the exit status */
int serve_monitor(struct serve *s);

/* serve_confine.c: from here on this process can do little but serve */
int serve_confine(const struct serve *s, struct err *err);

/* serve_filter.c: what it may ask of the kernel */
int serve_filter(struct err *err);

/* serve_run.c: the server itself; returns the exit status */
int serve_run(struct serve *s);

#endif
