-- Times are microseconds since 1970 UTC. Quantities are text that sorts as the numbers do.

-- One row. Whoever holds the database's write lock reads it, gives numbers and writes it back.
CREATE TABLE ledger (
    singleton     INTEGER PRIMARY KEY DEFAULT 1 CHECK (singleton = 1),
    ledger_id     TEXT    NOT NULL,
    salt          TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    received_at   INTEGER NOT NULL,
    chain         BLOB    NOT NULL CHECK (length(chain) = 32),
    clock_anchor  TEXT,
    clock_hold    TEXT
) STRICT;

CREATE TABLE commits (
    received_at    INTEGER PRIMARY KEY,
    first_sequence INTEGER NOT NULL,
    last_sequence  INTEGER NOT NULL CHECK (last_sequence >= first_sequence - 1),
    chain          BLOB    NOT NULL CHECK (length(chain) = 32)
) STRICT;

-- key_digest is what makes an event one: the digest of tenant and key, half the size of the two
-- texts and with an index that stays in memory four times longer.
CREATE TABLE events (
    ingress_sequence INTEGER PRIMARY KEY,
    received_at      INTEGER NOT NULL,
    occurred_at      INTEGER NOT NULL,
    key_digest       BLOB NOT NULL,
    content_hash     BLOB NOT NULL,
    tenant_id        TEXT NOT NULL,
    stream           TEXT NOT NULL,
    idempotency_key  TEXT NOT NULL,
    metric           TEXT,
    customer_ref     TEXT,
    resource_id      TEXT,
    quantity         TEXT,
    data             TEXT,
    causality_key    TEXT,
    source           TEXT,
    source_id        TEXT,
    control          TEXT,
    target_key       TEXT,
    global_sequence  INTEGER
) STRICT;
CREATE UNIQUE INDEX events_key ON events (key_digest);
-- In blocks of 65,536 sequences: new entries then fall into the pages of the newest block only, and
-- a ledger of millions takes events twice as fast. A reader asks for the blocks it wants, by number.
CREATE INDEX events_usage
    ON events (ingress_sequence >> 16, tenant_id, metric, customer_ref, occurred_at)
    WHERE metric IS NOT NULL;
CREATE INDEX events_causality ON events (causality_key, ingress_sequence)
    WHERE causality_key IS NOT NULL;

CREATE TABLE ingest_rejects (
    reject_id         INTEGER PRIMARY KEY AUTOINCREMENT,
    rejected_at       INTEGER NOT NULL,
    request_id        TEXT    NOT NULL,
    position          INTEGER NOT NULL,
    status            TEXT    NOT NULL,
    code              TEXT    NOT NULL,
    message           TEXT    NOT NULL,
    hint              TEXT    NOT NULL,
    field             TEXT,
    tenant_id         TEXT,
    stream            TEXT,
    idempotency_key   TEXT,
    original_sequence INTEGER,
    body              TEXT    NOT NULL
) STRICT;
CREATE INDEX ingest_rejects_key ON ingest_rejects (tenant_id, idempotency_key);

CREATE TRIGGER events_no_update BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: UPDATE on events is refused'); END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: DELETE on events is refused'); END;
CREATE TRIGGER commits_no_update BEFORE UPDATE ON commits
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: UPDATE on commits is refused'); END;
CREATE TRIGGER commits_no_delete BEFORE DELETE ON commits
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: DELETE on commits is refused'); END;

-- INSERT OR REPLACE deletes what stands in its way without asking the triggers above. New events lie
-- beyond the ledger's last sequence, and the key's index page is needed for the insert anyway.
CREATE TRIGGER events_no_replace BEFORE INSERT ON events
    WHEN NEW.ingress_sequence <= (SELECT last_sequence FROM ledger)
        OR EXISTS (SELECT 1 FROM events WHERE key_digest = NEW.key_digest)
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: REPLACE on events is refused'); END;
CREATE TRIGGER commits_no_replace BEFORE INSERT ON commits
    WHEN NEW.received_at <= (SELECT received_at FROM ledger)
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: REPLACE on commits is refused'); END;
