/* target.c - see target.h.
 *
 * The API and the sandboxes share a listener, so what is for neither must not be guessed: a name
 * below our domain that is no sandbox's is refused, any other name is the API's, under which it may
 * be known in its network. */
#include "router/target.h"

#include <arpa/inet.h>
#include <math.h>

#include "model/door.h"
#include "router/host.h"

const char *const target_by_names[TARGET_BYS] = {
    [BY_NONE] = "api",        [BY_HOST] = "host", [BY_E2B] = "e2b-header",
    [BY_CLUSTER] = "cluster", [BY_PATH] = "path",
};

/* ---- the head ---- */

/* By length first: most fields are told apart without looking at a letter. */
static struct str *slot_of(struct str name, struct target_fields *f)
{
    switch (name.n) {
    case 4: return str_iis(name, "host") ? &f->host : NULL;
    case 6:
        if (str_iis(name, "cookie"))
            return &f->cookie;
        return str_iis(name, "accept") ? &f->accept : NULL;
    case 7: return str_iis(name, "referer") ? &f->referer : NULL;
    case 9: return str_iis(name, "x-api-key") ? &f->api_key : NULL;
    case 10: return str_iis(name, "user-agent") ? &f->user_agent : NULL;
    case 12: return str_iis(name, "x-sandbox-id") ? &f->id : NULL;
    case 13:
        if (str_iis(name, "authorization"))
            return &f->authorization;
        return str_iis(name, "x-sandbox-uid") ? &f->uid : NULL;
    case 14:
        if (str_iis(name, "e2b-sandbox-id"))
            return &f->e2b_id;
        if (str_iis(name, "x-access-token"))
            return &f->access_token;
        if (str_iis(name, "sec-fetch-site"))
            return &f->fetch_site;
        return str_iis(name, "x-sandbox-port") ? &f->port : NULL;
    case 16:
        if (str_iis(name, "e2b-sandbox-port"))
            return &f->e2b_port;
        return str_iis(name, "x-sandbox-pod-ip") ? &f->pod_ip : NULL;
    case 17: return str_iis(name, "x-sandbox-timeout") ? &f->timeout : NULL;
    case 19: return str_iis(name, "x-sandbox-namespace") ? &f->namespace : NULL;
    case 24: return str_iis(name, "e2b-traffic-access-token") ? &f->traffic_token : NULL;
    default: return NULL;
    }
}

void target_read(const struct http_head *h, struct target_fields *out)
{
    *out = (struct target_fields){ 0 };
    for (int i = 0; i < h->count; i++) {
        struct str *slot = slot_of(h->field[i].name, out);

        if (slot && !slot->p) /* the first of several, as everywhere */
            *slot = h->field[i].value;
    }
}

bool target_is_ours(const struct http_field *f)
{
    struct str name = f->name;

    switch (name.n) {
    case 9: return str_iis(name, "x-api-key");
    case 12: return str_iis(name, "x-sandbox-id");
    case 13: return str_iis(name, "x-sandbox-uid");
    case 14: return str_iis(name, "e2b-sandbox-id") || str_iis(name, "x-sandbox-port");
    case 16: return str_iis(name, "e2b-sandbox-port") || str_iis(name, "x-sandbox-pod-ip");
    case 17: return str_iis(name, "x-sandbox-timeout");
    case 18: return str_iis(name, "x-forwarded-prefix"); /* ours to say */
    case 19: return str_iis(name, "x-sandbox-namespace");
    case 24: return str_iis(name, "e2b-traffic-access-token");
    default: return false;
    }
}

/* ---- pieces ---- */

static bool all_digits(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return s.n > 0;
}

static bool read_port(struct str s, uint16_t *out)
{
    uint64_t n;

    if (s.n > 5 || str_u64(s, &n) || n < 1 || n > UINT16_MAX)
        return false;
    *out = (uint16_t)n;
    return true;
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c; }

static void take_id(struct str id, struct target *out) /* id.n is at most TARGET_ID */
{
    for (size_t i = 0; i < id.n; i++)
        out->id[i] = lower(id.p[i]);
    out->id[id.n] = 0;
}

static bool ends_in(struct str s, struct str end) /* ".end" */
{
    return s.n > end.n && s.p[s.n - end.n - 1] == '.' &&
           str_ieq((struct str){ s.p + s.n - end.n, end.n }, end);
}

/* ---- by host name ---- */

static bool is_short_id(struct str id, struct target *out)
{
    if (id.n != SANDBOX_ID)
        return false;
    take_id(id, out);
    return sandbox_id_valid((struct str){ out->id, id.n });
}

static void bad(struct target *out, enum target_by by, const char *why)
{
    out->by = by;
    out->bad = why;
}

static void find_by_host(struct str host, struct str domain, struct target *out)
{
    struct str name = host_name(host), label, parent, port, id, more;
    /* Not below a single label: any name below "localhost" may be this machine's. */
    bool ours = domain.n && memchr(domain.p, '.', domain.n) && ends_in(name, domain);
    bool dotted = str_cut(name, '.', &label, &parent);

    if (!name.n || (dotted && (str_iis(label, "sandbox") || str_iis(label, "api"))))
        return;
    if (!str_cut(label, '-', &port, &id) || !all_digits(port)) {
        if (ours)
            bad(out, BY_HOST, "Invalid host");
        return;
    }
    str_cut(id, '-', &id, &more); /* what follows belongs to nobody */
    if (!is_short_id(id, out)) {
        if (ours)
            bad(out, BY_HOST, "Invalid sandbox ID");
        return;
    }
    out->by = BY_HOST;
    if (!dotted)
        out->bad = "Invalid host";
    else if (!read_port(port, &out->port))
        out->bad = "Invalid port";
}

/* ---- by header ---- */

static void find_by_e2b(const struct target_fields *f, struct target *out)
{
    out->by = BY_E2B;
    if (!f->e2b_id.n || !f->e2b_port.n)
        out->bad =
            f->e2b_id.n ? "missing header E2b-Sandbox-Port" : "missing header E2b-Sandbox-Id";
    else if (f->e2b_id.n > SANDBOX_UUID || !sandbox_id_valid(f->e2b_id))
        out->bad = "Invalid sandbox ID";
    else if (!read_port(f->e2b_port, &out->port))
        out->bad = "Invalid port in header E2b-Sandbox-Port";
    else
        take_id(f->e2b_id, out);
}

static bool is_label(struct str s)
{
    if (!s.p || !s.n || s.n > TARGET_ID || s.p[0] == '-' || s.p[s.n - 1] == '-')
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (!((s.p[i] >= 'a' && s.p[i] <= 'z') || (s.p[i] >= '0' && s.p[i] <= '9') ||
              s.p[i] == '-'))
            return false;
    return true;
}

/* Finite and positive, else as if it were absent. */
static int64_t read_timeout(struct str s)
{
    char text[24], *end;
    double seconds;

    if (!s.n || s.n >= sizeof(text))
        return 0;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    seconds = strtod(text, &end);
    if (*end || !isfinite(seconds) || seconds <= 0)
        return 0;
    seconds *= 1000;
    if (seconds >= INT32_MAX)
        return INT32_MAX;
    return (int64_t)seconds + (seconds > (double)(int64_t)seconds); /* up; ceil() wants libm */
}

/* A sandbox is found by its id: an address is only checked, as clients expect, never dialled. */
static bool is_pod_address(struct str s)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr v6;
    struct in_addr v4;

    if (s.n >= sizeof(text))
        return false;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    if (inet_pton(AF_INET, text, &v4) == 1) {
        uint32_t a = ntohl(v4.s_addr);

        return a && a >> 24 != 127 && a >> 16 != 0xa9fe && a >> 28 != 0xe;
    }
    return inet_pton(AF_INET6, text, &v6) == 1 && !IN6_IS_ADDR_LOOPBACK(&v6) &&
           !IN6_IS_ADDR_LINKLOCAL(&v6) && !IN6_IS_ADDR_MULTICAST(&v6) &&
           !IN6_IS_ADDR_UNSPECIFIED(&v6) && !IN6_IS_ADDR_V4MAPPED(&v6);
}

/* Cove has one namespace: any well-formed name stands for it. */
static void find_by_cluster(const struct target_fields *f, struct target *out)
{
    out->by = BY_CLUSTER;
    out->port = DOOR_JUPYTER;
    out->timeout_ms = read_timeout(f->timeout);
    if (!f->id.n)
        out->bad = "X-Sandbox-ID header is required.";
    else if (!is_label(f->id))
        out->bad = "Invalid sandbox ID format.";
    else if (f->namespace.p && !is_label(f->namespace))
        out->bad = "Invalid namespace format.";
    else if (f->port.p && !read_port(f->port, &out->port))
        out->bad = "Invalid port format.";
    else if (f->pod_ip.p && !is_pod_address(f->pod_ip))
        out->bad = "Invalid target IP address.";
    else
        take_id(f->id, out);
}

/* One name for all sandboxes is how the SDKs call, and the headers say which; a name of one alone
 * needs none, and a bad one is not made good by them. */
void target_find(const struct target_fields *f, struct str domain, struct target *out)
{
    *out = (struct target){ 0 };
    find_by_host(f->host, domain, out);
    if (out->by != BY_NONE)
        return;
    if (f->e2b_id.p || f->e2b_port.p)
        find_by_e2b(f, out);
    else if (f->id.p || f->namespace.p || f->port.p || f->pod_ip.p || f->uid.p || f->timeout.p)
        find_by_cluster(f, out);
}

/* ---- by path ---- */

bool target_find_path(struct str target, struct target *out)
{
    struct str path, query, id, port, rest;
    bool slash;

    *out = (struct target){ .by = BY_PATH };
    str_cut(target, '?', &path, &query);
    if (!path.n || path.p[0] != '/')
        return false;
    if (!str_cut((struct str){ path.p + 1, path.n - 1 }, '/', &id, &rest))
        return false;
    slash = str_cut(rest, '/', &port, &rest);
    if (id.n > SANDBOX_UUID || !sandbox_id_valid(id) || !read_port(port, &out->port))
        return false;
    take_id(id, out);
    out->prefix = (struct str){ path.p, (size_t)(port.p + port.n - path.p) };
    if (slash)
        out->rest = (struct str){ path.p + out->prefix.n, target.n - out->prefix.n };
    return true;
}

/* ---- the guest's own ---- */

static int hex_digit(char c)
{
    c = lower(c);
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The next character of a path, with its escape undone. */
static char next_char(struct str path, size_t *i)
{
    char c = path.p[(*i)++];

    if (c == '%' && *i + 1 < path.n && hex_digit(path.p[*i]) >= 0 &&
        hex_digit(path.p[*i + 1]) >= 0) {
        c = (char)(hex_digit(path.p[*i]) << 4 | hex_digit(path.p[*i + 1]));
        *i += 2;
    }
    return c;
}

static bool is_control_name(struct str s)
{
    static const char *const names[] = { "init",     "freeze",   "unfreeze",
                                         "collapse", "fsfreeze", "fsthaw" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_iis(s, names[i]))
            return true;
    return false;
}

/* Ours matches paths byte by byte, but a guest is a stranger: what any server might take for one of
 * these is one, with escapes, empty segments, dots or parameters in it. */
bool target_is_control(struct str path)
{
    char segment[16] = { 0 };
    size_t n = 0;
    bool first = true;

    for (size_t i = 0; i <= path.n;) {
        char c = '/';

        if (i < path.n)
            c = next_char(path, &i);
        else
            i++;
        if (c != '/' && c != ';' && c != '\\') {
            if (n < sizeof(segment))
                segment[n] = c;
            n++;
            continue;
        }
        if (n == 2 && !memcmp(segment, "..", 2))
            return true;
        if (first && n && !(n == 1 && segment[0] == '.')) {
            if (n <= sizeof(segment) && is_control_name((struct str){ segment, n }))
                return true;
            first = false;
        }
        n = 0;
    }
    return false;
}
