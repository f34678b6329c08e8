-- +goose Up
-- +goose ENVSUB ON
-- What a tenant pays by, as it was known when: price book, contracts and rules of
-- platforms. A row is a version and is never changed; of the versions of a name the
-- one applied last counts, of those applied at the same instant the one with the
-- higher content_hash.
-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS price_book
(
    tenant       LowCardinality(String) COMMENT 'customer of the installation',
    name         String                 COMMENT 'of the document: default for the price book, the id of a contract, the platform of a profile',
    content      String                 COMMENT 'the YAML as it was given; empty when withdrawn',
    content_hash String                 COMMENT 'SHA-256 of content, lower-case hexadecimal; empty when withdrawn',
    version      String                 COMMENT 'digest of what the document says, shown beside figures; empty when withdrawn',
    applied_at   DateTime64(3, 'UTC')   COMMENT 'from when on it was known: answers as of an earlier instant do not see it',
    applied_by   String                 COMMENT 'who applied it',
    reason       String                 COMMENT 'why, in the words of applied_by',
    forced       String                 COMMENT 'why it was applied although it changes closed periods; empty = it changed none',
    withdrawn    UInt8                  COMMENT '1 = from applied_at on there is no such document; of contracts and profiles'
)
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree
ORDER BY (tenant, name, applied_at, content_hash)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'versions of price books';
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS contract AS price_book
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree
ORDER BY (tenant, name, applied_at, content_hash)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'versions of contracts with platforms';
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS platform_profile AS price_book
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree
ORDER BY (tenant, name, applied_at, content_hash)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'versions of the billing rules of platforms';
-- +goose StatementEnd
