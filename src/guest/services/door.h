/* door.h - one service's listening sockets, and what the keeper of them knows about the service. */
#ifndef GUEST_SERVICES_DOOR_H
#define GUEST_SERVICES_DOOR_H

#include "guest/guest.h"
#include "guest/services/service.h"
#include "io/spawn.h"

enum door_state { DOOR_OFF, DOOR_WAITING, DOOR_STARTING, DOOR_RUNNING };

struct door {
    const struct service *service;
    enum door_state state;
    int listener[SERVICE_PORTS]; /* -1: none */
    int port[SERVICE_PORTS];
    bool lent[SERVICE_PORTS]; /* to a command: taken back when it can be */
    bool armed;               /* in the epoll set */
    bool ending;
    bool unable; /* the last start failed: who comes before not_before is told why */
    bool warm;   /* runs from the beginning, and does not end for idleness */
    bool early;  /* ... and began before /init had said anything */
    int tell;    /* the running service's environment socket; -1: none runs */
    struct child child;
    int64_t started_ms;
    int64_t not_before; /* after failures */
    int64_t starts, failures;
    char error[256]; /* of the last failure */
};

extern struct door_place { /* of all doors of this process */
    struct guest *guest;   /* whose environment and user they have; NULL: there are no doors */
    bool inside;           /* a sandbox */
    uint64_t environments; /* how often the sandbox's environment has changed */
    int set;               /* epoll: readable when somebody is at an armed door */
} door_place;

/* Does a list ("all", "none", names) hold it? Empty and NULL: yes. */
bool door_wanted(const struct door *d, const char *names);
int door_port(const struct service_port *p); /* as the environment has it now */

int door_hold(struct door *d, struct err *err); /* all its ports, or none; then it is armed */
int door_hold_port(struct door *d, int i, struct err *err);
void door_let_go(struct door *d); /* of all of them */
bool door_listens(const struct door *d);

void door_arm(struct door *d);
void door_arm_port(struct door *d, int i);
void door_disarm(struct door *d);

#endif
