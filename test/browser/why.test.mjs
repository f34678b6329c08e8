// "Why?" leads from a figure down to events and to the arithmetic of a charge line.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { accessible } from './lib/axe.mjs';
import { ask, loaded, pastQuestion, search, tile, visit, withBrowser } from './lib/dashboard.mjs';
import { hours, money, percent } from './lib/formats.mjs';

withBrowser();

const drawer = (page) => page.getByRole('dialog', { name: 'Where this comes from' });

async function open(page, why) {
  await why.click();
  await drawer(page).getByText('The same on the command line').waitFor();
  return drawer(page);
}

/** pairs reads a list of names and values. */
const pairs = (list) => list.locator('dl > div').evaluateAll((all) => Object.fromEntries(all.map((d) => [d.querySelector('dt').innerText.trim(), d.querySelector('dd').innerText.trim()])));

test('a figure of the overview opens to its calculation, its charges and its events', () =>
  visit(`/${search({ ...pastQuestion, project: 'ads' })}`, async (page) => {
    await loaded(page);
    const { range } = await ask('/api/v1/overview', { ...pastQuestion, project: 'ads' });
    const want = await ask('/api/v1/explain', { ...pastQuestion, from: range.from, to: range.to, project: 'ads', limit: 50 });
    assert.ok(want.events.length > 0 && want.charges.length > 0, 'the past has no charges or no events');
    const shown = await open(page, tile(page, 'Utilization').getByRole('button', { name: /^Why\?/ }));
    const total = await pairs(shown.getByRole('region', { name: 'Total of the span' }));
    assert.equal(total['Effective cost'], money(want.total.effective_cost, want.currency, 'en'));
    assert.equal(total.Cost, money(range.figures.cost, want.currency, 'en'), 'the explanation is of another figure');
    assert.equal(total.Allocated, hours(range.figures.allocated_ms, 'en'));
    const events = shown.getByRole('region', { name: 'Events' }).getByRole('listitem');
    assert.equal(await events.count(), want.events.length);
    await accessible(page);
    const first = await events.first().innerText();
    assert.ok(first.includes(want.events[0].source) && first.includes(want.events[0].unit), first);
    assert.ok(first.includes(percent(want.events[0].utilization, 'en')), first);
  }));

test('more events are loaded', () =>
  visit(`/${search({ ...pastQuestion, project: 'ads' })}`, async (page) => {
    await loaded(page);
    const shown = await open(page, tile(page, 'Utilization').getByRole('button', { name: /^Why\?/ }));
    const events = shown.getByRole('region', { name: 'Events' }).getByRole('listitem');
    const before = await events.count();
    await shown.getByRole('button', { name: 'Load more events' }).click();
    await events.nth(before).waitFor();
    const texts = await events.allInnerTexts();
    assert.equal(new Set(texts).size, texts.length, 'an event is there twice');
  }));

test('a charge line opens to its arithmetic, and back', () =>
  visit(`/${search({ ...pastQuestion, project: 'ads' })}`, async (page) => {
    await loaded(page);
    const { charges } = await ask('/api/v1/explain', { ...pastQuestion, project: 'ads', limit: 50 });
    const shown = await open(page, tile(page, 'Idle waste').getByRole('button', { name: /^Why\?/ }));
    await shown.getByRole('region', { name: 'Charge lines' }).getByRole('button').filter({ hasText: charges[0].id.slice(0, 8) }).click();
    await shown.getByText(`Charge ${charges[0].id.slice(0, 12)}`).waitFor();
    const { charge } = await ask(`/api/v1/charges/${charges[0].id}`);
    assert.ok(charge.arithmetic.length > 0);
    for (const step of charge.arithmetic) await shown.getByText(step).waitFor();
    await shown.getByText(`gpumeter explain ${charge.id}`, { exact: true }).waitFor();
    await accessible(page);
    await shown.getByRole('button', { name: 'Back' }).click();
    await shown.getByRole('region', { name: 'Total of the span' }).waitFor();
  }));

test('a row of the list and a bar of a chart open to what they are of', () =>
  visit(`/${search(pastQuestion)}`, async (page) => {
    await loaded(page);
    const { by, series, currency } = await ask('/api/v1/overview', pastQuestion);
    const model = by.model[0];
    const ofRow = await open(page, page.getByRole('button', { name: `Why? Show where Effective cost: ${model.key} comes from`, exact: true }));
    assert.equal((await pairs(ofRow))['Effective cost'], money(model.figures.effective_cost, currency, 'en'));
    await page.keyboard.press('Escape');
    await ofRow.waitFor({ state: 'hidden' });
    const bar = page.getByRole('region', { name: `Spend per ${series.step}`, exact: true }).getByRole('button', { name: /Cost/ }).first();
    await bar.focus();
    await page.keyboard.press('Enter');
    await drawer(page).getByText('The same on the command line').waitFor();
    assert.equal((await pairs(drawer(page)))['Effective cost'], money(series.points[0].figures.effective_cost, currency, 'en'));
  }));
