-- Times are microseconds since 1970 UTC: `since`, `until`, `position` and `received_at` are source
-- timestamps, all others wall time. Text sorts by code point everywhere.

-- One row. Whoever writes locks it first, so that of two that settle and enqueue events of the same
-- row each sees what the other did.
CREATE TABLE writer (singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton));
INSERT INTO writer DEFAULT VALUES;

-- One row for each life of a name: a trigger that was removed or replaced stays as history, so that
-- a replay knows when it lived. Lives that have replaced each other have their `lineage` in common.
-- `match`, `unmatch` and `creator` are JSON.
CREATE TABLE triggers (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lineage         bigint  NOT NULL,
    name            text COLLATE "C" NOT NULL,
    view            text COLLATE "C" NOT NULL,
    webhook         text    NOT NULL,
    match           text    NOT NULL,
    unmatch         text,
    creator         text,
    origin          text    NOT NULL,
    since           bigint  NOT NULL,
    until           bigint,
    position        bigint  NOT NULL CHECK (position >= since AND (until IS NULL OR position <= until)),
    enabled         boolean NOT NULL,
    disabled_reason text,
    created_at      bigint  NOT NULL,
    finished        boolean NOT NULL
        GENERATED ALWAYS AS (until IS NOT NULL AND position >= until) STORED
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX triggers_name ON triggers (name) WHERE until IS NULL;
CREATE INDEX triggers_unfinished ON triggers (name, id) WHERE NOT finished;

-- The keys of rows that are matched although neither condition of their trigger holds for them now.
CREATE TABLE held_keys (
    trigger_id bigint NOT NULL,
    row_key    text COLLATE "C" NOT NULL,
    PRIMARY KEY (trigger_id, row_key)
);

-- Of the events of one trigger and row at most one is pending or delivering, and has `due_at`: when
-- it may be claimed, or claimed again. Those behind it are waiting.
CREATE TABLE outbox (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id         text COLLATE "C" NOT NULL UNIQUE,
    lineage          bigint NOT NULL,
    trigger_name     text COLLATE "C" NOT NULL,
    event_type       text   NOT NULL,
    row_key          text COLLATE "C" NOT NULL,
    received_at      bigint NOT NULL,
    payload          bytea  NOT NULL,
    status           text COLLATE "C" NOT NULL
        CHECK (status IN ('waiting', 'pending', 'delivering', 'delivered', 'dead')),
    due_at           bigint CHECK ((due_at IS NOT NULL) = (status IN ('pending', 'delivering'))),
    attempts         integer NOT NULL DEFAULT 0,
    first_attempt_at bigint,
    last_status      integer,
    last_error       text,
    created_at       bigint NOT NULL,
    settled_at       bigint CHECK ((settled_at IS NOT NULL) = (status IN ('delivered', 'dead')))
);
CREATE INDEX outbox_due ON outbox (trigger_name, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX outbox_row ON outbox (trigger_name, row_key, status, id);
CREATE INDEX outbox_status ON outbox (status, lineage, id);
CREATE INDEX outbox_settled ON outbox (status, settled_at) WHERE settled_at IS NOT NULL;

CREATE TABLE delivery_attempts (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    outbox_id    bigint NOT NULL,
    attempted_at bigint NOT NULL,
    status       text   NOT NULL,
    http_status  integer,
    error        text
);
CREATE INDEX delivery_attempts_event ON delivery_attempts (outbox_id, id);
