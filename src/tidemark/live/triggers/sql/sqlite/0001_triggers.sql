-- Times are microseconds since 1970 UTC: `since`, `until`, `position` and `received_at` are source
-- timestamps, all others wall time. Text sorts by code point everywhere.

-- One row for each life of a name: a trigger that was removed or replaced stays as history, so that
-- a replay knows when it lived. Lives that have replaced each other have their `lineage` in common.
-- `match`, `unmatch` and `creator` are JSON.
CREATE TABLE triggers (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    lineage         INTEGER NOT NULL,
    name            TEXT    NOT NULL,
    view            TEXT    NOT NULL,
    webhook         TEXT    NOT NULL,
    match           TEXT    NOT NULL,
    unmatch         TEXT,
    creator         TEXT,
    origin          TEXT    NOT NULL,
    since           INTEGER NOT NULL,
    until           INTEGER,
    position        INTEGER NOT NULL CHECK (position >= since AND (until IS NULL OR position <= until)),
    enabled         INTEGER NOT NULL,
    disabled_reason TEXT,
    created_at      INTEGER NOT NULL,
    finished        INTEGER NOT NULL
        GENERATED ALWAYS AS (until IS NOT NULL AND position >= until) VIRTUAL
) STRICT;
CREATE UNIQUE INDEX triggers_name ON triggers (name) WHERE until IS NULL;
CREATE INDEX triggers_unfinished ON triggers (name, id) WHERE NOT finished;

-- The keys of rows that are matched although neither condition of their trigger holds for them now.
CREATE TABLE held_keys (
    trigger_id INTEGER NOT NULL,
    row_key    TEXT    NOT NULL,
    PRIMARY KEY (trigger_id, row_key)
) STRICT, WITHOUT ROWID;

-- Of the events of one trigger and row at most one is pending or delivering, and has `due_at`: when
-- it may be claimed, or claimed again. Those behind it are waiting.
CREATE TABLE outbox (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id         TEXT    NOT NULL UNIQUE,
    lineage          INTEGER NOT NULL,
    trigger_name     TEXT    NOT NULL,
    event_type       TEXT    NOT NULL,
    row_key          TEXT    NOT NULL,
    received_at      INTEGER NOT NULL,
    payload          BLOB    NOT NULL,
    status           TEXT    NOT NULL
        CHECK (status IN ('waiting', 'pending', 'delivering', 'delivered', 'dead')),
    due_at           INTEGER CHECK ((due_at IS NOT NULL) = (status IN ('pending', 'delivering'))),
    attempts         INTEGER NOT NULL DEFAULT 0,
    first_attempt_at INTEGER,
    last_status      INTEGER,
    last_error       TEXT,
    created_at       INTEGER NOT NULL,
    settled_at       INTEGER CHECK ((settled_at IS NOT NULL) = (status IN ('delivered', 'dead')))
) STRICT;
CREATE INDEX outbox_due ON outbox (trigger_name, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX outbox_row ON outbox (trigger_name, row_key, status, id);
CREATE INDEX outbox_status ON outbox (status, lineage, id);
CREATE INDEX outbox_settled ON outbox (status, settled_at) WHERE settled_at IS NOT NULL;

CREATE TABLE delivery_attempts (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    outbox_id    INTEGER NOT NULL,
    attempted_at INTEGER NOT NULL,
    status       TEXT    NOT NULL,
    http_status  INTEGER,
    error        TEXT
) STRICT;
CREATE INDEX delivery_attempts_event ON delivery_attempts (outbox_id, id);
