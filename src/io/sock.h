/* sock.h - addresses and descriptors: listening, connecting, passing descriptors. */
#ifndef IO_SOCK_H
#define IO_SOCK_H

#include <sys/socket.h>
#include <sys/un.h>

#include "base/err.h"
#include "base/str.h"

struct addr {
    struct sockaddr_storage sa;
    socklen_t len;
};

/* "127.0.0.1:80", "[::1]:80", "localhost:80", "unix:/path"; no name is ever looked up. */
int addr_parse(struct str text, struct addr *out, struct err *err);
void addr_print(const struct addr *a, char *out, size_t n);
int sock_listen(const struct addr *a, struct err *err); /* non-blocking, close-on-exec */
int sock_open(const struct addr *a, struct err *err);   /* unconnected, for co_connect() */

/* A peer may be gone without a word: its machine lost its power, a NAT forgot us. For a connection
 * or a listener, whose connections inherit it: one that is silent is asked now and then, and what
 * is not under way yet waits with us, not in the kernel. Anything but TCP is left as it is. */
extern int64_t sock_peer_ms; /* so long a peer may leave what it was sent without an answer */
void sock_look_after(int fd);
bool sock_peer_lives(int fd); /* as far as one can know; how slowly it reads does not matter */
struct tcp_info;
bool sock_info_lives(const struct tcp_info *i); /* the same, of what the kernel says of it */

/* One byte and one descriptor over a Unix socket; both park. recv gives -1 at the end too. */
int sock_send_fd(int sock, int fd, int64_t until, struct err *err);
int sock_recv_fd(int sock, int64_t until, struct err *err);

#endif
