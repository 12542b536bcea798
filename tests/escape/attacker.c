/* attacker.c - runs attempts, each in a child of its own, and prints one line for each:
 *
 *   NAME<TAB>held: EPERM            the defence answered as it should
 *   NAME<TAB>ESCAPED: /etc/shadow   it did not
 *   NAME<TAB>unclear: EFAULT        the attempt went wrong before it met the defence
 *
 * usage: attacker list | run NAME... | hold NAME      (hold: go on until standard input ends)
 *
 * Meant for the inside of sandboxes only. The exit status is the worst outcome, 0 to 2. */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack.h"
#include "base/util.h"

enum { PATIENCE_S = 20 };

static const struct attempt *const tables[] = { attack_mounts, attack_proc,  attack_pid1,
                                                attack_ids,    attack_calls, attack_filter,
                                                attack_host,   attack_fill,  attack_queues };

static const char *current = "?"; /* the name of what is being tried */

__attribute__((format(printf, 2, 0))) static _Noreturn void say(int outcome, const char *format,
                                                                va_list arguments)
{
    static const char *const words[] = { "held", "ESCAPED", "unclear" };
    char line[512];
    int n = snprintf(line, sizeof(line), "%s\t%s: ", current, words[outcome]);

    n += vsnprintf(line + n, sizeof(line) - (size_t)n, format, arguments);
    n = MIN(n, (int)sizeof(line) - 2);
    line[n++] = '\n';
    if (write(1, line, (size_t)n) < 0) /* in one piece: lines of several attempts never mix */
        _exit(UNCLEAR);
    _exit(outcome);
}

void held(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(HELD, format, arguments);
}

void escaped(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(ESCAPED, format, arguments);
}

void unclear(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(UNCLEAR, format, arguments);
}

const char *setting(const char *name)
{
    const char *value = getenv(name);

    if (!value)
        unclear("%s is not set", name);
    return value;
}

bool strict(void) { return getenv("STRICT") != NULL; }

long read_text(const char *path, char *out, unsigned long size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    unsigned long n = 0;
    ssize_t got = 0;

    if (fd < 0)
        return -1;
    while (n < size - 1 && (got = read(fd, out + n, size - 1 - n)) > 0)
        n += (unsigned long)got;
    out[n] = 0;
    close(fd);
    return got < 0 && !n ? -1 : (long)n;
}

bool status_field(const char *file, const char *word, char *out, unsigned long size)
{
    char text[8192];
    const char *at;

    if (read_text(file, text, sizeof(text)) < 0 || !(at = strstr(text, word)))
        return false;
    at += strlen(word);
    at += strspn(at, ": \t");
    snprintf(out, size, "%.*s", (int)strcspn(at, "\n"), at);
    return true;
}

long copy_self(const char *to, unsigned mode)
{
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), file;
    struct stat st;
    bool whole;

    unlink(to);
    file = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    if (from < 0 || file < 0 || fstat(from, &st))
        return -1;
    whole = sendfile(file, from, NULL, (size_t)st.st_size) == st.st_size;
    return whole ? fchmod(file, mode) | close(file) | close(from) : -1;
}

static const struct attempt *find(const char *name)
{
    for (size_t t = 0; t < ARRAY_LEN(tables); t++)
        for (const struct attempt *a = tables[t]; a->name; a++)
            if (!strcmp(a->name, name))
                return a;
    return NULL;
}

static _Noreturn void attempt(const struct attempt *a)
{
    long result;

    alarm(PATIENCE_S);
    errno = 0;
    result = a->try(a);
    if (result != -1)
        escaped("%s returned %ld", a->path ? a->path : a->name, result);
    for (size_t i = 0; i < ARRAY_LEN(a->refusals); i++)
        if (a->refusals[i] && a->refusals[i] == errno)
            held("%s", strerrorname_np(errno));
    unclear("%s", strerrorname_np(errno) ?: "an error without a name");
}

static int run(const char *name)
{
    const struct attempt *a = find(name);
    int status;
    pid_t pid;

    current = name;
    if (a && !(pid = fork()))
        attempt(a);
    if (!a || pid < 0 || waitpid(pid, &status, 0) != pid) {
        printf("%s\tunclear: %s\n", name, a ? "no process for it" : "there is no such attempt");
        return UNCLEAR;
    }
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    printf("%s\tunclear: SIG%s\n", name, sigabbrev_np(WTERMSIG(status)) ?: "?");
    return UNCLEAR;
}

static void list(void)
{
    for (size_t t = 0; t < ARRAY_LEN(tables); t++)
        for (const struct attempt *a = tables[t]; a->name; a++)
            printf("%s\n", a->name);
}

int main(int argc, char **argv)
{
    int worst = HELD;
    char byte;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && !strcmp(argv[1], "list")) {
        list();
        return 0;
    }
    if (argc == 3 && !strcmp(argv[1], "hold")) {
        /* what was taken is given back when the process ends, so this one does it itself */
        const struct attempt *a = find(argv[2]);

        errno = 0;
        printf("took %ld\n", a ? a->try(a) : -1);
        return read(0, &byte, 1) < 0;
    }
    if (run_helper(argc, argv))
        return 0;
    if (argc < 3 || strcmp(argv[1], "run")) {
        fprintf(stderr, "usage: attacker list | run NAME... | hold NAME\n");
        return UNCLEAR;
    }
    for (int i = 2; i < argc; i++)
        worst = MAX(worst, run(argv[i]));
    return worst;
}
