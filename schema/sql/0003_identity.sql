-- +goose Up
-- +goose ENVSUB ON
-- What decides, beside the events of a window, which of them count. Both tables
-- are written by the consumer together with the raw rows, before the marks, and
-- are raw themselves: a rebuild leaves them alone.

-- The id of an agent's event tells its unit and its start, so all copies of such
-- an identity lie at one place of raw_usage, where they are found by key. Every
-- other usage event has a row here, under its identity. told brings those whose
-- id has the form of another place to where that place's own events are looked
-- for; it is 0 for an id that tells nothing.
-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS usage_identity
(
    tenant          LowCardinality(String) COMMENT 'customer of the installation, taken from the subject',
    told            DateTime('UTC')        COMMENT 'minute of the start that the id tells; 1970-01-01 = it tells none',
    source          LowCardinality(String) COMMENT 'producer',
    id              String                 COMMENT 'identity within the source',
    payload         FixedString(16)        COMMENT 'first 128 bits of the SHA-256 of what the event says',
    unit_hash       UInt64                 COMMENT 'xxHash64 of unit',
    unit            String                 COMMENT 'accounting unit that the event is about',
    start           DateTime64(3, 'UTC')   COMMENT 'start of its interval, inclusive',
    end             DateTime64(3, 'UTC')   COMMENT 'end of its interval, exclusive',
    stream          LowCardinality(String) COMMENT 'stream that delivered the event',
    epoch           UInt64                 COMMENT 'creation of that stream, Unix nanoseconds',
    stream_sequence UInt64                 COMMENT 'sequence of the message in the stream',
    place           UInt32                 COMMENT 'position of the event in the message, from 0',
    stored_at       DateTime64(9, 'UTC')   COMMENT 'when the stream stored the message',
    first           Int64                  COMMENT 'minus stored_at in nanoseconds: on merge the copy stored first stays'
)
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree(first)
PARTITION BY toYYYYMM(start)
ORDER BY (tenant, told, source, id, payload)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'usage events whose id does not tell where they lie';
-- +goose StatementEnd

-- A correction has a row for each identity that it bears on, so that whoever
-- looks for one of them finds it by key.
-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS correction
(
    tenant             LowCardinality(String) COMMENT 'customer of the installation, taken from the subject',
    told               DateTime('UTC')        COMMENT 'minute of the start that id tells; 1970-01-01 = it tells none',
    source             LowCardinality(String) COMMENT 'producer of the identity that the row is about',
    id                 String                 COMMENT 'the identity that the row is about',
    role               LowCardinality(String) COMMENT 'what that identity is to the correction: target = corrected by it, replacement = counts instead, self = the correction itself',
    by_source          LowCardinality(String) COMMENT 'producer of the correction',
    by_id              String                 COMMENT 'identity of the correction within its source',
    by_payload         FixedString(16)        COMMENT 'first 128 bits of the SHA-256 of what the correction says',
    identity_hash      UInt64                 COMMENT 'xxHash64 of source and id; a mark of grain identity holds those of targets',
    action             LowCardinality(String) COMMENT 'retract or replace',
    target_source      LowCardinality(String) COMMENT 'producer of the corrected event',
    target_id          String                 COMMENT 'identity of the corrected event within its source',
    replacement_source LowCardinality(String) COMMENT 'producer of the event that counts instead; empty = none',
    replacement_id     String                 COMMENT 'identity of the event that counts instead; empty = none',
    replacement_type   LowCardinality(String) COMMENT 'type of the event that counts instead; empty = none',
    actor              String                 COMMENT 'who corrected',
    reason             String                 COMMENT 'why',
    stream             LowCardinality(String) COMMENT 'stream that delivered the correction',
    epoch              UInt64                 COMMENT 'creation of that stream, Unix nanoseconds',
    stream_sequence    UInt64                 COMMENT 'sequence of the message in the stream',
    place              UInt32                 COMMENT 'position of the event in the message, from 0',
    stored_at          DateTime64(9, 'UTC')   COMMENT 'when the stream stored the message',
    first              Int64                  COMMENT 'minus stored_at in nanoseconds: on merge the copy stored first stays'
)
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree(first)
ORDER BY (tenant, told, source, id, role, by_source, by_id, by_payload)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'corrections, by the identities that they bear on';
-- +goose StatementEnd
