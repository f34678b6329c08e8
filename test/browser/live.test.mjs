// Figures move by themselves, and the page says when they no longer do. This file stops
// the server, so it is the last.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, control, eventually, loaded, tile, valueOf, visit, withBrowser } from './lib/dashboard.mjs';
import { money } from './lib/formats.mjs';

withBrowser();

const badge = (page) => page.getByRole('banner').getByRole('status');
const says = (page) => badge(page).getAttribute('aria-label');

/** moves waits until the figure of the day is another, without a new page. */
async function moves(page) {
  const first = await valueOf(page, 'Today');
  return eventually(() => valueOf(page, 'Today'), (text) => text !== first, 'the figure of today moves');
}

test('a figure moves without a reload, and is then what the stream said', () =>
  visit('/', async (page) => {
    await loaded(page);
    await page.evaluate(() => (window.here = true));
    await eventually(() => says(page), (text) => text.startsWith('Live'), 'the page says that it is live');
    const asked = [];
    page.on('request', (r) => asked.push(new URL(r.url()).pathname));
    await moves(page);
    assert.ok(await page.evaluate(() => window.here), 'the page was loaded again');
    assert.deepEqual(asked.filter((path) => path === '/api/v1/overview'), [], 'the page asked instead of being told');
    const { today, currency } = await ask('/api/v1/overview');
    await eventually(() => valueOf(page, 'Today'), (text) => Number(text.replace(/[^\d.]/g, '')) >= Number(money(today.figures.effective_cost, currency, 'en').replace(/[^\d.]/g, '')), 'the figure catches up with the API');
  }));

test('the page says when the server is gone, keeps its figures, and goes on when it is back', () =>
  visit('/', async (page) => {
    await loaded(page);
    await eventually(() => says(page), (text) => text.startsWith('Live'), 'the page says that it is live');
    await control('stop');
    const gone = await eventually(() => says(page), (text) => /^(Reconnecting|Stale|Every minute)/.test(text), 'the page says that the server is gone');
    assert.match(gone, /Reconnecting/);
    assert.match(await valueOf(page, 'Today'), /\d/, 'the figure is gone with the server');
    await control('start');
    await eventually(() => says(page), (text) => text.startsWith('Live'), 'the page says that it is live again');
    await moves(page);
    await tile(page, 'Today').getByRole('button', { name: /^Why\?/ }).waitFor();
  }, { expected: /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET|ERR_NETWORK/ }));
