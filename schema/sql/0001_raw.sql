-- +goose Up
-- +goose ENVSUB ON
-- The truth: every distinct event as it was accepted. Rows are never changed.
--
-- Redelivery inserts the same row again. The ordering key holds identity and
-- payload, so equal copies collapse when parts merge, and two different events
-- under one identity (a conflict) both stay. Reads never rely on a merge having
-- happened: they deduplicate by (tenant, source, id).
--
-- stored_at is when the stream stored the message, not when a consumer wrote it:
-- it is the same on every redelivery and replay, it orders the copies of one
-- identity ("the first stored one counts") and it answers "as known on date X".
-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS raw_usage
(
    tenant             LowCardinality(String) COMMENT 'customer of the installation, taken from the subject',
    span               UInt8                  COMMENT 'length class: 0 up to 1 min, 1 up to 1 h, 2 up to 1 day, 3 longer; bounds how far back a window has to look',
    minute             DateTime('UTC')        COMMENT 'start, cut down to the minute',
    unit_hash          UInt64                 COMMENT 'xxHash64 of unit; selects units without comparing text',
    unit               String                 COMMENT 'accounting unit: GPU-<uuid>, or GPU-<uuid>/gi/<n> for a MIG GPU instance',
    start              DateTime64(3, 'UTC')   COMMENT 'start of the interval, inclusive',
    end                DateTime64(3, 'UTC')   COMMENT 'end of the interval, exclusive',
    source             LowCardinality(String) COMMENT 'producer, e.g. agent/node-7',
    id                 String                 COMMENT 'identity within the source, made before the first send',
    payload            FixedString(16)        COMMENT 'first 128 bits of the SHA-256 of what the event says',
    time               Nullable(DateTime64(3, 'UTC')) COMMENT 'when the producer made the event',
    sequence           UInt64                 COMMENT 'count of events of the source, from 1; 0 = the source does not count',
    instance           String                 COMMENT 'rental or workload that holds the unit; empty = nobody',
    project            LowCardinality(String) COMMENT 'who pays inside the tenant',
    node               LowCardinality(String) COMMENT 'host of the unit',
    platform           LowCardinality(String) COMMENT 'where it is rented',
    region             LowCardinality(String) COMMENT 'region of the platform',
    model              LowCardinality(String) COMMENT 'hardware model as the driver names it',
    utilization        Nullable(UInt32)       COMMENT 'mean activity in millionths, 0 to 1000000; null = unknown',
    active_ms          Nullable(UInt64)       COMMENT 'active part of the interval, milliseconds; null = not given',
    idle_ms            Nullable(UInt64)       COMMENT 'idle part of the interval, milliseconds; null = not given',
    memory_used_bytes  Nullable(UInt64)       COMMENT 'mean memory in use, bytes; null = unknown',
    memory_total_bytes Nullable(UInt64)       COMMENT 'memory of the unit, bytes; null = unknown',
    energy_mj          Nullable(UInt64)       COMMENT 'energy of the interval, millijoules; null = unknown',
    share              Nullable(UInt32)       COMMENT 'part of the unit that the owner holds, billionths; null = not given',
    labels             String                 COMMENT 'JSON object of labels, keys sorted; empty = none',
    stream             LowCardinality(String) COMMENT 'stream that delivered the event',
    epoch              UInt64                 COMMENT 'creation of that stream, Unix nanoseconds; sequences are only comparable within one epoch',
    stream_sequence    UInt64                 COMMENT 'sequence of the message in the stream',
    place              UInt32                 COMMENT 'position of the event in the message, from 0',
    stored_at          DateTime64(9, 'UTC')   COMMENT 'when the stream stored the message',
    first              Int64                  COMMENT 'minus stored_at in nanoseconds: on merge the copy stored first stays'
)
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree(first)
PARTITION BY toYYYYMM(start)
PRIMARY KEY (tenant, span, minute, unit_hash)
ORDER BY (tenant, span, minute, unit_hash, unit, start, source, id, payload)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'usage events: one unit over one interval';
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS raw_lease
(
    tenant          LowCardinality(String) COMMENT 'customer of the installation, taken from the subject',
    instance        String                 COMMENT 'instance that changed its state',
    at              DateTime64(3, 'UTC')   COMMENT 'instant of the change',
    source          LowCardinality(String) COMMENT 'producer',
    id              String                 COMMENT 'identity within the source',
    payload         FixedString(16)        COMMENT 'first 128 bits of the SHA-256 of what the event says',
    time            Nullable(DateTime64(3, 'UTC')) COMMENT 'when the producer made the event',
    sequence        UInt64                 COMMENT 'count of events of the source, from 1; 0 = the source does not count',
    event           String                 COMMENT 'the event as canonical CloudEvents JSON',
    stream          LowCardinality(String) COMMENT 'stream that delivered the event',
    epoch           UInt64                 COMMENT 'creation of that stream, Unix nanoseconds',
    stream_sequence UInt64                 COMMENT 'sequence of the message in the stream',
    place           UInt32                 COMMENT 'position of the event in the message, from 0',
    stored_at       DateTime64(9, 'UTC')   COMMENT 'when the stream stored the message',
    first           Int64                  COMMENT 'minus stored_at in nanoseconds'
)
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree(first)
PARTITION BY toYYYYMM(at)
ORDER BY (tenant, instance, at, source, id, payload)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'lease events: an instance changes its state at an instant';
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS raw_meter
(
    tenant          LowCardinality(String) COMMENT 'customer of the installation, taken from the subject',
    instance        String                 COMMENT 'instance that caused the quantity; empty when only the project is known',
    at              DateTime64(3, 'UTC')   COMMENT 'start of the interval, inclusive',
    source          LowCardinality(String) COMMENT 'producer',
    id              String                 COMMENT 'identity within the source',
    payload         FixedString(16)        COMMENT 'first 128 bits of the SHA-256 of what the event says',
    time            Nullable(DateTime64(3, 'UTC')) COMMENT 'when the producer made the event',
    sequence        UInt64                 COMMENT 'count of events of the source, from 1; 0 = the source does not count',
    event           String                 COMMENT 'the event as canonical CloudEvents JSON',
    stream          LowCardinality(String) COMMENT 'stream that delivered the event',
    epoch           UInt64                 COMMENT 'creation of that stream, Unix nanoseconds',
    stream_sequence UInt64                 COMMENT 'sequence of the message in the stream',
    place           UInt32                 COMMENT 'position of the event in the message, from 0',
    stored_at       DateTime64(9, 'UTC')   COMMENT 'when the stream stored the message',
    first           Int64                  COMMENT 'minus stored_at in nanoseconds'
)
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree(first)
PARTITION BY toYYYYMM(at)
ORDER BY (tenant, instance, at, source, id, payload)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'meter events: another metered quantity over an interval';
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS raw_outage AS raw_meter
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree(first)
PARTITION BY toYYYYMM(at)
ORDER BY (tenant, instance, at, source, id, payload)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'outage events: a span in which a platform did not deliver; instance is empty when the whole platform is meant';
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS raw_correction AS raw_meter
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree(first)
PARTITION BY toYYYYMM(at)
ORDER BY (tenant, instance, at, source, id, payload)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'correction events; at is the time of the correction (of storing, when it gives none), instance is empty';
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS quarantine
(
    tenant          LowCardinality(String) COMMENT 'customer, from the subject; empty when the subject could not be read',
    stored_at       DateTime64(9, 'UTC')   COMMENT 'when the stream stored the message',
    stream          LowCardinality(String) COMMENT 'stream that delivered the message',
    epoch           UInt64                 COMMENT 'creation of that stream, Unix nanoseconds',
    stream_sequence UInt64                 COMMENT 'sequence of the message in the stream',
    place           Int32                  COMMENT 'position of the event in the message, -1 = the whole message',
    subject         String                 COMMENT 'subject it came on',
    content_type    String                 COMMENT 'content type of raw',
    kind            LowCardinality(String) COMMENT 'kind of fault: malformed, unknown_type, missing_field, invalid_value, misdirected, too_large',
    reason          String                 COMMENT 'what is wrong, with the field',
    raw             String                 COMMENT 'the bytes as they came',
    redriven_at     DateTime64(3, 'UTC')   COMMENT 'when it was last driven again; 1970-01-01 = never'
)
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree(redriven_at)
PARTITION BY toYYYYMM(stored_at)
ORDER BY (tenant, stream, epoch, stream_sequence, place)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'what could not be accepted, whole, with the reason';
-- +goose StatementEnd
