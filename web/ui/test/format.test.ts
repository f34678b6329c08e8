import { describe, expect, test } from 'vitest';
import { compareDecimals, divide, Formats, growth, isZero, quotient, ratio } from '../src/lib/format';

const en = new Formats('en', 'UTC');
const zh = new Formats('zh-CN', 'Asia/Shanghai');
const plain = (s: string) => s.replace(/[\u00a0\u202f\u2009]/g, ' ');

describe('money', () => {
  test('is printed from its text, exactly', () => {
    // The nearest binary fraction of this amount would print ...992.77.
    expect(en.money('9007199254740992.775', 'CNY')).toBe('¥9,007,199,254,740,992.78');
    expect(en.money('1.005', 'USD')).toBe('$1.01');
    expect(en.money('-12.5', 'USD')).toBe('-$12.50');
    expect(zh.money('1234.5', 'CNY')).toBe('¥1,234.50');
  });
  test('what is not zero does not look like it', () => {
    expect(en.money('0.0034', 'USD')).toBe('$0.0034');
    expect(en.money('-0.00001234', 'USD')).toBe('-$0.000012');
    expect(en.money('0', 'USD')).toBe('$0.00');
    expect(en.money('0.000', 'USD')).toBe('$0.00');
  });
  test('without a currency, or with a text that is none, is not invented', () => {
    expect(en.money('3.5', null)).toBe('3.50');
    expect(en.money('3.5', 'credits')).toBe('3.50');
    expect(en.money('n/a', 'USD')).toBe('n/a');
  });
});

test('ratios and changes', () => {
  expect(en.percent('0.4256')).toBe('42.6%');
  expect(en.percent('1')).toBe('100%');
  expect(en.change('0.241')).toBe('+24.1%');
  expect(en.change('-0.1')).toBe('-10%');
  expect(quotient('1', '3')).toBe('0.333333');
  expect(quotient('1', '0.00')).toBeNull();
  expect(quotient(null, '3')).toBeNull();
  expect(growth('90', '100')).toBe('-0.100000');
  expect(growth('1', null)).toBeNull();
  expect(ratio(1, 0)).toBeNull();
});

test('decimal strings are compared and divided as such', () => {
  expect(compareDecimals('10', '9.99')).toBe(1);
  expect(compareDecimals('-1.5', '-1.50')).toBe(0);
  expect(compareDecimals('0.1', '0.12')).toBe(-1);
  expect(divide(-1n, 2n, 0)).toBe('-1');
  expect(divide(1n, 3n, 2)).toBe('0.33');
  expect(divide(2n, 3n, 2)).toBe('0.67');
  expect(isZero('-0.000')).toBe(true);
  expect(isZero('0.001')).toBe(false);
});

test('time spans', () => {
  expect(plain(en.hours(5_400_000))).toBe('1.5 hr');
  expect(plain(en.hours(3_600_000_000))).toBe('1,000 hr');
  expect(plain(en.hours(0))).toBe('0 hr');
  expect(plain(en.hours(1000))).toBe('1 sec'); // not 0 hr
  expect(plain(en.duration(93_784_000))).toBe('1 day 2 hr');
  expect(plain(en.duration(0))).toBe('0 sec');
  expect(plain(en.duration(12))).toBe('12 ms');
  expect(zh.duration(7_500_000)).toMatch(/2\s*小时 5\s*分钟/);
});

test('bytes', () => {
  expect(en.bytes('0')).toBe('0 B');
  expect(en.bytes('1536')).toBe('1.5 KiB');
  expect(en.bytes('85899345920')).toBe('80 GiB');
});

describe('instants', () => {
  test('are of the zone', () => {
    expect(zh.time('2026-03-01T16:30:00Z')).toBe('00:30');
    expect(zh.day('2026-03-01T16:30:00Z')).toBe('3月2日');
    expect(en.time('2026-03-01T16:30:00Z')).toBe('16:30');
  });
  test('a span of whole days has no midnights', () => {
    expect(en.span('2026-03-01T00:00:00Z', '2026-04-01T00:00:00Z')).toBe('Sun, Mar 1, 2026 – Tue, Mar 31, 2026');
    expect(en.span('2026-03-01T00:00:00Z', '2026-03-02T00:00:00Z')).toBe('Sun, Mar 1, 2026');
    expect(plain(en.span('2026-03-01T00:00:00Z', '2026-03-02T00:00:01Z'))).toContain('00:00');
  });
  test('what is none is shown as it is', () => {
    expect(en.instant('yesterday')).toBe('yesterday');
    expect(new Formats('en', 'Mars/Olympus').time('2026-03-01T16:30:00Z')).toBe('16:30');
  });
});
