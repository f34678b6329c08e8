// The question of a page is in its address: it can be shared, and back and forward work.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { asOf, ask, eventually, loaded, pastQuestion, pastSpan, search, valueOf, visit, withBrowser } from './lib/dashboard.mjs';
import { money } from './lib/formats.mjs';

withBrowser();

const at = (page) => Object.fromEntries(new URL(page.url()).searchParams);
const asked = (page, path, done = () => true) => page.waitForRequest((r) => new URL(r.url()).pathname === path && done(Object.fromEntries(new URL(r.url()).searchParams)));

async function addFilter(page, key, value) {
  await page.getByRole('button', { name: 'Add filter' }).click();
  const form = page.getByRole('dialog').filter({ has: page.getByLabel('Value') });
  await form.getByRole('combobox', { name: 'Filter by' }).or(form.getByRole('textbox', { name: 'Filter by' })).first().click();
  await page.getByRole('option', { name: key, exact: true }).click();
  await form.getByLabel('Value').fill(value);
  await form.getByRole('button', { name: 'Apply' }).click();
}

/** shown is what a reader compares two views by. */
const shown = async (page) => ({ figures: await page.locator('main .gm-tile-value').allInnerTexts(), tables: await page.locator('main tbody').allInnerTexts(), view: await page.getByRole('region', { name: 'What is shown' }).innerText() });

test('zone, as-of, span and filters that are chosen are in the address, and it shows the same to another', () =>
  visit(`/${search({ as_of: asOf })}`, async (page) => {
    await loaded(page);
    await page.getByRole('region', { name: 'What is shown' }).getByText('Custom', { exact: true }).click();
    await page.getByRole('textbox', { name: 'From', exact: true }).fill(pastSpan.from);
    await page.getByRole('textbox', { name: 'To', exact: true }).fill(pastSpan.to);
    await page.getByRole('button', { name: 'Apply' }).click();
    await page.waitForURL((u) => u.searchParams.get('to') === pastSpan.to);
    await page.getByRole('button', { name: 'UTC', exact: true }).click();
    const zone = page.getByRole('dialog').getByLabel('Time zone').first();
    await zone.fill('Asia/Shanghai');
    await page.getByRole('option', { name: 'Asia/Shanghai', exact: true }).click();
    await page.getByRole('button', { name: 'Apply' }).click();
    await page.waitForURL((u) => u.searchParams.get('zone') === 'Asia/Shanghai');
    await addFilter(page, 'Platform', 'aws');
    await page.waitForURL((u) => u.searchParams.get('platform') === 'aws');
    const question = { ...pastQuestion, platform: 'aws' };
    assert.deepEqual(at(page), question);
    await loaded(page);
    const o = await ask('/api/v1/overview', question);
    await eventually(() => valueOf(page, 'Idle waste'), (text) => text === money(o.range.figures.idle_waste, o.currency, 'en'), 'the figure of the question');
    const mine = await shown(page);
    await visit(page.url(), async (other) => {
      await loaded(other);
      assert.deepEqual(await shown(other), mine);
    });
  }));

test('back and forward go through the questions', () =>
  visit(`/${search(pastQuestion)}`, async (page) => {
    await loaded(page);
    const all = await valueOf(page, 'Idle waste');
    await addFilter(page, 'Project', 'ads');
    await page.waitForURL((u) => u.searchParams.get('project') === 'ads');
    const one = await eventually(() => valueOf(page, 'Idle waste').catch(() => all), (text) => text !== all, 'the filter changes the figure');
    await page.goBack();
    await eventually(() => valueOf(page, 'Idle waste'), (text) => text === all, 'back shows all');
    assert.deepEqual(at(page), pastQuestion);
    await page.goForward();
    await eventually(() => valueOf(page, 'Idle waste'), (text) => text === one, 'forward shows one project');
    await page.getByRole('button', { name: 'Remove filter Project: ads' }).click();
    await page.waitForURL((u) => !u.searchParams.has('project'));
    await eventually(() => valueOf(page, 'Idle waste'), (text) => text === all, 'without the filter all are shown');
    await page.goBack();
    await page.getByText('Project: ads', { exact: true }).waitFor();
  }));

test('a named range is in the address and asked for by its days', () =>
  visit('/instances?zone=Asia/Shanghai', async (page) => {
    await loaded(page);
    const today = new Date(Date.now() + 8 * 3_600_000).toISOString().slice(0, 10);
    const before = (days) => new Date(Date.parse(today) - days * 86_400_000).toISOString().slice(0, 10);
    const month = `${today.slice(0, 7)}-01`;
    const last = new Date(Date.parse(month) - 86_400_000).toISOString().slice(0, 7);
    const ranges = { 'Last 7 days': ['7d', before(6)], Yesterday: ['yesterday', before(1), today], 'Last month': ['last-month', `${last}-01`, month] };
    for (const [name, [range, from, to]] of Object.entries(ranges)) {
      const request = asked(page, '/api/v1/instances', (q) => q.from === from && q.to === to);
      await page.getByRole('region', { name: 'What is shown' }).getByText(name, { exact: true }).click();
      await request;
      assert.equal(at(page).range, range);
    }
  }));

test('the navigation takes the question along and leaves the page of a list behind', () =>
  visit(`/instances${search({ ...pastQuestion, project: 'ads', sort: 'gpus' })}`, async (page) => {
    await loaded(page);
    await page.getByRole('navigation').getByRole('link', { name: 'Overview' }).click();
    await page.waitForURL((u) => u.pathname === '/');
    assert.deepEqual(at(page), { ...pastQuestion, project: 'ads' });
  }));

test('order, search and page of the list are in the address', () =>
  visit(`/instances${search({ ...pastQuestion, limit: 10 })}`, async (page) => {
    await loaded(page);
    const names = () => page.getByRole('region', { name: 'Instances', exact: true }).locator('tbody tr td:first-child a').allInnerTexts();
    const first = await names();
    await page.getByRole('button', { name: 'Next page' }).click();
    await page.waitForURL((u) => u.searchParams.has('after'));
    const second = await eventually(names, (n) => n.length > 0 && n[0] !== first[0], 'the next page');
    assert.ok(second.every((n) => !first.includes(n)), 'an instance is on both pages');
    await page.getByRole('button', { name: 'Instance', exact: true }).click();
    await page.waitForURL((u) => u.searchParams.get('sort') === 'instance' && !u.searchParams.has('after'));
    const want = await ask('/api/v1/instances', { ...pastQuestion, sort: 'instance', order: 'desc', limit: 10 });
    await eventually(names, (n) => n.join() === want.items.map((i) => i.instance).join(), 'the order of names');
    await page.getByRole('searchbox').fill(second[0]);
    await page.waitForURL((u) => u.searchParams.get('q') === second[0]);
    await eventually(names, (n) => n.join() === second[0], 'only what was searched for');
  }));

const wrong = { from: 'yesterdayish', to: '2026-13-01', zone: 'Mars/Olympus', as_of: 'never', label: 'no-equals-sign' };
for (const [name, value] of Object.entries(wrong)) {
  test(`${name}=${value} in the address shows what the server says of it`, () =>
    visit(`/instances${search({ ...pastQuestion, [name]: value })}`, async (page) => {
      const answer = await fetch(new URL(`/api/v1/instances${search({ ...pastQuestion, [name]: value })}`, page.url()));
      assert.equal(answer.status, 422);
      const problem = await answer.json();
      const alert = page.locator('main').getByRole('alert');
      await alert.waitFor();
      const text = await alert.innerText();
      for (const hint of [problem.detail, ...(problem.errors ?? []).map((e) => e.message)]) assert.ok(text.includes(hint), `${text}: without ${hint}`);
      assert.ok(text.includes('422'));
      // The way out is still there.
      await page.getByRole('navigation').getByRole('link', { name: 'Overview' }).waitFor();
    }, { expected: /422/ }));
}

test('an instance that is not there shows that it was not found', () =>
  visit(`/instances/no-such-instance${search(pastQuestion)}`, async (page) => {
    await page.getByRole('alert').getByText('Nothing was found here').waitFor();
  }, { expected: /404/ }));
