-- +goose Up
-- +goose ENVSUB ON
-- What proves that nothing is missing, and what is known to be wrong.

-- One row each time that something was learned of an incident: rows are only ever
-- added, so what was known at any instant can be asked for. The newest row of
-- (tenant, kind, key) is its state.
-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS incident
(
    tenant    LowCardinality(String) COMMENT 'customer whose data it touches; empty = all',
    kind      LowCardinality(String) COMMENT 'stream_hole, tail_lost, source_gap, silent, conflict, storage or derived',
    key       String                 COMMENT 'what it is about: with tenant and kind the name of the incident',
    noted_at  DateTime64(3, 'UTC')   COMMENT 'when this was learned',
    detail    String                 COMMENT 'what happened, to whom, and what to do',
    count     Int64                  COMMENT 'how many numbers, messages or contents it is about; of tail_lost the last sequence of the stream then',
    from      DateTime64(3, 'UTC')   COMMENT 'start of the event time it touches, inclusive; 1970-01-01 in both = any time',
    to        DateTime64(3, 'UTC')   COMMENT 'end of the event time it touches, exclusive',
    opened_at DateTime64(3, 'UTC')   COMMENT 'when it was first seen',
    closed_at DateTime64(3, 'UTC')   COMMENT 'when it ended; 1970-01-01 = it is open',
    closed_by String                 COMMENT 'who closed it and why; empty = it ended by itself'
)
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree(closed_at)
ORDER BY (tenant, kind, key, noted_at)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'log of incidents: what makes data incomplete or doubtful, since when and until when';
-- +goose StatementEnd

-- The two tables below only save work: emptied, everything the stream still has is
-- checked again. A row that knows more replaces one that knows less, whoever
-- writes last.
-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS audit_stream
(
    stream    LowCardinality(String) COMMENT 'stream that was checked',
    epoch     UInt64                 COMMENT 'epoch of the stream, Unix nanoseconds',
    verified  UInt64                 COMMENT 'stream sequence up to which every message was found, or is in an incident'
)
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree(verified)
ORDER BY (stream, epoch)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'how far each stream is known to be complete';
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS audit_source
(
    tenant      LowCardinality(String) COMMENT 'customer of the installation',
    source      String                 COMMENT 'producer',
    stream      LowCardinality(String) COMMENT 'stream that its events came by',
    epoch       UInt64                 COMMENT 'epoch of the stream, Unix nanoseconds',
    verified    UInt64                 COMMENT 'stream sequence up to which this row knows the source',
    runs        String                 COMMENT 'JSON array: unbroken runs of the numbers it gave its events',
    live_ends   Int64                  COMMENT 'ends of intervals that were reported soon after they ended',
    interval_ms Int64                  COMMENT 'length of the intervals it reports, milliseconds',
    heard_at    DateTime64(3, 'UTC')   COMMENT 'when the stream stored its newest event'
)
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree(verified)
ORDER BY (tenant, source, stream, epoch)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'which numbers of each source were seen';
-- +goose StatementEnd

-- The auditor reads what a range of messages left; every part holds a narrow range.
-- +goose StatementBegin
ALTER TABLE raw_usage ADD INDEX IF NOT EXISTS by_stream_sequence stream_sequence TYPE minmax GRANULARITY 1;
-- +goose StatementEnd
-- +goose StatementBegin
ALTER TABLE raw_lease ADD INDEX IF NOT EXISTS by_stream_sequence stream_sequence TYPE minmax GRANULARITY 1;
-- +goose StatementEnd
-- +goose StatementBegin
ALTER TABLE raw_meter ADD INDEX IF NOT EXISTS by_stream_sequence stream_sequence TYPE minmax GRANULARITY 1;
-- +goose StatementEnd
-- +goose StatementBegin
ALTER TABLE raw_outage ADD INDEX IF NOT EXISTS by_stream_sequence stream_sequence TYPE minmax GRANULARITY 1;
-- +goose StatementEnd
-- +goose StatementBegin
ALTER TABLE raw_correction ADD INDEX IF NOT EXISTS by_stream_sequence stream_sequence TYPE minmax GRANULARITY 1;
-- +goose StatementEnd
-- +goose StatementBegin
ALTER TABLE usage_identity ADD INDEX IF NOT EXISTS by_stream_sequence stream_sequence TYPE minmax GRANULARITY 1;
-- +goose StatementEnd
