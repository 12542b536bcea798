/* loop.h - a file as a block device, until its last mount goes. */
#ifndef JAIL_LOOP_H
#define JAIL_LOOP_H

struct loop {
    int fd; /* keeps the device until it is mounted */
    char path[32];
};

/* flags: LO_FLAGS_* besides AUTOCLEAR. name: what is listed beside the device. -1 with errno. */
int loop_attach(int image, const char *name, unsigned flags, struct loop *out);

#endif
