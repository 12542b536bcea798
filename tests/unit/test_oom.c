/* test_oom.c - who comes last when memory runs out, and that its children do not. The kernel's file
 * is replaced by a plain one, as not every root may lower a score. */
#include "jail/oom.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "test.h"

struct row {
    const char *name, *had;
    void (*change)(void);
    const char *has;
};

static char path[] = "/tmp/test-oom-XXXXXX";

/* In a child: what is mounted there is its own. Its exit status: 0, or a line of this file. */
static int try(const struct row *r)
{
    char file[64], text[16] = "";
    int fd = mkstemp(path);

    snprintf(file, sizeof(file), "/proc/%d/oom_score_adj", getpid());
    if (fd < 0 || write(fd, r->had, strlen(r->had)) < 0)
        return __LINE__ & 0xff;
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount(path, file, NULL, MS_BIND, NULL))
        return errno == EPERM ? 0xff : __LINE__ & 0xff;
    unlink(path);
    r->change();
    if (pread(fd, text, sizeof(text) - 1, 0) < 0 || strcmp(text, r->has) != 0) {
        printf("# %s: %s instead of %s\n", r->name, text, r->has);
        fflush(stdout);
        return __LINE__ & 0xff;
    }
    return 0;
}

static void check_row(const struct row *r)
{
    int status;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (!pid)
        _exit(try(r));
    CHECK_INT(waitpid(pid, &status, 0), pid);
    if (WEXITSTATUS(status) == 0xff)
        printf("# skipped: mounting needs root\n");
    else
        CHECK_INT(status, 0);
}

static const struct row rows[] = {
    { "any process is protected", "0", oom_protect, "-900" },
    { "one that came first, too", "300", oom_protect, "-900" },
    { "one that is protected more stays so", "-1000", oom_protect, "-1000" },
    { "its child is as any", "-900", oom_expose, "0900" }, /* as much of the file as was written */
    { "whatever it began with", "-1000", oom_expose, "01000" },
    { "one that came first still does", "300", oom_expose, "300" },
};

TEST_ROWS(a_score_becomes_what_it_should, rows, test_once) { check_row(row); }
