/* proxy_head.c - see proxy_head.h.
 *
 * RFC 9110 7.6.1: fields about one connection (Connection, what it lists, and the older ones that
 * predate the rule) are not passed on. Framing is written anew from what the parser understood. */
#include "io/proxy_head.h"

#include "base/mem.h"

enum what {
    PLAIN,
    HOP, /* about one connection only */
    CONNECTION,
    TE,
    HOST,
    EXPECT,
    LENGTH,
    FORWARDED_FOR,
    FORWARDED_HOST,
    FORWARDED_PROTO,
};

/* By length first: most fields are told apart without looking at a letter. */
static enum what what_is(struct str name)
{
    switch (name.n) {
    case 2: return str_iis(name, "te") ? TE : PLAIN;
    case 4: return str_iis(name, "host") ? HOST : PLAIN;
    case 6: return str_iis(name, "expect") ? EXPECT : PLAIN;
    case 7: return str_iis(name, "upgrade") ? HOP : PLAIN;
    case 10:
        return str_iis(name, "connection") ? CONNECTION : str_iis(name, "keep-alive") ? HOP : PLAIN;
    case 14: return str_iis(name, "content-length") ? LENGTH : PLAIN;
    case 15: return str_iis(name, "x-forwarded-for") ? FORWARDED_FOR : PLAIN;
    case 16:
        if (str_iis(name, "x-forwarded-host"))
            return FORWARDED_HOST;
        return str_iis(name, "proxy-connection") ? HOP : PLAIN;
    case 17:
        if (str_iis(name, "x-forwarded-proto"))
            return FORWARDED_PROTO;
        return str_iis(name, "transfer-encoding") ? HOP : PLAIN;
    case 18: return str_iis(name, "proxy-authenticate") ? HOP : PLAIN;
    case 19: return str_iis(name, "proxy-authorization") ? HOP : PLAIN;
    case 25: return str_iis(name, "proxy-authentication-info") ? HOP : PLAIN;
    default: return PLAIN;
    }
}

/* Does Connection name fields of its own, besides the words that every client sends? */
static bool lists_fields(const struct http_head *h)
{
    for (int i = 0; i < h->count; i++) {
        struct str rest = h->field[i].value, item;

        if (what_is(h->field[i].name) != CONNECTION)
            continue;
        while (str_next(&rest, ',', &item))
            if (!str_iis(item, "keep-alive") && !str_iis(item, "close") &&
                !str_iis(item, "upgrade"))
                return true;
    }
    return false;
}

static bool is_listed(const struct http_head *h, struct str name)
{
    for (int i = 0; i < h->count; i++) {
        struct str rest = h->field[i].value, item;

        if (what_is(h->field[i].name) != CONNECTION)
            continue;
        while (str_next(&rest, ',', &item))
            if (str_ieq(item, name))
                return true;
    }
    return false;
}

static void put_field(struct buf *b, const struct http_field *f)
{
    buf_add_str(b, f->name);
    buf_add(b, ": ", 2);
    buf_add_str(b, f->value);
    buf_add(b, "\r\n", 2);
}

static void put_line(struct buf *b, struct str name, struct str value)
{
    put_field(b, &(struct http_field){ name, value });
}

/* ---- requests ---- */

bool proxy_head_upgrades(const struct http_head *h)
{
    struct str to = h->upgrade ? http_get(h, "upgrade") : (struct str){ 0 };

    /* HTTP/2 in a tunnel would carry requests that nobody here has seen */
    return to.n && h->minor && !str_has_item(to, "h2c");
}

struct forwarded {
    struct str host; /* as the client wrote it */
    bool by, proto;  /* X-Forwarded-Host and -Proto came in and stay */
    bool chain;      /* X-Forwarded-For came in */
};

static void put_request_field(struct buf *b, const struct proxy *p, const struct call *c, int i,
                              struct forwarded *fwd)
{
    const struct http_field *f = &c->head.field[i];

    switch (what_is(f->name)) {
    case HOP:
    case CONNECTION: return;
    case TE:
        if (str_has_item(f->value, "trailers"))
            put_line(b, STR("TE"), STR("trailers"));
        return;
    case HOST:
        fwd->host = f->value;
        if (p->host.p)
            return;
        break;
    case EXPECT:
        if (!c->body.expect)
            return;
        break;
    case FORWARDED_FOR: fwd->chain = true; return;
    case FORWARDED_HOST:
        fwd->by |= p->trust;
        if (!p->trust)
            return;
        break;
    case FORWARDED_PROTO:
        fwd->proto |= p->trust;
        if (!p->trust)
            return;
        break;
    case PLAIN:
        if (p->drop && p->drop(f, false))
            return;
        break;
    case LENGTH: break;
    }
    put_field(b, f);
}

/* All earlier hops in one line, then ours. */
static void put_forwarded_for(struct buf *b, const struct http_head *h, bool chain,
                              const char *peer)
{
    if (!chain && !peer[0])
        return;
    buf_add_str(b, STR("X-Forwarded-For: "));
    for (int i = 0; chain && i < h->count; i++)
        if (what_is(h->field[i].name) == FORWARDED_FOR && h->field[i].value.n) {
            buf_add_str(b, h->field[i].value);
            buf_add(b, ", ", 2);
        }
    if (peer[0])
        buf_puts(b, peer);
    else if (b->data[b->len - 2] == ',')
        b->len -= 2;
    buf_add(b, "\r\n", 2);
}

static void put_forwarded(struct buf *b, const struct proxy *p, struct call *c,
                          const struct forwarded *fwd)
{
    put_forwarded_for(b, &c->head, fwd->chain, conn_peer(c->conn));
    if (fwd->host.n && !fwd->by)
        put_line(b, STR("X-Forwarded-Host"), fwd->host);
    if (!fwd->proto)
        put_line(b, STR("X-Forwarded-Proto"), str_of(p->scheme ? p->scheme : "http"));
}

void proxy_head_request(const struct proxy *p, struct call *c)
{
    struct buf *b = &c->scratch;
    const struct http_head *h = &c->head;
    struct forwarded fwd = { 0 };
    bool lists = lists_fields(h);

    b->len = 0;
    buf_add_str(b, h->method);
    buf_putc(b, ' ');
    buf_add_str(b, p->target.p ? p->target : h->target);
    buf_add_str(b, STR(" HTTP/1.1\r\n"));
    for (int i = 0; i < h->count; i++) {
        enum what w = lists ? what_is(h->field[i].name) : HOST;

        /* a length or a host that Connection lists is an attempt to confuse the next server */
        if (w != HOST && w != LENGTH && w != TE && is_listed(h, h->field[i].name))
            continue;
        put_request_field(b, p, c, i, &fwd);
    }
    if (p->host.p || !fwd.host.p) /* HTTP/1.0 may come without */
        put_line(b, STR("Host"), p->host.p ? p->host : STR("localhost"));
    put_forwarded(b, p, c, &fwd);
    buf_add_str(b, p->extra);
    if (h->chunked)
        buf_add_str(b, STR("Transfer-Encoding: chunked\r\n"));
    if (proxy_head_upgrades(h)) {
        buf_add_str(b, STR("Connection: Upgrade\r\n"));
        put_line(b, STR("Upgrade"), http_get(h, "upgrade"));
    }
    buf_add(b, "\r\n", 2);
}

/* ---- answers ---- */

static void put_answer_fields(struct buf *b, const struct proxy *p, const struct http_head *h)
{
    bool lists = lists_fields(h);

    for (int i = 0; i < h->count; i++) {
        enum what w = what_is(h->field[i].name);

        if (w == HOP || w == CONNECTION || (w == LENGTH && (h->status < 200 || h->status == 204)))
            continue;
        if (w == PLAIN && p->drop && p->drop(&h->field[i], true))
            continue;
        if (!lists || w == LENGTH || !is_listed(h, h->field[i].name))
            put_field(b, &h->field[i]);
    }
}

static void put_status(struct buf *b, int status)
{
    b->len = 0;
    if (LIKELY(status == 200)) {
        buf_add_str(b, STR("HTTP/1.1 200 OK\r\n"));
        return;
    }
    buf_add_str(b, STR("HTTP/1.1 "));
    buf_put_u64(b, (uint64_t)status);
    buf_putc(b, ' ');
    buf_puts(b, http_reason(status));
    buf_add(b, "\r\n", 2);
}

void proxy_head_interim(const struct proxy *p, struct call *c, const struct exchange *x)
{
    put_status(&c->scratch, x->head.status);
    put_answer_fields(&c->scratch, p, &x->head);
    buf_add(&c->scratch, "\r\n", 2);
}

static void put_framing(const struct proxy *p, struct call *c, const struct exchange *x)
{
    bool unbounded = x->body.chunked || x->to_the_end;
    struct buf *b = &c->scratch;

    c->conn->patience = 0;
    if (x->head.status == 101) {
        buf_add_str(b, STR("Connection: Upgrade\r\n"));
        put_line(b, STR("Upgrade"), http_get(&x->head, "upgrade"));
        return;
    }
    if (unbounded) {
        if (p->patient && p->patient(&x->head))
            call_patient(c);
        c->chunked = c->head.minor;
        c->close |= !c->head.minor; /* HTTP/1.0: the body ends with the connection */
    }
    if (c->chunked)
        buf_add_str(b, STR("Transfer-Encoding: chunked\r\n"));
    /* An answer before the request's end is most often a refusal, and the rest is not read: a
     * client that is not told so sends its next request into a connection that we close. */
    c->close |= !c->head.keep || !c->body.done;
    if (c->close)
        buf_add_str(b, STR("Connection: close\r\n"));
    else if (!c->head.minor)
        buf_add_str(b, STR("Connection: keep-alive\r\n"));
}

void proxy_head_answer(const struct proxy *p, struct call *c, const struct exchange *x)
{
    struct buf *b = &c->scratch;

    c->status = x->head.status;
    put_status(b, c->status);
    put_answer_fields(b, p, &x->head);
    put_framing(p, c, x);
    buf_add_str(b, buf_str(&c->headers));
    buf_add(b, "\r\n", 2);
}

/* Some who pass on an answer put them among its fields. */
int proxy_head_trailers(const struct proxy *p, bool answer, struct buf *raw, struct buf *out,
                        struct err *err)
{
    AUTO(freep) struct http_head *h = xmalloc(sizeof(*h));

    buf_add(raw, "\r\n", 2);
    if (http_parse_fields(raw->data, raw->len, h, err) <= 0)
        return err_in(err, "trailers");
    for (int i = 0; i < h->count; i++)
        if (what_is(h->field[i].name) == PLAIN && !(p->drop && p->drop(&h->field[i], answer)))
            put_field(out, &h->field[i]);
    return 0;
}
