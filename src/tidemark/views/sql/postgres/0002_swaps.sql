-- When the view became what it is by a swap; 0 if it was never another. What its log has up to then
-- is of the version before.
ALTER TABLE views ADD COLUMN swapped_at bigint NOT NULL DEFAULT 0;

-- What a view was before a swap, kept until someone drops it. The rows are in `view_<name>`.
CREATE TABLE old_views (
    name            text COLLATE "C" PRIMARY KEY,
    view            text COLLATE "C" NOT NULL,
    version         integer NOT NULL,
    swap            text COLLATE "C" NOT NULL,
    swapped_at      bigint NOT NULL,
    definition_hash text COLLATE "C" NOT NULL
);
