/* serve_contract.c - the variables that the control-plane contract names. Only SANDBOX_PROVIDER
 * says where machines come from: a key of a cloud in somebody's shell never does. What this release
 * does not have yet is said, in the log or to who asks for it, and nothing is taken for it in
 * silence. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/serve.h"
#include "io/fetch.h"
#include "jail/template.h"

static const struct {
    const char *provider, *variable, *fault, *later;
} clouds[] = {
    { "e2b", "E2B_API_KEY",
      "SANDBOX_PROVIDER is e2b and E2B_API_KEY is not set: add it to .env and start the server "
      "again, or use SANDBOX_PROVIDER=local, which is this machine",
      "this release makes no sandboxes at E2B: use SANDBOX_PROVIDER=local, which is this machine" },
    { "daytona", "DAYTONA_API_KEY",
      "SANDBOX_PROVIDER is daytona and DAYTONA_API_KEY is not set: add it to .env and start the "
      "server again, or use SANDBOX_PROVIDER=local, which is this machine",
      "this release makes no sandboxes at Daytona: use SANDBOX_PROVIDER=local, which is this "
      "machine" },
};

static const struct {
    const char *variable, *instead;
} servers[] = {
    { "DATABASE_URL", "the state is kept in the data directory (SQLite)" },
    { "REDIS_HOST", "the queue is kept in the data directory" },
};

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);

    return value && *value;
}

static const char *fault_of(const char *provider)
{
    for (size_t i = 0; i < ARRAY_LEN(clouds); i++)
        if (!strcmp(provider, clouds[i].provider))
            return is_set(clouds[i].variable) ? clouds[i].later : clouds[i].fault;
    return NULL;
}

int serve_contract(struct serve *s, struct err *err)
{
    static const char variable[] = "TOKEN_SECRET_KEY";
    char *secret = getenv(variable);

    for (size_t i = 0; i < ARRAY_LEN(servers); i++)
        if (is_set(servers[i].variable))
            log_warn("not used by this release", KV("variable", servers[i].variable),
                     KV("instead", servers[i].instead));
    s->create_fault = fault_of(s->o->provider);
    if (s->create_fault)
        log_warn("no sandboxes can be made", KV("error", s->create_fault));
    if (s->o->by_path && !strcmp(s->o->by_path, "path") && !s->preview_url)
        return err_set(err, ERR_INVALID, "--urls path needs the preview listener");
    template_alias = s->o->template; /* also for the keeper, which is a fork of us */
    if (!secret || !*secret)
        return 0;
    s->token_secret = xstrdup(secret);
    explicit_bzero(secret, strlen(secret)); /* /proc/PID/environ shows the same bytes */
    unsetenv(variable);
    return 0;
}

void serve_contract_api(const struct serve *s, struct api *a)
{
    a->contract.template = s->o->template ? s->o->template : "base";
    a->contract.scheme = s->o->scheme ? s->o->scheme : a->tls ? "https" : "http";
    a->contract.preview_url = s->preview_url;
    a->contract.by_path = s->o->by_path && !strcmp(s->o->by_path, "path");
    a->contract.mcp_port = s->o->mcp_port;
    a->contract.code_port = s->o->code_port;
    a->fetch =
        fetch_new(&(struct fetch_options){ .ca_file = s->fetch_ca, .allow = &s->fetch_allow });
}
