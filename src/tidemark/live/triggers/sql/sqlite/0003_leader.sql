-- What the process that leads has said last, in at most one row: when, and what is wrong, if
-- something is.
CREATE TABLE leader (
    singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
    told_at   INTEGER NOT NULL,
    code      TEXT,
    message   TEXT,
    hint      TEXT
) STRICT;
