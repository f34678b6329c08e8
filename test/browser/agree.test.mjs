// One question has one answer: on the page, in the API, in JSON and in CSV of the command
// line. Random questions about the past; the seed is in the output, GPUMETER_SEED repeats it.
import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { after, test } from 'node:test';
import { cell, figuresOf, nameOf } from './lib/names.mjs';
import { asOf, ask, loaded, opening, rowsOf, run, search, settings, valueOf, withBrowser } from './lib/dashboard.mjs';
import { hours, money, percent } from './lib/formats.mjs';

withBrowser();

const opened = opening();
after(() => opened.close());

const seed = Number(process.env.GPUMETER_SEED ?? randomInt(2 ** 31));
console.log(`GPUMETER_SEED=${seed}`);

/** mulberry32 is a small generator with a seed. */
let state = seed;
function random(n) {
  state = (state + 0x6d2b79f5) | 0;
  let z = Math.imul(state ^ (state >>> 15), 1 | state);
  z = (z + Math.imul(z ^ (z >>> 7), 61 | z)) ^ z;
  return ((z ^ (z >>> 14)) >>> 0) % n;
}
const pick = (list) => list[random(list.length)];

const zones = ['UTC', 'Asia/Shanghai', 'America/New_York', 'Asia/Kolkata', 'Australia/Lord_Howe'];
const filters = [{}, {}, { project: 'ads' }, { project: '' }, { platform: 'aws' }, { model: 'NVIDIA L40S' }, { plan: 'spot' }, { plan: 'month', platform: 'aliyun' }];
const keys = ['project', 'model', 'platform', 'plan', 'instance'];

/** A span of the past, with ends at a day, a second or a millisecond. */
function span() {
  const [now, day] = [Date.parse(asOf), 86_400_000];
  const to = now - 3_600_000 - random(30 * day);
  const from = to - 1000 - random(3 * day);
  const end = pick([(ms) => new Date(ms).toISOString().slice(0, 10), (ms) => new Date(ms - (ms % 1000)).toISOString(), (ms) => new Date(ms).toISOString()]);
  return end(from) === end(to) ? { from: new Date(from).toISOString(), to: new Date(to).toISOString() } : { from: end(from), to: end(to) };
}

/** parseCsv reads RFC 4180. */
function parseCsv(text) {
  const rows = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|$)/g)) {
    rows.at(-1).push(quoted !== undefined ? quoted.replaceAll('""', '"') : plain);
    if (end !== ',') rows.push([]);
  }
  const [head, ...body] = rows.filter((r) => r.length > 1);
  return body.map((r) => Object.fromEntries(r.map((v, i) => [head[i], v])));
}

const args = (q, by) => ['report', 'spend', '--url', settings.url, '--from', q.from, '--to', q.to, '--zone', q.zone, '--as-of', q.as_of, '--by', by, ...Object.entries(q.filter).flatMap(([k, v]) => ['--filter', `${k}=${v}`])];

for (let n = 1; n <= 20; n++) {
  const q = { ...span(), zone: pick(zones), as_of: asOf, filter: pick(filters) };
  const by = keys[n % keys.length];
  const question = { from: q.from, to: q.to, zone: q.zone, as_of: q.as_of, ...q.filter };
  test(`question ${n} has one answer`, async () => {
    const said = `seed ${seed}: by ${by} ${JSON.stringify(question)}`;
    const api = await ask('/api/v1/reports/spend', { ...question, by });
    const json = JSON.parse(await run(...args(q, by), '--format', 'json'));
    assert.deepEqual(json.rows, api.rows, `command line, ${said}`);
    assert.deepEqual(json.totals, api.totals, `command line, ${said}`);
    csvAgrees(parseCsv(await run(...args(q, by), '--format', 'csv')), api.rows, by, said);
    await (by === 'instance' ? listAgrees : overviewAgrees)(question, by, api, said);
  });
}

function csvAgrees(csv, rows, by, said) {
  const figures = csv.filter((r) => r.row === undefined || r.row !== 'total');
  assert.equal(figures.length, rows.length, `rows of the CSV, ${said}`);
  for (const [i, row] of rows.entries()) {
    for (const [column, value] of Object.entries(row)) {
      if (value === null || typeof value !== 'object') assert.equal(figures[i][column], value === null ? '' : String(value), `CSV, ${column} of ${row[by]}, ${said}`);
    }
  }
}

const titles = { project: 'By project', model: 'By model', platform: 'By platform', plan: 'By billing mode' };

/** shown opens a page in the one tab that all questions share, and has it compared. */
async function shown(path, compare) {
  if (!opened.page) await opened.open(path);
  else await opened.page.goto(path);
  await loaded(opened.page);
  await compare(opened.page);
  opened.clean();
}

function overviewAgrees(question, by, { rows, totals, currency }, said) {
  return shown(`/${search(question)}`, async (page) => {
    assert.equal(await valueOf(page, 'Idle waste'), money(totals.idle_waste, currency, 'en'), said);
    assert.equal(await valueOf(page, 'Utilization'), percent(totals.utilization, 'en'), said);
    const panel = page.getByRole('region', { name: titles[by], exact: true });
    const more = panel.getByRole('button', { name: /^\d+ more$/ });
    if (await more.count()) await more.click();
    const table = await rowsOf(panel);
    assert.deepEqual([...table.keys()].toSorted(), rows.map((r) => nameOf(by, r[by])).toSorted(), said);
    for (const r of rows) assert.deepEqual(['Effective cost', 'Idle waste', 'Utilization'].map((head) => cell(table.get(nameOf(by, r[by])), head)), [money(r.effective_cost, currency, 'en'), money(r.idle_waste, currency, 'en'), percent(r.utilization, 'en')], `${r[by]}, ${said}`);
  });
}

function listAgrees(question, by, { rows, currency }, said) {
  const held = rows.filter((r) => r.instance !== '');
  return shown(`/instances${search({ ...question, limit: 500 })}`, async (page) => {
    if (held.length === 0) return page.getByText('No instance matches').waitFor();
    const table = await rowsOf(page.getByRole('region', { name: 'Instances', exact: true }));
    for (const r of held) {
      assert.deepEqual(figuresOf(table.get(r.instance) ?? {}), [`${percent(r.utilization, 'en')} ${hours(r.allocated_ms, 'en')}`, money(r.idle_waste, currency, 'en'), money(r.effective_cost, currency, 'en')], `${r.instance}, ${said}`);
    }
  });
}
