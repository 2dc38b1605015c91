-- Times are microseconds since 1970 UTC. Text sorts by code point everywhere.

-- One row. Its lock is the sequencer: it is held from the first number given to the commit.
CREATE TABLE ledger (
    singleton     boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    ledger_id     text   NOT NULL,
    salt          text   NOT NULL,
    created_at    bigint NOT NULL,
    last_sequence bigint NOT NULL,
    received_at   bigint NOT NULL,
    chain         bytea  NOT NULL CHECK (octet_length(chain) = 32),
    clock_anchor  text,
    clock_hold    text
);

CREATE TABLE commits (
    received_at    bigint PRIMARY KEY,
    first_sequence bigint NOT NULL,
    last_sequence  bigint NOT NULL CHECK (last_sequence >= first_sequence - 1),
    chain          bytea  NOT NULL CHECK (octet_length(chain) = 32)
);

-- key_digest is what makes an event one: the digest of tenant and key, half the size of the two
-- texts and with an index that stays in memory four times longer.
CREATE TABLE events (
    ingress_sequence bigint PRIMARY KEY,
    received_at      bigint NOT NULL,
    occurred_at      bigint NOT NULL,
    key_digest       bytea  NOT NULL,
    content_hash     bytea  NOT NULL,
    tenant_id        text COLLATE "C" NOT NULL,
    stream           text COLLATE "C" NOT NULL,
    idempotency_key  text COLLATE "C" NOT NULL,
    metric           text COLLATE "C",
    customer_ref     text COLLATE "C",
    resource_id      text COLLATE "C",
    quantity         numeric,
    data             text COLLATE "C",
    causality_key    text COLLATE "C",
    source           text COLLATE "C",
    source_id        text COLLATE "C",
    control          text COLLATE "C",
    target_key       text COLLATE "C",
    global_sequence  bigint
);
CREATE UNIQUE INDEX events_key ON events (key_digest);
-- In blocks of 65,536 sequences: new entries then fall into the pages of the newest block only, which
-- stay in memory however large the ledger is. A reader asks for the blocks it wants, by number.
CREATE INDEX events_usage
    ON events ((ingress_sequence >> 16), tenant_id, metric, customer_ref, occurred_at)
    WHERE metric IS NOT NULL;
CREATE INDEX events_causality ON events (causality_key, ingress_sequence)
    WHERE causality_key IS NOT NULL;

CREATE TABLE ingest_rejects (
    reject_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rejected_at       bigint NOT NULL,
    request_id        text   NOT NULL,
    position          integer NOT NULL,
    status            text   NOT NULL,
    code              text   NOT NULL,
    message           text   NOT NULL,
    hint              text   NOT NULL,
    field             text,
    tenant_id         text COLLATE "C",
    stream            text COLLATE "C",
    idempotency_key   text COLLATE "C",
    original_sequence bigint,
    body              text   NOT NULL
);
CREATE INDEX ingest_rejects_key ON ingest_rejects (tenant_id, idempotency_key);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is append-only: % on % is refused', TG_OP, TG_TABLE_NAME
        USING HINT = 'Send a void or amend control event instead.';
END
$$;
CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER commits_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON commits
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
