-- +goose Up
-- +goose ENVSUB ON
-- The ledger of charges. A row books a line of a bill or takes one back; rows are never
-- changed. A line that changes is taken back whole, and what it says now is a line of
-- its own. Whoever books the same gives the same entry, so booking twice is booking once.
-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS charge
(
    tenant          LowCardinality(String) COMMENT 'customer of the installation',
    entry           FixedString(32)        COMMENT 'digest that names the entry: of line and number',
    line            FixedString(32)        COMMENT 'digest of all that the line says',
    reversal        UInt8                  COMMENT '1 = the entry takes the line back',
    number          UInt32                 COMMENT 'how many entries the line had before; even = it is booked, odd = it is taken back',
    booked_at       DateTime64(3, 'UTC')   COMMENT 'when the entry was made',
    horizon         DateTime64(3, 'UTC')   COMMENT 'until when everything was booked by then',
    correction      UInt8                  COMMENT '1 = of a time that had been booked before',
    reason          String                 COMMENT 'what led to the booking',
    category        LowCardinality(String) COMMENT 'usage, purchase or credit',
    status          LowCardinality(String) COMMENT 'used or unused time of a commitment; else empty',
    meter           LowCardinality(String) COMMENT 'gpu, or the name of another meter',
    from            DateTime64(3, 'UTC')   COMMENT 'start of what is charged, inclusive',
    to              DateTime64(3, 'UTC')   COMMENT 'end, exclusive',
    instance        String                 COMMENT 'that it is charged for; empty for what no instance has',
    project         String                 COMMENT 'who pays',
    platform        LowCardinality(String) COMMENT 'where it runs',
    region          LowCardinality(String) COMMENT 'where that is',
    model           LowCardinality(String) COMMENT 'of the GPUs',
    plan            LowCardinality(String) COMMENT 'such as spot or month; empty = on demand',
    gpus            Int64                  COMMENT 'that the line is about',
    commitment      String                 COMMENT 'commitment, plan or quote; empty = none',
    contract        String                 COMMENT 'that it is in',
    metered_ms      Int64                  COMMENT 'time of the instance, milliseconds',
    excluded_ms     Int64                  COMMENT 'of that, not billed',
    billable_ms     Int64                  COMMENT 'billed: metered - excluded + what a minimum and rounding add',
    quantity        Nullable(String)       COMMENT 'of another meter, exact: a decimal or numerator/denominator',
    currency        LowCardinality(String) COMMENT 'ISO 4217 code of the amounts',
    list_unit_price Nullable(String)       COMMENT 'price of a unit before adjustments, exact',
    unit_price      Nullable(String)       COMMENT 'price of a unit that is paid, exact',
    price_version   String                 COMMENT 'digest of the document that the list price is from',
    list_cost       Nullable(String)       COMMENT 'at list price, exact; null = not known',
    contracted_cost Nullable(String)       COMMENT 'at the price paid, exact; null = there is no price',
    billed_cost     Nullable(String)       COMMENT 'as the platform bills it, exact; null = there is no price',
    effective_cost  Nullable(String)       COMMENT 'with purchases spread over what they pay for, exact; null = there is no price',
    evidence        String                 COMMENT 'payload hash of the event that the line rests on',
    content         String                 COMMENT 'the whole line as JSON, with each adjustment and its rule and the arithmetic'
)
ENGINE = ${GPUMETER_ENGINE_PREFIX:-}ReplacingMergeTree
PARTITION BY toYYYYMM(from)
ORDER BY (tenant, instance, commitment, from, line, number, entry)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 268435456
COMMENT 'the ledger of charges';
-- +goose StatementEnd
