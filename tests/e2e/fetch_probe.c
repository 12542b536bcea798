/* fetch_probe.c - one URL fetched or sent to as the server does it, confined as the server is when
 * asked (-d), so that tests see what resolving, connecting and TLS need of it.
 *
 * usage: fetch-probe [-a PREFIX,...] [-c CA] [-d DIR] [-t MS] [-m BYTES] get URL | put URL TEXT
 *
 * The body goes to standard output; an error is a line "CODE MESSAGE" and status 1. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/serve.h"
#include "io/co.h"
#include "io/fetch.h"

static struct {
    struct fetch_options options;
    struct fetch_bounds bounds;
    const char *method, *url, *text, *dir;
    size_t pos;
    int status;
} p;

static int out(void *arg, const void *bytes, size_t n, struct err *err)
{
    (void)arg;
    return fwrite(bytes, 1, n, stdout) == n ? 0 : err_sys(err, "write");
}

static int begin(void *arg, struct err *err)
{
    (void)arg, (void)err;
    p.pos = 0;
    return 0;
}

static ssize_t in(void *arg, void *buf, size_t n, struct err *err)
{
    (void)arg, (void)err;
    n = MIN(n, strlen(p.text) - p.pos);
    memcpy(buf, p.text + p.pos, n);
    p.pos += n;
    return (ssize_t)n;
}

static void run(void *arg)
{
    AUTO(fetch_closep) struct fetch *f = fetch_new(&p.options);
    struct fetch_source from = { .begin = begin, .read = in };
    struct fetch_result result;
    struct err err = { 0 };
    int r;

    (void)arg;
    from.length = p.text ? (int64_t)strlen(p.text) : 0;
    r = p.text ? fetch_put(f, str_of(p.url), &p.bounds, &from, &result, &err)
               : fetch_get(f, str_of(p.url), &p.bounds, out, NULL, &result, &err);
    if (r)
        printf("%s %s\n", err_name(err.code), err.msg);
    p.status = r ? 1 : 0;
}

/* As user 65534, with a root that has nothing but what the server's has. */
static int confine(struct err *err)
{
    struct serve s = { .root = geteuid() == 0,
                       .uid = 65534,
                       .gid = 65534,
                       .state_dir = xstrdup(p.dir),
                       .run_dir = xstrdup(p.dir),
                       .place = xstrdup(p.dir),
                       .fetch_ca = p.options.ca_file ? xstrdup(p.options.ca_file) : NULL,
                       .monitor = getppid() };
    int r = serve_confine(&s, err);

    free(s.state_dir);
    free(s.place);
    free(s.run_dir);
    free(s.fetch_ca);
    return r;
}

static int number(const char *text, int64_t *to) { return str_i64(str_of(text), to); }

static int option(int c, struct netrange_list *allow, struct err *err)
{
    switch (c) {
    case 'a': return netrange_list_add(allow, str_of(optarg), err);
    case 'c': p.options.ca_file = optarg; return 0;
    case 'd': p.dir = optarg; return 0;
    case 't': return number(optarg, &p.bounds.total_ms);
    case 'm': return number(optarg, &p.bounds.max_bytes);
    default: return err_set(err, ERR_INVALID, "usage: see fetch_probe.c");
    }
}

int main(int argc, char **argv)
{
    static struct netrange_list allow;
    struct err err = { 0 };

    for (int c; (c = getopt(argc, argv, "a:c:d:t:m:")) != -1;)
        if (option(c, &allow, &err))
            return fprintf(stderr, "%s\n", err.msg), 2;
    if (argc - optind < 2)
        return 2;
    p.options.allow = &allow;
    p.method = argv[optind];
    p.url = argv[optind + 1];
    p.text = argv[optind + 2];
    if (p.dir && confine(&err))
        return fprintf(stderr, "%s\n", err.msg), 2;
    return co_run(run, NULL) ? 2 : p.status;
}
