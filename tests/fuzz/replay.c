/* replay.c - runs a fuzz target over the files of the directories given, once each: what the
 * ordinary test run does with the seeds, with any compiler and without a fuzzing engine. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "fuzz.h"

static int run_file(int dir, const char *name)
{
    AUTO(closep) int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    AUTO(freep) uint8_t *data = NULL;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
        return -1;
    data = xmalloc((size_t)st.st_size); /* exactly as large: a sanitizer sees a read beyond */
    if (read(fd, data, (size_t)st.st_size) != st.st_size)
        return -1;
    LLVMFuzzerTestOneInput(data, (size_t)st.st_size);
    return 0;
}

static int run_directory(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;
    int count = 0;

    if (!d) {
        fprintf(stderr, "replay: %s: %s\n", path, strerrordesc_np(errno));
        return -1;
    }
    while (count >= 0 && (e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        if (run_file(dirfd(d), e->d_name)) {
            fprintf(stderr, "replay: cannot read %s/%s\n", path, e->d_name);
            count = -1;
        } else {
            count++;
        }
    }
    closedir(d);
    return count;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int count = run_directory(argv[i]);

        if (count <= 0) { /* a corpus that has vanished is not a success */
            fprintf(stderr, "replay: no seeds in %s\n", argv[i]);
            return 1;
        }
        printf("%s: %d inputs\n", argv[i], count);
    }
    return 0;
}
