/* jupyter.h - the server on port 8888: Jupyter's REST interface and kernel WebSockets, and beside
 * them the runtime that Kubernetes' agent-sandbox clients expect on the same port. */
#ifndef GUEST_KERNELS_JUPYTER_H
#define GUEST_KERNELS_JUPYTER_H

#include "io/httpd.h"

struct kernel;

extern struct httpd jupyter_server;
extern const struct route jupyter_routes[], jupyter_session_routes[], runtime_routes[];

/* The kernel that {id} names, with a reference; NULL with err. */
struct kernel *jupyter_kernel(struct call *c, struct err *err);
int jupyter_check_origin(struct call *c, struct err *err);
void jupyter_set_token(const char *token); /* NULL or "": none is asked for */

call_fn channels_serve;
void sessions_forget(struct kernel *k); /* it is being removed */

void runtime_open(const char *base);  /* the directory of all its paths */
void runtime_rewrite(struct call *c); /* a path behind /download/ and the like as one segment */

#endif
