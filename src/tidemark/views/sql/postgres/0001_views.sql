-- Times are microseconds since 1970 UTC. Text sorts by code point everywhere. The rows of a view
-- are in a table of its own, `view_<name>`, which is made when the view is declared.

-- One row. Whoever writes locks it first; readers never look beyond it. Without a ledger the views
-- are empty.
CREATE TABLE frontier (
    singleton        boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    ingress_sequence bigint NOT NULL,
    received_at      bigint NOT NULL,
    chain            bytea  NOT NULL CHECK (octet_length(chain) = 32),
    ledger_id        text   CHECK (ledger_id IS NOT NULL OR received_at = 0)
);
INSERT INTO frontier (ingress_sequence, received_at, chain) VALUES (0, 0, decode(repeat('00', 32), 'hex'));

-- `columns` and `key` are JSON. The log of a view has every change after `log_floor`.
CREATE TABLE views (
    name            text COLLATE "C" PRIMARY KEY,
    version         integer NOT NULL,
    definition_hash text    NOT NULL,
    columns         text    NOT NULL,
    key             text    NOT NULL,
    logged          boolean NOT NULL,
    log_floor       bigint  NOT NULL
);

-- One change at most per view, commit and key: no two batches hold the same commit, and no batch is
-- written that has a change twice. An index over the keys would say it again and cost as much as
-- the rows.
CREATE TABLE view_changes (
    view        text COLLATE "C" NOT NULL,
    received_at bigint NOT NULL,
    row_key     text COLLATE "C" NOT NULL,
    op          text COLLATE "C" NOT NULL,
    old_row     text COLLATE "C",
    row         text COLLATE "C",
    changed     text COLLATE "C",
    -- One CASE, because four conditions cost half as much as the row.
    CHECK (CASE op
        WHEN 'insert' THEN old_row IS NULL AND row IS NOT NULL AND changed IS NULL
        WHEN 'update' THEN old_row IS NOT NULL AND row IS NOT NULL AND changed IS NOT NULL
        WHEN 'delete' THEN old_row IS NOT NULL AND row IS NULL AND changed IS NULL
        ELSE false
    END)
);
CREATE INDEX view_changes_order ON view_changes (view, received_at);

CREATE TABLE adjustments (
    ingress_sequence  bigint  NOT NULL,
    view              text COLLATE "C" NOT NULL,
    part              integer NOT NULL,
    received_at       bigint  NOT NULL,
    tenant_id         text COLLATE "C" NOT NULL,
    metric            text COLLATE "C" NOT NULL,
    customer_ref      text COLLATE "C" NOT NULL,
    group_values      text COLLATE "C" NOT NULL,
    period_start      bigint  NOT NULL,
    amount            numeric NOT NULL,
    reason            text COLLATE "C" NOT NULL,
    idempotency_key   text COLLATE "C" NOT NULL,
    original_key      text COLLATE "C",
    original_sequence bigint,
    PRIMARY KEY (ingress_sequence, view, part)
);
-- A whole tenant may be longer than an index entry can be.
CREATE INDEX adjustments_tenant
    ON adjustments (substr(tenant_id, 1, 200), ingress_sequence, view, part);
CREATE INDEX adjustments_original ON adjustments (original_sequence)
    WHERE original_sequence IS NOT NULL;

CREATE TABLE pipeline_errors (
    ingress_sequence bigint NOT NULL,
    stage            text COLLATE "C" NOT NULL,
    received_at      bigint NOT NULL,
    code             text   NOT NULL,
    message          text   NOT NULL,
    tenant_id        text COLLATE "C" NOT NULL,
    stream           text COLLATE "C" NOT NULL,
    idempotency_key  text COLLATE "C" NOT NULL,
    PRIMARY KEY (ingress_sequence, stage)
);

CREATE TABLE pipeline_state (
    name  text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL
);
