// Names that are scripts are text, wherever they stand.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { asOf, loaded, search, settings, tile, visit, withBrowser } from './lib/dashboard.mjs';

withBrowser();

const { image, quote, from, to } = settings.hostile;
const question = { from, to, as_of: asOf };

/** harmless fails when a name became an element: a script that ran shows a dialog, which visit counts. */
async function harmless(page) {
  assert.deepEqual(await page.locator('img[src=x], main script, [role=dialog] script, [onerror]').evaluateAll((all) => all.map((e) => e.outerHTML)), []);
}

for (const [kind, name] of Object.entries({ image, quote })) {
  describe(kind, () => {
    test(`${kind}: the overview shows the project`, () =>
      visit(`/${search({ ...question, project: name })}`, async (page) => {
        await loaded(page);
        await page.getByRole('region', { name: 'By project' }).getByText(name, { exact: true }).waitFor();
        await page.getByText(`Project: ${name}`, { exact: true }).waitFor();
        await harmless(page);
        await tile(page, 'Utilization').getByRole('button', { name: /^Why\?/ }).click();
        const drawer = page.getByRole('dialog');
        await drawer.getByText(`project=${name}`, { exact: true }).waitFor();
        await drawer.getByRole('region', { name: 'Events' }).getByText(name).first().waitFor();
        await harmless(page);
      }));
    test(`${kind}: the list shows the instance, its project and its owner`, () =>
      visit(`/instances${search({ ...question, label: `owner=${name}` })}`, async (page) => {
        await loaded(page);
        const row = page.getByRole('region', { name: 'Instances', exact: true }).locator('tbody tr');
        assert.equal(await row.count(), 1);
        await row.getByRole('link', { name, exact: true }).waitFor();
        const text = await row.innerText();
        assert.ok(text.split(name).length - 1 >= 3, `${text}: want the names of the instance, the project and the owner`);
        await page.getByText(`owner=${name}`, { exact: true }).waitFor();
        await harmless(page);
      }));
    test(`${kind}: its own page shows the instance, its labels, units and charges`, () =>
      visit(`/instances/${encodeURIComponent(name)}${search(question)}`, async (page) => {
        await loaded(page);
        await page.getByRole('heading', { level: 1, name, exact: true }).waitFor();
        await page.getByText(`label=${name}`, { exact: true }).waitFor();
        await page.getByText(/GPUs and nodes/).click();
        await page.getByText(name, { exact: true }).last().waitFor();
        await harmless(page);
        await page.getByRole('region', { name: 'Charge lines' }).getByRole('listitem').getByRole('button').first().click();
        await page.getByRole('dialog').getByText(name, { exact: true }).first().waitFor();
        await harmless(page);
      }));
  });
}

test('an address full of scripts runs none', () =>
  visit(`/instances${search({ ...question, q: image, zone: quote, sort: image, region: quote })}`, async (page) => {
    await page.locator('main').getByRole('alert').waitFor();
    await page.getByText(`Region: ${quote}`, { exact: true }).waitFor();
    await harmless(page);
  }, { expected: /422/ }));
