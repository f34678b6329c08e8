// Who reads the page: in which language, in which light, with which hands.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, loaded, pastQuestion, search, tile, visit, withBrowser } from './lib/dashboard.mjs';
import { hours, money, percent } from './lib/formats.mjs';

withBrowser();

const overview = `/${search(pastQuestion)}`;

test('the language is the one of the browser, can be changed, and stays', () =>
  visit(overview, async (page, context) => {
    await loaded(page);
    assert.equal(await page.locator('html').getAttribute('lang'), 'zh-CN');
    await page.getByRole('heading', { level: 1, name: '总览' }).waitFor();
    await page.getByRole('button', { name: '语言' }).click();
    await page.getByRole('menuitem', { name: 'English' }).click();
    await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
    assert.equal(await page.locator('html').getAttribute('lang'), 'en');
    const other = await context.newPage();
    await other.goto(overview);
    await other.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
    assert.equal(await other.locator('html').getAttribute('lang'), 'en');
  }, { language: 'zh-CN' }));

test('nothing of the overview is left in English for a Chinese reader', () =>
  visit(overview, async (page) => {
    await loaded(page);
    const text = await page.locator('main .gm-tiles').innerText();
    // Units and names of money and GPUs are the same in both languages.
    assert.deepEqual(text.match(/[A-Za-z]{3,}/g)?.filter((w) => w !== 'GPU') ?? [], []);
  }, { language: 'zh-CN' }));

for (const language of ['en', 'zh-CN']) {
  test(`figures are written as in ${language}`, () =>
    visit(overview, async (page) => {
      await loaded(page);
      const { range, month, currency } = await ask('/api/v1/overview', pastQuestion);
      const [title, allocated] = language === 'en' ? ['Utilization', 'Allocated: '] : ['利用率', '已分配: '];
      const panel = page.locator('.gm-tile').filter({ has: page.getByText(title, { exact: true }) });
      assert.equal((await panel.locator('.gm-tile-value').innerText()).trim(), percent(range.figures.utilization, language));
      assert.ok((await panel.innerText()).includes(allocated + hours(range.figures.allocated_ms, language)), await panel.innerText());
      const total = page.locator('.gm-tile').filter({ has: page.getByText(language === 'en' ? 'Month to date' : '本月至今', { exact: true }) });
      assert.equal((await total.locator('.gm-tile-value').innerText()).trim(), money(month.figures.effective_cost, currency, language));
      // Days are of the zone that was asked for, and months have the names of the language.
      const day = new Date(Date.parse(range.from) + 8 * 3_600_000).getUTCDate();
      assert.match(await panel.innerText(), language === 'en' ? new RegExp(`[A-Z][a-z]{2} ${day}, \\d{4}`) : new RegExp(`\\d{4}年\\d+月${day}日`));
    }, { language }));
}

test('the theme follows the system until one is chosen, and the choice stays', () =>
  visit(overview, async (page) => {
    await loaded(page);
    const scheme = () => page.locator('html').getAttribute('data-mantine-color-scheme');
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.equal(await scheme(), 'dark');
    const dark = await background();
    await page.getByRole('button', { name: 'Colour scheme' }).click();
    await page.getByRole('menuitem', { name: 'Light' }).click();
    await page.locator('html[data-mantine-color-scheme=light]').waitFor();
    assert.notEqual(await background(), dark);
    await page.reload();
    await loaded(page);
    assert.equal(await scheme(), 'light');
    await page.getByRole('button', { name: 'Colour scheme' }).click();
    await page.getByRole('menuitem', { name: 'Like the system' }).click();
    await page.locator('html[data-mantine-color-scheme=dark]').waitFor();
  }, { theme: 'dark' }));

/** focused says what has the focus. */
const focused = (page) => page.evaluate(() => document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.textContent?.trim() ?? '');

test('the first stop of the keyboard skips to the content', () =>
  visit(overview, async (page) => {
    await loaded(page);
    await page.keyboard.press('Tab');
    assert.equal(await focused(page), 'Skip to content');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement?.id), 'content');
    await page.keyboard.press('Tab');
    assert.ok(await page.evaluate(() => document.querySelector('main').contains(document.activeElement)), 'the next stop is not in the content');
  }));

test('Tab reaches every why button, in the order of the page', () =>
  visit(overview, async (page) => {
    await loaded(page);
    const all = await page.locator('main').getByRole('button', { name: /^Why\?/ }).evaluateAll((buttons) => buttons.map((b) => b.getAttribute('aria-label')));
    assert.ok(all.length > 20, `${all.length} why buttons`);
    const reached = [];
    for (let stops = 0; reached.length < all.length && stops < 400; stops++) {
      await page.keyboard.press('Tab');
      const name = await focused(page);
      if (name.startsWith('Why?')) reached.push(name);
    }
    assert.deepEqual(reached, all);
  }));

test('the drawer keeps the focus, and Escape gives it back', () =>
  visit(overview, async (page) => {
    await loaded(page);
    const why = tile(page, 'Coverage').getByRole('button', { name: /^Why\?/ });
    await why.focus();
    await page.keyboard.press('Enter');
    const drawer = page.getByRole('dialog', { name: 'Where this comes from' });
    await drawer.getByText('The same on the command line').waitFor();
    const inside = () => drawer.evaluate((d) => d.contains(document.activeElement));
    const stops = new Set();
    for (let i = 0; i < 400 && !(i > 2 && (await focused(page)) === 'Close' && stops.size > 1); i++) {
      await page.keyboard.press('Tab');
      assert.ok(await inside(), `stop ${i + 1} is outside of the drawer: ${await focused(page)}`);
      stops.add(await focused(page));
    }
    assert.equal(await focused(page), 'Close', 'the focus does not come round');
    await page.keyboard.press('Escape');
    await drawer.waitFor({ state: 'hidden' });
    await page.waitForFunction((name) => document.activeElement?.getAttribute('aria-label') === name, await why.getAttribute('aria-label'));
  }));
