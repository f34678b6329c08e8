-- +goose Up
-- +goose ENVSUB ON
-- An event that ends later than it may is a good event that came too early: it is
-- set aside like what cannot be accepted, and published again when its time comes.
-- What was set aside before has none of this and waits for nothing.
-- +goose StatementBegin
ALTER TABLE quarantine
    ADD COLUMN IF NOT EXISTS due_at   DateTime64(3, 'UTC')   COMMENT 'end of an event that is held until then; 1970-01-01 = not held, set aside for good',
    ADD COLUMN IF NOT EXISTS source   LowCardinality(String) COMMENT 'producer of an event that is held; empty = not held',
    ADD COLUMN IF NOT EXISTS ahead_ms UInt64                 COMMENT 'by how much at least the clock of the source was ahead when it sent an event that is held, milliseconds',
    MODIFY COLUMN kind LowCardinality(String) COMMENT 'kind of fault: malformed, unknown_type, missing_field, invalid_value, misdirected, too_large; or future = held until due_at',
    MODIFY COLUMN redriven_at DateTime64(3, 'UTC') COMMENT 'when it was first driven again; 1970-01-01 = never'
-- +goose StatementEnd
