import { describe, expect, test } from 'vitest';
import { addDays, dateIn, explainCommand, isOpen, parseView, spanOf, viewQuery, writeView } from '../src/lib/view';

const zone = 'Asia/Shanghai';
const parse = (s: string) => parseView(s, zone);
const write = (s: string, change = {}, only = false) => writeView({ ...parse(s), ...change }, s, only, zone);

describe('the question in the query string', () => {
  test.each([
    '',
    '?range=today',
    '?from=2026-03-01&to=2026-03-08',
    '?zone=UTC&as_of=2026-04-05',
    '?project=&model=H100',
    '?range=7d&plan=spot&label=team%3Dnlp&label=env%3Dprod',
  ])('%j is read and written back', (s) => {
    expect(write(s)).toBe(s);
  });

  test('the default is this month in the zone of the browser', () => {
    expect(parse('')).toEqual({ range: 'month', from: '', to: '', zone, asOf: '', filters: {}, labels: [] });
  });

  test('usage without a project is another question than all usage', () => {
    expect(parse('?project=').filters).toEqual({ project: '' });
    expect(parse('').filters).toEqual({});
  });

  test('what is not known goes to the server, which says what is wrong', () => {
    expect(viewQuery(parse('?range=fortnight'), new Date())).toEqual({ from: 'fortnight', zone });
    expect(viewQuery(parse('?zone=Mars/X&as_of=soon'), new Date('2026-03-05T00:00:00Z'))).toEqual({ from: '2026-03-01', zone: 'Mars/X', as_of: 'soon' });
  });

  test('parameters of a page stay, unless another page is opened', () => {
    expect(write('?sort=price&range=7d', { range: 'today' })).toBe('?sort=price&range=today');
    expect(write('?sort=price&range=7d', {}, true)).toBe('?range=7d');
  });
});

describe('spans', () => {
  // 2026-02-28 18:00 UTC is 02:00 of March 1 in Shanghai.
  const now = new Date('2026-02-28T18:00:00Z');
  const span = (s: string, at = now) => spanOf(parse(s), at);

  test('begin with the days of the zone', () => {
    expect(span('')).toEqual({ from: '2026-03-01' });
    expect(span('?zone=UTC')).toEqual({ from: '2026-02-01' });
    expect(span('?range=today')).toEqual({ from: '2026-03-01' });
    expect(span('?range=yesterday')).toEqual({ from: '2026-02-28', to: '2026-03-01' });
    expect(span('?range=7d')).toEqual({ from: '2026-02-23' });
    expect(span('?range=30d')).toEqual({ from: '2026-01-31' });
    expect(span('?range=last-month')).toEqual({ from: '2026-02-01', to: '2026-03-01' });
    expect(span('?range=last-month', new Date('2026-01-10T00:00:00Z'))).toEqual({ from: '2025-12-01', to: '2026-01-01' });
    expect(span('?from=2026-03-01T10:00:00Z')).toEqual({ from: '2026-03-01T10:00:00Z' });
  });

  test('are of the time that is asked about', () => {
    expect(span('?as_of=2026-01-20T00:00:00Z')).toEqual({ from: '2026-01-01' });
  });

  test('grow, or are over', () => {
    expect(['', '?range=today', '?from=2026-03-01'].map((s) => isOpen(parse(s)))).toEqual([true, true, true]);
    expect(['?range=yesterday', '?range=last-month', '?from=2026-03-01&to=2026-03-02', '?as_of=2026-03-01'].map((s) => isOpen(parse(s)))).toEqual([false, false, false, false]);
  });

  test('dates count days, whatever the clocks do', () => {
    expect(addDays('2026-03-29', 1)).toBe('2026-03-30'); // 23 hours in Berlin
    expect(addDays('2024-02-28', 1)).toBe('2024-02-29');
    expect(dateIn(new Date('2026-03-29T22:30:00Z'), 'Europe/Berlin')).toBe('2026-03-30');
  });
});

test('the command line asks the same', () => {
  const view = parse("?project=a%20b&instance=it's&label=team%3Dnlp&as_of=2026-04-05");
  expect(explainCommand({ from: '2026-03-01T00:00:00Z', to: '2026-04-01T00:00:00Z' }, view)).toBe(
    `gpumeter explain --from 2026-03-01T00:00:00Z --to 2026-04-01T00:00:00Z --zone Asia/Shanghai --as-of 2026-04-05 --filter 'project=a b' --filter 'instance=it'\\''s' --filter label:team=nlp`,
  );
});
