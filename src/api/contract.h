/* contract.h - what the files of the control-plane contract share: /agent/sandboxes/sandboxes and
 * /api/v1/auth. Names of members are those of the wire.
 *
 * Answers are {"code", "msg", "data"}; errors have data null and, but for those of authentication,
 * the request's id as trace_id. */
#ifndef API_CONTRACT_H
#define API_CONTRACT_H

#include "api/api.h"
#include "provider/envd_files.h"

enum {
    CONTRACT_FILE_MAX = 32 << 20, /* of a file that travels inside JSON */
    CONTRACT_BODY_MAX =
        65 << 20, /* of such a body: what is not ASCII takes twice its bytes, escaped */
    CONTRACT_PATH_MAX = 4096,
    CONTRACT_ID_MAX = 64,
};

extern const struct setting contract_settings[];
struct contract_limits {
    int64_t idle_s, command_s, output_bytes, upload_bytes;
};
extern struct contract_limits contract_limits;

int contract_reply(struct call *c, const void *view); /* in the envelope, by the reply table */

/* By short id or UUID; what the caller may not see is "Sandbox <id> not found". */
struct sandbox *contract_find(struct call *c, const char *id, struct err *err);

struct contract_box { /* a sandbox that an operation works on: held, running, not idle */
    struct call *call;
    struct sandbox *sandbox;
    const char *id; /* as the caller wrote it */
    struct envd guest;
};
/* Resumes it if need be. */
int contract_enter(struct contract_box *b, struct call *c, const char *id, struct err *err);
/* Leaves it; r is the operation's result, and comes back. An error because the sandbox ended
 * meanwhile says so. */
int contract_leave(struct contract_box *b, int r, struct err *err);

/* Where clients reach a port of it. */
const char *contract_url(struct call *c, const struct sandbox *s, int64_t port);
/* The same for a page that a person opens: where the port asks for a credential, good for once. */
const char *contract_page_url(struct call *c, struct sandbox *s, int64_t port);
const char *contract_status(const struct sandbox *s);

struct contract_done { /* what most operations answer */
    bool success;
    const char *content, *message;
};
extern const struct field contract_done[];       /* success, message */
extern const struct field contract_file_reply[]; /* and content, null */

#define CONTRACT      "/agent/sandboxes/sandboxes"
#define CONTRACT_TAGS "Agent|Agent Sandbox Management|Sandbox"

#endif
