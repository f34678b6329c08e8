-- +goose Up
-- +goose ENVSUB ON
-- Closed periods, frozen. Rows are never changed and never computed again: what
-- was billed is what was stored here, byte for byte.
--
-- The statements of a tenant form a chain: each names the hash of the one before
-- it. Two closings at the same time can both write a row; of those that name the
-- same predecessor one counts, see report.Statements, and the others are ignored.
-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS statement
(
    tenant       LowCardinality(String) COMMENT 'customer of the installation',
    period       String                 COMMENT 'calendar month in the zone, YYYY-MM',
    zone         LowCardinality(String) COMMENT 'IANA time zone of the period',
    from         DateTime64(3, 'UTC')   COMMENT 'start of the period, inclusive',
    to           DateTime64(3, 'UTC')   COMMENT 'end of the period, exclusive',
    as_of        DateTime64(3, 'UTC')   COMMENT 'closing instant: what the stream had stored by then is in the statement',
    closed_at    DateTime64(3, 'UTC')   COMMENT 'when the statement was made',
    closed_by    String                 COMMENT 'who closed the period',
    reason       String                 COMMENT 'why, in the words of closed_by; may be empty',
    override     String                 COMMENT 'why it was closed before the grace time was over or with open incidents; empty = neither was the case',
    content      String                 COMMENT 'the statement as canonical JSON, frozen',
    content_hash String                 COMMENT 'SHA-256 of content, lower-case hexadecimal',
    previous     String                 COMMENT 'content_hash of the statement of the tenant that was closed before; empty = the first'
)
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree
ORDER BY (tenant, period, closed_at, content_hash)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'closed periods, frozen';
-- +goose StatementEnd
