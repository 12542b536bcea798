/* sqlite_sql.c - the text of every statement. Those over a sandbox's row are made from its table of
 * columns, so that neither the order nor a name can differ between writing and reading. */
#include "store/column.h"
#include "store/sqlite.h"

enum part { WHOLE, SELECT_SANDBOX, INSERT_SANDBOX, UPDATE_SANDBOX };

#define USER_COLUMNS    "id, name, role, password, locked, multi_login, created_ms"
#define SESSION_COLUMNS "id, user, created_ms, expires_ms"
#define KEY_COLUMNS     "id, user, hash, shown, name, created_ms, used_ms"
#define JOB_COLUMNS                                                                                \
    "topic, key, payload, due_ms, first_ms, attempts, attempts_max, ticket, dead_ms, error"

static const struct {
    enum part part;
    const char *rest;
} texts[SQLS] = {
    [SQL_BEGIN] = { WHOLE, "BEGIN IMMEDIATE" },
    [SQL_COMMIT] = { WHOLE, "COMMIT" },
    [SQL_ROLLBACK] = { WHOLE, "ROLLBACK" },

    [SQL_SANDBOX_ADD] = { INSERT_SANDBOX, "" },
    [SQL_SANDBOX_SAVE] = { UPDATE_SANDBOX, " WHERE id = ? AND state = ?" },
    /* `live` is apart: ordinary saves leave its index alone. */
    [SQL_SANDBOX_END] = { UPDATE_SANDBOX, ", live = 0, idem_key = iif(:started_ms, idem_key, NULL),"
                                          " idem_hash = iif(:started_ms, idem_hash, NULL)"
                                          " WHERE id = ? AND state = ?" },
    [SQL_SANDBOX_STATE] = { WHOLE, "SELECT state FROM sandboxes WHERE id = ?" },
    [SQL_SANDBOX_BY_ID] = { SELECT_SANDBOX, " WHERE id = ?" },
    [SQL_SANDBOX_BY_UUID] = { SELECT_SANDBOX, " WHERE uuid = ?" },
    [SQL_SANDBOX_BY_KEY] = { SELECT_SANDBOX, " WHERE owner = ? AND idem_key = ?" },
    [SQL_SANDBOX_LIVE] = { SELECT_SANDBOX, " WHERE live = 1 AND node = ? ORDER BY n" },
    [SQL_SANDBOX_ENDED] = { SELECT_SANDBOX, " WHERE live = 0 ORDER BY ended_ms DESC, n DESC"
                                            " LIMIT ?" },
    [SQL_SANDBOX_ENDED_OF] = { SELECT_SANDBOX, " WHERE live = 0 AND owner = ?"
                                               " ORDER BY ended_ms DESC, n DESC LIMIT ?" },
    [SQL_SANDBOX_PRUNE] = { WHOLE, "DELETE FROM sandboxes WHERE n IN (SELECT n FROM sandboxes"
                                   " WHERE live = 0 AND ended_ms < ? ORDER BY ended_ms LIMIT ?)" },

    [SQL_ORPHAN_PUT] = { WHOLE, "INSERT INTO orphans (id, found_ms, kept_ms, reason)"
                                " VALUES (?, ?, ?, ?)"
                                " ON CONFLICT (id) DO UPDATE SET reason = excluded.reason,"
                                " kept_ms = max(kept_ms, excluded.kept_ms)" },
    [SQL_ORPHAN_LIST] = { WHOLE, "SELECT id, found_ms, kept_ms, reason FROM orphans"
                                 " ORDER BY found_ms, id" },
    [SQL_ORPHAN_REMOVE] = { WHOLE, "DELETE FROM orphans WHERE id = ?" },

    [SQL_EVENT_ADD] = { WHOLE, "INSERT INTO events (seq, at_ms, kind, actor, text, detail, sandbox)"
                               " SELECT 1 + max((SELECT seq FROM event_floor),"
                               " ifnull((SELECT max(seq) FROM events), 0)), ?, ?, ?, ?, ?, n"
                               " FROM sandboxes WHERE id = ?" },
    [SQL_EVENT_FLOOR] = { WHOLE, "UPDATE event_floor SET seq = max(seq,"
                                 " ifnull((SELECT max(seq) FROM events), 0))" },
    [SQL_EVENT_LIST] = { WHOLE, "SELECT e.seq, e.at_ms, e.kind, e.actor, e.text, e.detail, s.id"
                                " FROM sandboxes s JOIN events e ON e.sandbox = s.n"
                                " WHERE s.id = ? AND e.seq > ? ORDER BY e.seq LIMIT ?" },

    [SQL_USER_ADD] = { WHOLE, "INSERT INTO users (name, role, password, locked, multi_login,"
                              " created_ms) VALUES (?, ?, ?, ?, ?, ?)" },
    [SQL_USER_CHANGE] = { WHOLE, "UPDATE users SET role = ifnull(?, role),"
                                 " password = ifnull(?, password), locked = ifnull(?, locked),"
                                 " multi_login = ifnull(?, multi_login) WHERE id = ?" },
    [SQL_USER_BY_NAME] = { WHOLE, "SELECT " USER_COLUMNS " FROM users WHERE name = ?" },
    [SQL_USER_BY_ID] = { WHOLE, "SELECT " USER_COLUMNS " FROM users WHERE id = ?" },
    [SQL_USER_LIST] = { WHOLE, "SELECT " USER_COLUMNS " FROM users ORDER BY id" },

    [SQL_KEY_ADD] = { WHOLE, "INSERT INTO keys (" KEY_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?)" },
    [SQL_KEY_BY_HASH] = { WHOLE, "SELECT " KEY_COLUMNS " FROM keys WHERE hash = ?" },
    [SQL_KEY_LIST] = { WHOLE, "SELECT " KEY_COLUMNS " FROM keys WHERE user = ?1 OR ?1 = 0"
                              " ORDER BY created_ms, id" },
    [SQL_KEY_USED] = { WHOLE, "UPDATE keys SET used_ms = max(used_ms, ?) WHERE id = ?" },
    [SQL_KEY_REMOVE] = { WHOLE, "DELETE FROM keys WHERE id = ?1 AND (user = ?2 OR ?2 = 0)" },

    [SQL_SESSION_ADD] = { WHOLE, "INSERT INTO sessions (" SESSION_COLUMNS ")"
                                 " SELECT ?1, id, ?3, ?4 FROM users"
                                 " WHERE id = ?2 AND password = ?5 AND locked = 0" },
    [SQL_SESSION_RENEW] = { WHOLE, "UPDATE sessions SET id = ?, created_ms = ?, expires_ms = ?"
                                   " WHERE id = ? AND user = ?" },
    [SQL_SESSION_GET] = { WHOLE, "SELECT " SESSION_COLUMNS " FROM sessions WHERE id = ?" },
    [SQL_SESSION_REMOVE] = { WHOLE, "DELETE FROM sessions WHERE id = ?" },
    [SQL_SESSION_CLEAR] = { WHOLE, "DELETE FROM sessions WHERE user = ?" },
    [SQL_SESSION_CLEAR_OTHERS] = { WHOLE, "DELETE FROM sessions WHERE user = ? AND id <> ?" },
    [SQL_SESSION_PRUNE] = { WHOLE, "DELETE FROM sessions WHERE user = ? AND expires_ms <= ?" },

    [SQL_VALUE_GET] = { WHOLE, "SELECT value FROM node_values WHERE name = ?" },
    [SQL_VALUE_SET] = { WHOLE, "INSERT INTO node_values (name, value) VALUES (?, ?)"
                               " ON CONFLICT (name) DO UPDATE SET value = excluded.value" },
    [SQL_VALUE_ONCE] = { WHOLE, "INSERT INTO node_values (name, value) VALUES (?, ?)"
                                " ON CONFLICT (name) DO NOTHING" },

    [SQL_JOB_PUSH] = { WHOLE, "INSERT OR REPLACE INTO jobs (" JOB_COLUMNS ")"
                              " VALUES (?, ?, ?, ?, ?, 0, ?, 0, 0, '')" },
    [SQL_JOB_PUSH_STAY] = { WHOLE,
                            "INSERT INTO jobs (" JOB_COLUMNS ")"
                            " VALUES (?, ?, ?, ?, ?, 0, ?, 0, 0, '')"
                            " ON CONFLICT (topic, key) DO UPDATE SET payload = excluded.payload,"
                            " due_ms = excluded.due_ms, first_ms = excluded.first_ms, attempts = 0,"
                            " attempts_max = excluded.attempts_max, ticket = 0, dead_ms = 0,"
                            " error = '' WHERE dead_ms > 0" },
    [SQL_JOB_EXHAUST] = { WHOLE, "UPDATE jobs SET dead_ms = ?2, ticket = 0,"
                                 " error = 'it was begun ' || attempts || ' times and never done'"
                                 " WHERE topic = ?1 AND dead_ms = 0 AND due_ms <= ?2"
                                 " AND attempts_max > 0 AND attempts >= attempts_max" },
    [SQL_JOB_DUE] = { WHOLE, "SELECT " JOB_COLUMNS " FROM jobs WHERE topic = ? AND dead_ms = 0"
                             " AND due_ms <= ? ORDER BY due_ms, first_ms, key LIMIT ?" },
    [SQL_JOB_TAKE] = { WHOLE, "UPDATE jobs SET due_ms = ?, ticket = ?, attempts = attempts + 1"
                              " WHERE topic = ? AND key = ?" },
    [SQL_JOB_DONE] = { WHOLE,
                       "DELETE FROM jobs WHERE topic = ? AND key = ? AND ticket = ? AND ticket > 0" },
    [SQL_JOB_EXTEND] = { WHOLE, "UPDATE jobs SET due_ms = ?"
                                " WHERE topic = ? AND key = ? AND ticket = ? AND ticket > 0" },
    [SQL_JOB_RETRY] = { WHOLE, "UPDATE jobs SET due_ms = ?, error = ?, ticket = 0"
                               " WHERE topic = ? AND key = ? AND ticket = ? AND ticket > 0" },
    [SQL_JOB_BURY] = { WHOLE, "UPDATE jobs SET dead_ms = ?, error = ?, ticket = 0"
                              " WHERE topic = ? AND key = ? AND ticket = ? AND ticket > 0" },
    [SQL_JOB_REMOVE] = { WHOLE, "DELETE FROM jobs WHERE topic = ? AND key = ?" },
    [SQL_JOB_NEXT] = { WHOLE, "SELECT due_ms FROM jobs WHERE topic = ? AND dead_ms = 0"
                              " ORDER BY due_ms LIMIT 1" },
    [SQL_JOB_DEAD] = { WHOLE, "SELECT " JOB_COLUMNS " FROM jobs"
                              " WHERE dead_ms > 0 AND (topic = ?1 OR ?1 IS NULL)"
                              " ORDER BY dead_ms DESC, topic, key LIMIT ?2" },
    [SQL_JOB_FORGET] = { WHOLE, "DELETE FROM jobs WHERE dead_ms > 0 AND dead_ms < ?" },
    [SQL_JOB_REQUEUE] = { WHOLE, "UPDATE jobs SET due_ms = ?1, first_ms = ?1, attempts = 0,"
                                 " dead_ms = 0, error = ''"
                                 " WHERE topic = ?2 AND key = ?3 AND dead_ms > 0" },
};

/* A parameter has its column's name, and so the number of the place where it first comes. */
enum list { NAMES, PARAMETERS, ASSIGNMENTS };

static void columns(struct buf *out, enum list what)
{
    const char *comma = "";

    for (const struct column *c = column_sandbox; c->name; c++)
        if (what != ASSIGNMENTS || !c->fixed) {
            buf_puts(out, comma);
            buf_printf(out, "%s%s", what == PARAMETERS ? ":" : "", c->name);
            if (what == ASSIGNMENTS)
                buf_printf(out, " = :%s", c->name);
            comma = ", ";
        }
}

static void part_text(enum part part, struct buf *out)
{
    switch (part) {
    case WHOLE: break;
    case SELECT_SANDBOX:
        buf_puts(out, "SELECT ");
        columns(out, NAMES);
        buf_puts(out, " FROM sandboxes");
        break;
    case INSERT_SANDBOX:
        buf_puts(out, "INSERT INTO sandboxes (");
        columns(out, NAMES);
        buf_puts(out, ", live) VALUES (");
        columns(out, PARAMETERS);
        buf_puts(out, ", :live)");
        break;
    case UPDATE_SANDBOX:
        buf_puts(out, "UPDATE sandboxes SET ");
        columns(out, ASSIGNMENTS);
        break;
    }
}

void sqlite_sql(enum sql which, struct buf *out)
{
    part_text(texts[which].part, out);
    buf_puts(out, texts[which].rest);
}
