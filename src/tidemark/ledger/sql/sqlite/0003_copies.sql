-- How far each copy of the ledger is (the mirror, what is landed), as whoever keeps it last said, and
-- what keeps it from going on, if something does.
CREATE TABLE copies (
    name          TEXT    PRIMARY KEY,
    last_sequence INTEGER NOT NULL,
    received_at   INTEGER NOT NULL,
    told_at       INTEGER NOT NULL,
    code          TEXT,
    message       TEXT,
    hint          TEXT
) STRICT;

-- Where the mirror has put events: for some that follow one another, partitions and then offsets.
CREATE TABLE mirrored (
    first_sequence INTEGER PRIMARY KEY,
    last_sequence  INTEGER NOT NULL CHECK (last_sequence >= first_sequence),
    places         BLOB    NOT NULL
) STRICT;
