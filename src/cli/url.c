/* url.c - `cove url`: a link that lets a browser in at a port of a sandbox. */
#include "base/arena.h"
#include "base/field.h"
#include "cli/commands.h"
#include "cli/remote.h"

struct url_options {
    struct remote_options remote;
    const char *path;
};

static const struct args_option url_options[] = {
    OPTION(struct url_options, path, "path", ARGS_TEXT, .value = "PATH", .def = "/",
           .help = "of the page, with its query"),
    REMOTE_OPTIONS(struct url_options, "print url and expires as a JSON object"),
    {}
};

static const struct args_word url_words[] = { { .name = "ID", .help = "which sandbox" },
                                              { .name = "PORT", .help = "inside" },
                                              {} };

struct link_reply {
    char *url;
};
static const struct field link_reply[] = {
    FIELD(struct link_reply, url, F_STR, .flags = F_REQUIRED),
    {},
};

static int print_url(struct remote *r, struct err *err)
{
    const struct url_options *o = r->args->values;
    AUTO(buf_free) struct buf more = { 0 }, target = { 0 }, body = { 0 }, reply = { 0 };
    AUTO(arena_free) struct arena a = { 0 };
    struct link_reply link = { 0 };

    buf_puts(&more, "/ports/");
    remote_put_encoded(&more, r->args->words[1]);
    buf_puts(&more, "/url");
    json_open(&body, '{');
    json_kv_str(&body, "path", o->path);
    json_close(&body, '}');
    if (remote_sandbox_target(r->args->words[0], buf_cstr(&more), &target, err) ||
        remote_call(r, "POST", target.data, &body, &reply, err))
        return -1;
    if (o->remote.json) {
        remote_print(&reply);
        return 0;
    }
    if (field_decode_text(link_reply, FIELDS_LENIENT, buf_str(&reply), &a, &link, err))
        return -1;
    puts(link.url);
    return 0;
}

static int run_url(struct args *a)
{
    return remote_command(a, &((const struct url_options *)a->values)->remote, print_url);
}

const struct command command_url = {
    .name = "url",
    .help = "a link that lets a browser in at a port of a sandbox",
    .about =
        "The link is good for one request within a minute (control.door-ticket-s). The browser "
        "then has a cookie for that port of that sandbox, for twelve hours "
        "(control.door-cookie-s). Ports of a public sandbox need none, but for those of "
        "services that run code.",
    .options = url_options,
    .size = sizeof(struct url_options),
    .words = url_words,
    .run = run_url,
};
