// The dashboard in a browser: what every file of tests begins with.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before } from 'node:test';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';

if (!process.env.GPUMETER_BROWSER) throw new Error('these tests need servers: run them with go test ./test/browser');

/** settings is what browser_test.go started, and where. */
export const settings = JSON.parse(process.env.GPUMETER_BROWSER);

/** patience bounds waits for what must come; only a broken page never gets there. */
export const patience = 120_000;

export const wide = { width: 1280, height: 900 };
export const narrow = { width: 390, height: 844 };

const day = 86_400_000;
const date = (ms) => new Date(ms).toISOString().slice(0, 10);

/**
 * A question about the past, as known at an instant, has one answer for ever: what the
 * page shows and what the API answers can be compared while figures grow.
 */
export const asOf = new Date(Date.now() - 1000).toISOString();
export const pastSpan = { from: date(Date.now() - 6 * day), to: date(Date.now() - 2 * day), zone: 'Asia/Shanghai' };
export const pastQuestion = { ...pastSpan, as_of: asOf };

let browser;

/** withBrowser has one browser for all tests of a file. */
export function withBrowser() {
  before(async () => {
    browser = await chromium.launch({
      executablePath: settings.chromium,
      args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
    });
  });
  after(() => browser?.close());
}

/**
 * opening is a page in a context of its own, for a suite that looks at it in many ways.
 * It notes what the page wrote to the console as an error (a policy that blocked something
 * does), what it threw, and what it asked for in vain. What a test provokes itself matches
 * expected.
 */
export function opening({ origin = settings.url, language = 'en', theme = 'light', size = wide, zone = 'UTC', expected, state } = {}) {
  const faults = [];
  const fault = (text) => expected?.test(text) || faults.push(text);
  const opened = {
    faults,
    clean: () => assert.deepEqual(faults, []),
    close: () => opened.context?.close(),
    async open(path) {
      const context = await browser.newContext({ baseURL: origin, viewport: size, colorScheme: theme, locale: language, timezoneId: zone, hasTouch: size === narrow, storageState: state });
      context.setDefaultTimeout(patience);
      context.on('console', (m) => m.type() === 'error' && fault(`console: ${m.text()} (${m.location().url})`));
      context.on('weberror', (e) => fault(`thrown: ${e.error().message}`));
      context.on('dialog', (d) => (fault(`dialog: ${d.message()}`), void d.dismiss()));
      // A request that the page gave up itself, as a stream when it moves on, is none.
      context.on('requestfailed', (r) => r.failure()?.errorText !== 'net::ERR_ABORTED' && fault(`failed: ${r.url()} ${r.failure()?.errorText}`));
      context.on('response', (r) => r.status() >= 400 && fault(`answered: ${r.url()} ${r.status()}`));
      opened.context = context;
      opened.page = await context.newPage();
      opened.started?.(opened.page); // before it asks anything
      await opened.page.goto(path);
    },
  };
  return opened;
}

/** visit opens a page, has it looked at, and fails when it noted a fault. */
export async function visit(path, look, options) {
  const opened = opening(options);
  try {
    await opened.open(path);
    await look(opened.page, opened.context);
    opened.clean();
  } catch (error) {
    if (opened.faults.length > 0) error.message += `\nthe page also said: ${opened.faults.join('; ')}`;
    throw error;
  } finally {
    await opened.close();
  }
}

export const search = (question) => {
  const text = new URLSearchParams(Object.entries(question).flatMap(([k, v]) => [v].flat().map((x) => [k, x]))).toString();
  return text ? `?${text}` : '';
};

/** ask asks the API. */
export async function ask(path, question = {}, { origin = settings.url, token } = {}) {
  const url = origin + path + search(question);
  const answer = await fetch(url, token ? { headers: { Authorization: `Bearer ${token}` } } : {});
  const text = await answer.text();
  assert.equal(answer.status, 200, `GET ${url}: ${answer.status} ${text}`);
  return JSON.parse(text);
}

/** control stops the server or starts it again. */
export async function control(what) {
  const answer = await fetch(`${settings.control}/${what}`, { method: 'POST' });
  assert.equal(answer.status, 200, `${what}: ${await answer.text()}`);
}

/** run runs the program and returns what it wrote. */
export async function run(...args) {
  const { stdout } = await promisify(execFile)(settings.program, args, { maxBuffer: 64 << 20, timeout: patience });
  return stdout;
}

/** loaded waits until the page shows data: a heading, and nothing that is still to come. */
export async function loaded(page) {
  await page.locator('h1').first().waitFor();
  await page.waitForFunction(() => document.querySelector('main .mantine-Skeleton-root, main [role=status] .mantine-VisuallyHidden-root') === null, undefined, { timeout: patience });
}

/** tile is the large figure with this name. */
export const tile = (page, name) => page.locator('.gm-tile').filter({ has: page.locator('.gm-tile-label').getByText(name, { exact: true }) });

/** valueOf reads the large figure of a tile. */
export const valueOf = async (page, name) => (await tile(page, name).locator('.gm-tile-value').innerText()).trim();

/** rowsOf reads a table: the rows by the first line of their first cell, cells by their heads. */
export async function rowsOf(region) {
  const rows = await region.locator('table').first().evaluate((table) => {
    const heads = [...table.querySelectorAll('thead th')].map((h) => h.innerText.trim());
    return [...table.querySelectorAll('tbody tr')].map((r) => [...r.children].map((c, i) => [heads[i], c.innerText.trim()]));
  });
  return new Map(rows.map((cells) => [cells[0][1].split('\n')[0], Object.fromEntries(cells)]));
}

/** eventually waits until read returns what is wanted, and shows what it did last. */
export async function eventually(read, wanted, what) {
  let got;
  for (const end = Date.now() + patience; Date.now() < end; await new Promise((r) => setTimeout(r, 100))) {
    got = await read();
    if (wanted(got)) return got;
  }
  return assert.fail(`${what}: waited ${patience / 1000} s in vain; last: ${JSON.stringify(got)}`);
}
