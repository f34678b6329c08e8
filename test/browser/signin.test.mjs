// Where a sign-in is needed, who signs in sees what is theirs.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, loaded, pastQuestion, rowsOf, search, settings, valueOf, visit, withBrowser } from './lib/dashboard.mjs';
import { count, money } from './lib/formats.mjs';

withBrowser();

const origin = settings.signIn;
const overview = `/${search(pastQuestion)}`;

async function signIn(page, token) {
  await page.getByLabel('Access token').first().fill(token);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
}

test('nothing is shown before a sign-in', () =>
  visit(overview, async (page) => {
    await page.getByRole('button', { name: 'Sign in', exact: true }).waitFor();
    assert.equal(await page.getByRole('navigation').count(), 0);
    assert.equal(await page.locator('.gm-tile').count(), 0);
    assert.equal((await fetch(`${origin}/api/v1/overview`)).status, 401);
  }, { origin }));

test('a wrong token shows an error and no figures', () =>
  visit(overview, async (page) => {
    await signIn(page, 'gpm_this-is-no-token');
    const alert = page.getByRole('alert');
    await alert.waitFor();
    assert.match(await alert.innerText(), /token/);
    assert.equal(await page.locator('.gm-tile').count(), 0);
  }, { origin, expected: /401|403/ }));

test('a token of a project shows that project only, until signing out', () =>
  visit(overview, async (page, context) => {
    await signIn(page, settings.tokens.ada);
    await loaded(page);
    const mine = await ask('/api/v1/overview', pastQuestion, { origin, token: settings.tokens.ada });
    const all = await ask('/api/v1/overview', pastQuestion);
    assert.notEqual(mine.range.figures.idle_waste, all.range.figures.idle_waste);
    assert.equal(await valueOf(page, 'Idle waste'), money(mine.range.figures.idle_waste, mine.currency, 'en'));
    assert.deepEqual([...(await rowsOf(page.getByRole('region', { name: 'By project', exact: true }))).keys()], [settings.project]);
    // Who asks for another's project is told nothing of it.
    await page.goto(`/instances${search(pastQuestion)}`);
    await loaded(page);
    const list = await ask('/api/v1/instances', pastQuestion, { origin, token: settings.tokens.ada });
    const whole = await ask('/api/v1/instances', pastQuestion);
    assert.ok(list.total > 0 && list.total < whole.total);
    await page.getByText(`${count(list.total)} instances`, { exact: true }).waitFor();
    assert.deepEqual(await page.evaluate(() => document.cookie), '', 'a script can read the cookie');

    await page.getByRole('button', { name: 'Signed in as ada' }).click();
    await page.getByText(`Projects: ${settings.project}`, { exact: true }).waitFor();
    await page.getByRole('menuitem', { name: 'Sign out' }).click();
    await page.getByRole('button', { name: 'Sign in', exact: true }).waitFor();
    assert.equal(await page.locator('.gm-tile').count(), 0);
    assert.equal((await context.request.get('/api/v1/overview')).status(), 401);
  }, { origin, expected: /401/ }));

test('a token without projects shows all', () =>
  visit(overview, async (page) => {
    await signIn(page, settings.tokens.ann);
    await loaded(page);
    const all = await ask('/api/v1/overview', pastQuestion);
    assert.equal(await valueOf(page, 'Idle waste'), money(all.range.figures.idle_waste, all.currency, 'en'));
  }, { origin }));
