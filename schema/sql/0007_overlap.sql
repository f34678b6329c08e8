-- +goose Up
-- +goose ENVSUB ON
-- How much of the time was reported twice or claimed by more than the unit has.
-- Rows that were computed before have zeros until they are computed anew:
-- gpumeter rebuild does that for all, and until then the auditor tells the hours
-- that differ.
-- +goose StatementBegin
ALTER TABLE usage_minute
    ADD COLUMN IF NOT EXISTS overlap_ms        UInt64 DEFAULT 0 COMMENT 'milliseconds of the time that several events of the instance reported, counted once' AFTER energy_ms,
    ADD COLUMN IF NOT EXISTS oversubscribed_ms UInt64 DEFAULT 0 COMMENT 'milliseconds of the time in which the instances of the unit claimed more than all of it' AFTER overlap_ms;
-- +goose StatementEnd
-- +goose StatementBegin
ALTER TABLE usage_hour
    ADD COLUMN IF NOT EXISTS overlap_ms        UInt64 DEFAULT 0 COMMENT 'milliseconds of the time that several events of the instance reported, counted once' AFTER energy_ms,
    ADD COLUMN IF NOT EXISTS oversubscribed_ms UInt64 DEFAULT 0 COMMENT 'milliseconds of the time in which the instances of the unit claimed more than all of it' AFTER overlap_ms;
-- +goose StatementEnd
