-- +goose Up
-- +goose ENVSUB ON
-- Hours of which usage_hour has rows that were computed from the events at once, so
-- that usage_minute need not have theirs. What needs a part of such an hour is
-- computed from the events; a window of it that is touched later is computed with
-- all the other minutes of its hour. Derived like usage_minute: a rebuild computes
-- all minutes and empties this.
-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS coarse
(
    tenant LowCardinality(String) COMMENT 'customer of the installation',
    from   DateTime('UTC')        COMMENT 'start of the first such hour, inclusive',
    to     DateTime('UTC')        COMMENT 'end of the last one, exclusive'
)
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}MergeTree
ORDER BY (tenant, from)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'spans whose usage is kept per hour and not per minute';
-- +goose StatementEnd
