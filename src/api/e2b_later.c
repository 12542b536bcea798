/* e2b_later.c - the calls of E2B that this server does not have. Each says so, and what to do
 * instead, so that nobody searches for a mistake of their own. 501 is what both SDKs pass on with
 * its sentence; neither repeats it. */
#include "api/e2b.h"
#include "api/tables.h"

static int no_list(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_reply(c, 200, "application/json", STR("[]"));
}

/* What is asked of a sandbox is refused for one that exists only: 404 stays 404. */
static int refuse_of_sandbox(struct call *c, struct err *err, const char *why)
{
    return api_sandbox(c, err) ? err_set(err, ERR_UNSUPPORTED, "%s", why) : -1;
}

static int no_snapshot(struct call *c, void *body, struct err *err)
{
    (void)body;
    return refuse_of_sandbox(c, err,
                             "this server takes no snapshots of sandboxes; make a template with "
                             "`cove template add` instead");
}

static int no_fork(struct call *c, void *body, struct err *err)
{
    (void)body;
    return refuse_of_sandbox(c, err,
                             "this server does not fork sandboxes; create another of the same "
                             "template, which takes a millisecond");
}

static int no_template(struct call *c, void *body, struct err *err)
{
    (void)c, (void)body;
    return err_set(err, ERR_UNSUPPORTED,
                   "templates are not built or changed over this API; use `cove template` on the "
                   "server");
}

static int no_volume(struct call *c, void *body, struct err *err)
{
    (void)c, (void)body;
    return err_set(err, ERR_UNSUPPORTED,
                   "this server has no volumes; POST /v1/sandboxes mounts directories of the host");
}

static int no_secret(struct call *c, void *body, struct err *err)
{
    (void)c, (void)body;
    return err_set(err, ERR_UNSUPPORTED, "this server stores no secrets; pass them by envVars");
}

#define LATER(verb, target, handler, id, text)                                                     \
    {                                                                                              \
        (verb), (target), ROUTE_RAW, .fn = (handler), .operation = (id), .help = (text),           \
                                     .status = 501, .tag = "E2B, not supported"                    \
    }
#define SANDBOX  "/sandboxes/{sandboxID}"
#define TEMPLATE "/templates/{templateID}"

const struct route e2b_later_routes[] = {
    { "GET", "/snapshots", ROUTE_RAW, .fn = no_list, .operation = "e2bListSnapshots",
      .help = "Snapshots: there are none.", .tag = "E2B templates" },
    { "GET", "/volumes", ROUTE_RAW, .fn = no_list, .operation = "e2bListVolumes",
      .help = "Volumes: there are none.", .tag = "E2B templates" },
    { "GET", "/secrets", ROUTE_RAW, .fn = no_list, .operation = "e2bListSecrets",
      .help = "Secrets: there are none.", .tag = "E2B templates" },
    LATER("POST", SANDBOX "/snapshots", no_snapshot, "e2bSnapshot", "Snapshot a sandbox."),
    LATER("POST", SANDBOX "/fork", no_fork, "e2bFork", "Fork a sandbox."),
    LATER("POST", "/v3/templates", no_template, "e2bBuildTemplate", "Begin a template."),
    LATER("POST", "/v2/templates", no_template, "e2bBuildTemplateV2", "Begin a template."),
    LATER("POST", "/templates", no_template, "e2bBuildTemplateV1", "Begin a template."),
    LATER("GET", TEMPLATE "/files/{hash}", no_template, "e2bUpload", "A place for build files."),
    LATER("POST", "/v2" TEMPLATE "/builds/{buildID}", no_template, "e2bStartBuild", "Build."),
    LATER("GET", TEMPLATE "/builds/{buildID}/status", no_template, "e2bBuild", "A build."),
    LATER("GET", TEMPLATE "/builds/{buildID}/logs", no_template, "e2bBuildLogs", "Its logs."),
    /* before the rows with {templateID}, which would take "tags" for one */
    LATER("POST", "/templates/tags", no_template, "e2bAddTags", "Name a build."),
    LATER("DELETE", "/templates/tags", no_template, "e2bRemoveTags", "Forget names of a build."),
    LATER("DELETE", TEMPLATE, no_template, "e2bDeleteTemplate", "Delete a template or snapshot."),
    LATER("PATCH", TEMPLATE, no_template, "e2bPatchTemplateV1", "Change a template."),
    LATER("PATCH", "/v2" TEMPLATE, no_template, "e2bPatchTemplate", "Change a template."),
    LATER("GET", TEMPLATE "/tags", no_template, "e2bListTags", "The names of builds."),
    LATER("POST", "/volumes", no_volume, "e2bCreateVolume", "Create a volume."),
    LATER("GET", "/volumes/{volumeID}", no_volume, "e2bGetVolume", "One volume."),
    LATER("DELETE", "/volumes/{volumeID}", no_volume, "e2bDeleteVolume", "Delete a volume."),
    LATER("POST", "/secrets", no_secret, "e2bCreateSecret", "Store a secret."),
    LATER("GET", "/secrets/{secretID}", no_secret, "e2bGetSecret", "One secret."),
    LATER("POST", "/secrets/{secretID}", no_secret, "e2bChangeSecret", "Change a secret."),
    LATER("DELETE", "/secrets/{secretID}", no_secret, "e2bDeleteSecret", "Delete a secret."),
    {}
};
