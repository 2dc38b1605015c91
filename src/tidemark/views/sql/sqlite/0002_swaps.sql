-- When the view became what it is by a swap; 0 if it was never another. What its log has up to then
-- is of the version before.
ALTER TABLE views ADD COLUMN swapped_at INTEGER NOT NULL DEFAULT 0;

-- What a view was before a swap, kept until someone drops it. The rows are in `view_<name>`.
CREATE TABLE old_views (
    name            TEXT PRIMARY KEY NOT NULL,
    view            TEXT    NOT NULL,
    version         INTEGER NOT NULL,
    swap            TEXT    NOT NULL,
    swapped_at      INTEGER NOT NULL,
    definition_hash TEXT    NOT NULL
) STRICT;
