/* netlink.c - see netlink.h. */
#include "jail/netlink.h"

#include <errno.h>
#include <sys/socket.h>

int netlink_open(struct netlink *nl, int bus, struct err *err)
{
    struct mnl_socket *s = mnl_socket_open2(bus, SOCK_CLOEXEC);

    if (!s)
        return err_sys(err, "open netlink");
    if (mnl_socket_bind(s, 0, MNL_SOCKET_AUTOPID)) {
        err_sys(err, "bind netlink");
        mnl_socket_close(s);
        return -1;
    }
    nl->sock = s;
    nl->sequence = 0;
    nl->stale = false;
    return 0;
}

void netlink_close(struct netlink *nl)
{
    if (nl->sock)
        mnl_socket_close(nl->sock);
    nl->sock = NULL;
}

void *netlink_begin(union netlink_request *r, unsigned type, unsigned flags, size_t extra)
{
    struct nlmsghdr *h = mnl_nlmsg_put_header(r->space);

    h->nlmsg_type = (uint16_t)type;
    h->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
    return mnl_nlmsg_put_extra_header(h, extra);
}

static int send_fresh(struct netlink *nl, const void *p, size_t n)
{
    char ignored[64];

    if (nl->stale) /* the kernel answers before send() returns, so all of it is there */
        while (recv(mnl_socket_get_fd(nl->sock), ignored, sizeof(ignored), MSG_DONTWAIT) >= 0)
            ;
    nl->stale = true;
    return mnl_socket_sendto(nl->sock, p, n) < 0 ? -1 : 0;
}

/* Reads one datagram of answers. The number of them, or -1; the first error goes to *error. */
static int read_answers(struct netlink *nl, int *error)
{
    union {
        char space[8192];
        struct nlmsghdr head;
    } in;
    ssize_t r = mnl_socket_recvfrom(nl->sock, in.space, sizeof(in.space));
    const struct nlmsghdr *h = &in.head;
    int left = (int)r, seen = 0;

    if (r < 0)
        return errno == EINTR ? 0 : -1;
    for (; mnl_nlmsg_ok(h, left); h = mnl_nlmsg_next(h, &left)) {
        const struct nlmsgerr *e = mnl_nlmsg_get_payload(h);

        if (h->nlmsg_type != NLMSG_ERROR || mnl_nlmsg_get_payload_len(h) < sizeof(*e))
            continue;
        seen++;
        if (e->error && !*error)
            *error = -e->error;
    }
    return seen;
}

int netlink_ask_all(struct netlink *nl, const void *p, size_t n, unsigned answers)
{
    int error = 0;

    if (send_fresh(nl, p, n))
        return -1;
    while (answers) {
        int seen = read_answers(nl, &error);

        if (seen < 0)
            return -1;
        answers -= MIN((unsigned)seen, answers);
    }
    nl->stale = false;
    errno = error;
    return error ? -1 : 0;
}

int netlink_ask(struct netlink *nl, union netlink_request *r)
{
    r->head.nlmsg_flags |= NLM_F_ACK;
    r->head.nlmsg_seq = ++nl->sequence;
    return netlink_ask_all(nl, r->space, r->head.nlmsg_len, 1);
}

int netlink_get(struct netlink *nl, union netlink_request *r, mnl_cb_t fn, void *arg)
{
    char in[32 << 10];
    ssize_t n;

    r->head.nlmsg_seq = ++nl->sequence;
    if (send_fresh(nl, r->space, r->head.nlmsg_len))
        return -1;
    do
        n = mnl_socket_recvfrom(nl->sock, in, sizeof(in));
    while (n < 0 && errno == EINTR);
    nl->stale = n < 0;
    return n < 0 || mnl_cb_run(in, (size_t)n, nl->sequence, 0, fn, arg) < 0 ? -1 : 0;
}

int netlink_dump(int bus, union netlink_request *r, mnl_cb_t fn, void *arg)
{
    AUTO(netlink_close) struct netlink nl = { 0 };
    struct err unused;
    char in[32 << 10];
    int more = MNL_CB_OK;

    if (netlink_open(&nl, bus, &unused))
        return -1;
    r->head.nlmsg_flags |= NLM_F_DUMP;
    r->head.nlmsg_seq = 1;
    if (mnl_socket_sendto(nl.sock, r->space, r->head.nlmsg_len) < 0)
        return -1;
    while (more > MNL_CB_STOP) {
        ssize_t n = mnl_socket_recvfrom(nl.sock, in, sizeof(in));

        if (n < 0)
            return -1;
        more = mnl_cb_run(in, (size_t)n, 1, mnl_socket_get_portid(nl.sock), fn, arg);
    }
    return more < 0 ? -1 : 0;
}

const struct nlattr *netlink_next(const struct nlmsghdr *h, size_t extra, const struct nlattr *last)
{
    const struct nlattr *a = last ? mnl_attr_next(last) : mnl_nlmsg_get_payload_offset(h, extra);
    const char *end = mnl_nlmsg_get_payload_tail(h);

    return mnl_attr_ok(a, (int)(end - (const char *)a)) ? a : NULL;
}

const struct nlattr *netlink_part(const struct nlattr *nest, unsigned type)
{
    const char *end = (const char *)mnl_attr_get_payload(nest) + mnl_attr_get_payload_len(nest);
    const struct nlattr *a = mnl_attr_get_payload(nest);

    for (; mnl_attr_ok(a, (int)(end - (const char *)a)); a = mnl_attr_next(a))
        if (mnl_attr_get_type(a) == type)
            return a;
    return NULL;
}
