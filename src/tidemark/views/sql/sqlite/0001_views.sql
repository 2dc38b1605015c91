-- Times are microseconds since 1970 UTC. Decimals are text that sorts as the numbers do. The rows
-- of a view are in a table of its own, `view_<name>`, which is made when the view is declared.

-- One row. Whoever writes holds the database's write lock; readers never look beyond it. Without a
-- ledger the views are empty.
CREATE TABLE frontier (
    singleton        INTEGER PRIMARY KEY DEFAULT 1 CHECK (singleton = 1),
    ingress_sequence INTEGER NOT NULL,
    received_at      INTEGER NOT NULL,
    chain            BLOB    NOT NULL CHECK (length(chain) = 32),
    ledger_id        TEXT    CHECK (ledger_id IS NOT NULL OR received_at = 0)
) STRICT;
INSERT INTO frontier (ingress_sequence, received_at, chain) VALUES (0, 0, zeroblob(32));

-- `columns` and `key` are JSON. The log of a view has every change after `log_floor`.
CREATE TABLE views (
    name            TEXT PRIMARY KEY NOT NULL,
    version         INTEGER NOT NULL,
    definition_hash TEXT    NOT NULL,
    columns         TEXT    NOT NULL,
    key             TEXT    NOT NULL,
    logged          INTEGER NOT NULL,
    log_floor       INTEGER NOT NULL
) STRICT;

-- One change at most per view, commit and key: no two batches hold the same commit, and no batch is
-- written that has a change twice. An index over the keys would say it again and cost as much as
-- the rows.
CREATE TABLE view_changes (
    view        TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    row_key     TEXT NOT NULL,
    op          TEXT NOT NULL,
    old_row     TEXT,
    row         TEXT,
    changed     TEXT,
    -- One CASE, because four conditions cost half as much as the row.
    CHECK (CASE op
        WHEN 'insert' THEN old_row IS NULL AND row IS NOT NULL AND changed IS NULL
        WHEN 'update' THEN old_row IS NOT NULL AND row IS NOT NULL AND changed IS NOT NULL
        WHEN 'delete' THEN old_row IS NOT NULL AND row IS NULL AND changed IS NULL
        ELSE false
    END)
) STRICT;
CREATE INDEX view_changes_order ON view_changes (view, received_at);

CREATE TABLE adjustments (
    ingress_sequence  INTEGER NOT NULL,
    view              TEXT    NOT NULL,
    part              INTEGER NOT NULL,
    received_at       INTEGER NOT NULL,
    tenant_id         TEXT    NOT NULL,
    metric            TEXT    NOT NULL,
    customer_ref      TEXT    NOT NULL,
    group_values      TEXT    NOT NULL,
    period_start      INTEGER NOT NULL,
    amount            TEXT    NOT NULL,
    reason            TEXT    NOT NULL,
    idempotency_key   TEXT    NOT NULL,
    original_key      TEXT,
    original_sequence INTEGER,
    PRIMARY KEY (ingress_sequence, view, part)
) STRICT;
-- A whole tenant may be longer than an index entry of PostgreSQL can be, and queries are the same.
CREATE INDEX adjustments_tenant
    ON adjustments (substr(tenant_id, 1, 200), ingress_sequence, view, part);
CREATE INDEX adjustments_original ON adjustments (original_sequence)
    WHERE original_sequence IS NOT NULL;

CREATE TABLE pipeline_errors (
    ingress_sequence INTEGER NOT NULL,
    stage            TEXT    NOT NULL,
    received_at      INTEGER NOT NULL,
    code             TEXT    NOT NULL,
    message          TEXT    NOT NULL,
    tenant_id        TEXT    NOT NULL,
    stream           TEXT    NOT NULL,
    idempotency_key  TEXT    NOT NULL,
    PRIMARY KEY (ingress_sequence, stage)
) STRICT;

CREATE TABLE pipeline_state (
    name  TEXT PRIMARY KEY NOT NULL,
    value BLOB NOT NULL
) STRICT;
