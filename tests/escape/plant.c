/* plant.c - leaves set-id programs of as many owners as it is let, in the directories it is given:
 * tests/escape/test_mounts.py looks at them from outside.
 *
 * usage: plant FIRST LAST DIRECTORY...
 *
 * For each id one file by chown, one by chgrp, one by both; each is then made set-user-ID and
 * set-group-ID. What is refused is left as it is. Prints how many files there are. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BY_OWNER = 1, BY_GROUP = 2 };

static int plant(int dir, unsigned id, int by)
{
    char name[48];
    int fd;

    snprintf(name, sizeof(name), "%u-%d-%u", getuid(), by, id);
    fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    if (fd < 0)
        return 0;
    if (fchown(fd, by & BY_OWNER ? id : (uid_t)-1, by & BY_GROUP ? id : (gid_t)-1))
        (void)!fchown(fd, (uid_t)-1, (gid_t)-1);
    (void)!fchmod(fd, 06755);
    close(fd);
    return 1;
}

int main(int argc, char **argv)
{
    unsigned long first, last;
    long made = 0;

    if (argc < 4)
        return 2;
    first = strtoul(argv[1], NULL, 10);
    last = strtoul(argv[2], NULL, 10);
    for (int i = 3; i < argc; i++) {
        int dir = open(argv[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (dir < 0)
            return 1;
        for (unsigned long id = first; id <= last; id++)
            for (int by = BY_OWNER; by <= (BY_OWNER | BY_GROUP); by++)
                made += plant(dir, (unsigned)id, by);
        close(dir);
    }
    printf("%ld\n", made);
    return 0;
}
