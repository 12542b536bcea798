/* oom.c - see oom.h. */
#include "jail/oom.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "jail/weaken.h"

enum { PROTECTED = -900 }; /* -1000 would leave the kernel nobody to kill, should we be the cause */

static void set(bool (*wanted)(int now), int score)
{
    AUTO(closep) int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    char text[16] = "";

    if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0 || !wanted((int)strtol(text, NULL, 10)))
        return;
    snprintf(text, sizeof(text), "%d", score);
    if (pwrite(fd, text, strlen(text), 0) < 0)
        log_debug("the score for want of memory stays", KV("error", strerrordesc_np(errno)));
}

static bool is_above(int now) { return now > PROTECTED; }
static bool is_below_zero(int now) { return now < 0; }

void oom_protect(void)
{
    if (!weakened("oom"))
        set(is_above, PROTECTED);
}

/* Written by one who may lower it, the number is also the least that its children can choose. */
void oom_expose(void)
{
    if (!weakened("oom-inherited"))
        set(is_below_zero, 0);
}
