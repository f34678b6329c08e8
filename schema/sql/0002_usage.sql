-- +goose Up
-- +goose ENVSUB ON
-- Everything here is a pure function of the raw tables and may be dropped and
-- rebuilt at any time (gpumeter rebuild).

-- Windows to be computed again. The consumer writes a mark before it
-- acknowledges; the aggregator writes the same row with sign -1 when it is done,
-- and the two collapse. A mark written twice only costs a recomputation.
-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS dirty
(
    grain     LowCardinality(String) COMMENT 'minute: recompute from raw_usage; copy: the same, because of something elsewhere; identity: mark whatever corrected identities touch; hour: sum up usage_minute',
    tenant    LowCardinality(String) COMMENT 'customer of the installation',
    window    DateTime('UTC')        COMMENT 'start of the window',
    mark      UInt64                 COMMENT 'makes the mark unique: a random number per flush',
    units     Array(UInt64)          COMMENT 'unit_hash of the units touched, identity_hash for grain identity; unused in rows with sign -1',
    marked_at DateTime64(3, 'UTC')   COMMENT 'when the mark was written; only for debouncing',
    sign      Int8                   COMMENT '1 = to do, -1 = done'
)
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}CollapsingMergeTree(sign)
ORDER BY (grain, tenant, window, mark)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'windows touched since they were last computed, at least once';
-- +goose StatementEnd

-- version adds up what the window's amounts were computed from: raw rows, copies of
-- their identities elsewhere and corrections, each with the time from when it was
-- first stored to 2100, in milliseconds. Facts are only ever added, and what was
-- stored first is at most found to be earlier, so a computation that knew less,
-- however late it writes, never replaces one that knew more.
-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS usage_minute
(
    tenant             LowCardinality(String) COMMENT 'customer of the installation',
    window             DateTime('UTC')        COMMENT 'start of the minute',
    unit_hash          UInt64                 COMMENT 'xxHash64 of unit',
    owner              FixedString(16)        COMMENT 'first 128 bits of the SHA-256 of unit, instance, project, node, platform, region, model and labels: what a row is about, as one value to group by',
    unit               String                 COMMENT 'accounting unit',
    instance           String                 COMMENT 'who held the unit; empty = nobody',
    project            LowCardinality(String) COMMENT 'who pays',
    node               LowCardinality(String) COMMENT 'host of the unit',
    platform           LowCardinality(String) COMMENT 'where it is rented',
    region             LowCardinality(String) COMMENT 'region of the platform',
    model              LowCardinality(String) COMMENT 'hardware model',
    labels             String                 COMMENT 'JSON object of labels, keys sorted; empty = none',
    active_ms          UInt64                 COMMENT 'milliseconds of the unit that were active',
    idle_ms            UInt64                 COMMENT 'milliseconds known and not active (held idle, or free when instance is empty)',
    unknown_ms         UInt64                 COMMENT 'milliseconds reported without a valid activity reading',
    utilization_ms     UInt64                 COMMENT 'milliseconds with a known utilization: denominator of the mean',
    utilization_sum    UInt64                 COMMENT 'sum of utilization in millionths times milliseconds: numerator of the mean',
    memory_ms          UInt64                 COMMENT 'milliseconds with known memory use: denominator of the mean',
    memory_byte_ms     UInt64                 COMMENT 'sum of bytes in use times milliseconds: numerator of the mean',
    energy_mj          UInt64                 COMMENT 'energy, millijoules',
    energy_ms          UInt64                 COMMENT 'milliseconds with known energy',
    version            UInt64                 COMMENT 'sum of milliseconds to 2100 from when each raw row, copy elsewhere and correction that this row was computed from was first stored'
)
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree(version)
PARTITION BY toYYYYMM(window)
ORDER BY (tenant, window, unit_hash, owner)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'usage per unit, owner and minute';
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS usage_hour AS usage_minute
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree(version)
PARTITION BY toYYYYMM(window)
ORDER BY (tenant, window, unit_hash, owner)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'usage per unit, owner and hour: the sum of its minutes; version is the sum of their versions';
-- +goose StatementEnd
