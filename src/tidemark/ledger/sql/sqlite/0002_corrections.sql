-- Who corrected an event: corrections name it by its key. They are few, and so are the entries.
CREATE INDEX events_target ON events (tenant_id, target_key) WHERE target_key IS NOT NULL;
