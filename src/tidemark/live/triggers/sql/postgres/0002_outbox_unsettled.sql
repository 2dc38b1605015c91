-- The oldest event of a trigger that is neither delivered nor given up.
CREATE INDEX outbox_unsettled ON outbox (trigger_name, received_at) WHERE settled_at IS NULL;
