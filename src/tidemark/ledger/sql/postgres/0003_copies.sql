-- How far each copy of the ledger is (the mirror, what is landed), as whoever keeps it last said, and
-- what keeps it from going on, if something does.
CREATE TABLE copies (
    name          text   PRIMARY KEY,
    last_sequence bigint NOT NULL,
    received_at   bigint NOT NULL,
    told_at       bigint NOT NULL,
    code          text,
    message       text,
    hint          text
);

-- Where the mirror has put events: for some that follow one another, partitions and then offsets.
CREATE TABLE mirrored (
    first_sequence bigint PRIMARY KEY,
    last_sequence  bigint NOT NULL CHECK (last_sequence >= first_sequence),
    places         bytea  NOT NULL
);
