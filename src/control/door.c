/* door.c - how a browser comes to a port that asks for a credential: it can set no header, so its
 * owner gets a URL with a ticket, which is good once, for a minute, and is changed at once for a
 * cookie.
 *
 * A ticket is remembered here and nowhere else: a restart of the server spends it. A cookie is
 * remembered nowhere: it is signed, over all that it is good for and over the sandbox's tokens, so
 * it ends with them. */
#include <nettle/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/mem.h"
#include "control/impl.h"
#include "io/jwt.h"

enum { TICKETS_MAX = 32, MAC = SHA256_DIGEST_SIZE };

struct ticket {
    struct ticket *next;
    int64_t until; /* monotonic ms */
    uint16_t port;
    char text[DOOR_TICKET + 1];
};

/* ---- the key of cookies ---- */

int door_open(struct control *c, struct err *err)
{
    return control_secret(c, "door-secret", &c->door_secret, err);
}

void door_close(struct control *c)
{
    if (c->door_secret)
        explicit_bzero(c->door_secret, strlen(c->door_secret));
    free(TAKE(c->door_secret, NULL));
}

/* ---- tickets ---- */

static void drop(struct ticket **at)
{
    struct ticket *t = *at;

    *at = t->next;
    explicit_bzero(t->text, sizeof(t->text));
    free(t);
}

/* Of those that are there, the newest first, room for one more is left. */
static void tidy(struct live *l)
{
    size_t n = 0;

    for (struct ticket **at = &l->tickets; *at;) {
        if ((*at)->until <= co_now() || ++n >= TICKETS_MAX)
            drop(at);
        else
            at = &(*at)->next;
    }
}

void door_forget(struct live *l)
{
    while (l->tickets)
        drop(&l->tickets);
}

int64_t control_door_ticket(struct sandbox *s, uint16_t port, char out[static DOOR_TICKET + 1])
{
    struct live *l = live_of(s);
    struct ticket *t = xcalloc(1, sizeof(*t));

    tidy(l);
    *t = (struct ticket){ .next = l->tickets,
                          .until = co_in(control_limits.door_ticket_s * 1000),
                          .port = port };
    id_random(t->text, DOOR_TICKET);
    l->tickets = t;
    memcpy(out, t->text, sizeof(t->text));
    return control_limits.door_ticket_s * 1000;
}

bool control_door_take(struct sandbox *s, uint16_t port, struct str text)
{
    struct live *l = live_of(s);

    if (text.n != DOOR_TICKET)
        return false;
    for (struct ticket **at = &l->tickets; *at; at = &(*at)->next)
        if (mem_equal_const((*at)->text, text.p, DOOR_TICKET)) {
            bool good = (*at)->port == port && (*at)->until > co_now();

            drop(at); /* shown at a wrong port it is known to somebody who should not know it */
            return good;
        }
    return false;
}

/* ---- cookies ---- */

/* With its NUL each text ends where it ends. */
static void sign(struct hmac_sha256_ctx *mac, const char *text)
{
    hmac_sha256_update(mac, strlen(text) + 1, (const uint8_t *)text);
}

static void mac_of(const struct sandbox *s, uint16_t port, const char *expiry,
                   char out[static 2 * MAC + 1])
{
    const char *key = live_of_const(s)->control->door_secret;
    struct hmac_sha256_ctx mac;
    uint8_t digest[MAC];
    char number[8];

    snprintf(number, sizeof(number), "%u", port);
    hmac_sha256_set_key(&mac, strlen(key), (const uint8_t *)key);
    sign(&mac, "cove-door 1");
    sign(&mac, s->id);
    sign(&mac, number);
    sign(&mac, expiry);
    sign(&mac, s->token);
    sign(&mac, s->traffic_token);
    hmac_sha256_digest(&mac, sizeof(digest), digest);
    for (size_t i = 0; i < MAC; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
    explicit_bzero(&mac, sizeof(mac));
}

int64_t control_door_cookie(const struct sandbox *s, uint16_t port, char out[static DOOR_COOKIE])
{
    char expiry[24], mac[2 * MAC + 1];

    snprintf(expiry, sizeof(expiry), "%lld",
             (long long)(control_wall_ms() / 1000 + control_limits.door_cookie_s));
    mac_of(s, port, expiry, mac);
    snprintf(out, DOOR_COOKIE, "1.%s.%s", expiry, mac);
    return control_limits.door_cookie_s;
}

/* What was signed is the text of the number, so a number has one text. */
bool control_door_cookie_good(const struct sandbox *s, uint16_t port, struct str text)
{
    char expiry[24], mac[2 * MAC + 1];
    struct str version, until, given;
    int64_t until_s;

    if (!live_of_const(s)->control || text.n >= DOOR_COOKIE)
        return false;
    if (!str_cut(text, '.', &version, &until) || !str_is(version, "1") ||
        !str_cut(until, '.', &until, &given) || given.n != 2 * MAC || until.n >= sizeof(expiry) ||
        str_i64(until, &until_s) || until_s <= control_wall_ms() / 1000)
        return false;
    memcpy(expiry, until.p, until.n);
    expiry[until.n] = 0;
    mac_of(s, port, expiry, mac);
    return mem_equal_const(mac, given.p, 2 * MAC);
}

/* Always the same one until the record is written again, with it. */
void door_adopt(struct live *l)
{
    char mac[2 * MAC + 1];

    if (!l->s.token[0] || l->s.traffic_token[0])
        return;
    mac_of(&l->s, 0, "traffic token", mac);
    snprintf(l->s.traffic_token, sizeof(l->s.traffic_token), "%.*s", SANDBOX_TOKEN, mac);
}

/* ---- what is no sandbox's business ---- */

bool control_is_login(const struct control *c, struct str text)
{
    const char *secret = sessions_secret(c);

    return secret && jwt_is_signed(str_of(secret), text);
}
