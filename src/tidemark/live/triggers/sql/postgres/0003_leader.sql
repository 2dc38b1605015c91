-- What the process that leads has said last, in at most one row: when, and what is wrong, if
-- something is.
CREATE TABLE leader (
    singleton integer PRIMARY KEY CHECK (singleton = 1),
    told_at   bigint NOT NULL,
    code      text,
    message   text,
    hint      text
);
