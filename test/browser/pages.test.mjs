// Every page: its figures, in two languages; who can use it; how wide it is.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { amountsAreAnswers, recorded } from './lib/amounts.mjs';
import { accessible } from './lib/axe.mjs';
import { cell, figuresOf, nameOf } from './lib/names.mjs';
import { ask, eventually, loaded, narrow, opening, pastQuestion, rowsOf, search, settings, tile, valueOf, visit, withBrowser } from './lib/dashboard.mjs';
import { count, hours, money, percent } from './lib/formats.mjs';

withBrowser();

/** What each page shows of the past, compared with what the API answers. */
const figures = {
  '/': overviewShows,
  '/instances': instancesShow,
  '/projects': projectsShow,
  '/plans': amountsShow,
  '/quality': qualityShows,
  '/prices': pricesShow,
  '/statements': statementsShow,
  '/instances/:id': instanceShows,
  '/statements/:period': amountsShow,
};
const paths = Object.keys(figures).filter((path) => !path.includes(':'));

/** The month before this one: it is over, and all of it is in the past of the fleet. */
const lastMonth = new Date(Date.parse(`${new Date().toISOString().slice(0, 7)}-01`) - 1).toISOString().slice(0, 7);

/** What stands for a part of the path of a page, as what its check is told. */
const parts = { id: oneInstance, period: async () => lastMonth };

async function overviewShows(page) {
  const o = await ask('/api/v1/overview', pastQuestion);
  const amount = (text) => money(text, o.currency, 'en');
  const large = {
    'Burn rate now': `${amount(o.now.burn_per_hour)} / h`,
    'Idle waste now': `${amount(o.now.waste_per_hour)} / h`,
    Today: amount(o.today.figures.effective_cost),
    'Month to date': amount(o.month.figures.effective_cost),
    'Forecast for the month': o.forecast ? amount(o.forecast.amount) : 'unknown',
    'Idle waste': amount(o.range.figures.idle_waste),
    Utilization: percent(o.range.figures.utilization, 'en'),
    Coverage: percent(o.coverage, 'en'),
  };
  for (const [name, value] of Object.entries(large)) assert.equal(await valueOf(page, name), value, name);
  assert.match(await tile(page, 'Utilization').innerText(), new RegExp(`Allocated: ${hours(o.range.figures.allocated_ms, 'en')}`));
  for (const [title, key] of [['By project', 'project'], ['By model', 'model'], ['By platform', 'platform'], ['By billing mode', 'plan']]) {
    const panel = page.getByRole('region', { name: title, exact: true });
    const more = panel.getByRole('button', { name: /^\d+ more$/ });
    if (await more.count()) await more.click();
    const shown = await rowsOf(panel);
    assert.equal(shown.size, o.by[key].length, `rows ${title}`);
    for (const { key: name, figures: f } of o.by[key]) {
      const row = shown.get(nameOf(key, name));
      assert.deepEqual([row?.['Effective cost'].split('\n')[0], row?.['Idle waste'], row?.Utilization], [amount(f.effective_cost), amount(f.idle_waste), percent(f.utilization, 'en')], `${title}: ${name}`);
    }
  }
  await barsShow(page, o, amount);
}

async function barsShow(page, o, amount) {
  for (const [title, parts] of [[`Spend per ${o.series.step}`, o.series.points], ['Spend per hour, last 24 hours', o.hours]]) {
    const panel = page.getByRole('region', { name: title, exact: true });
    const bars = await panel.getByRole('button', { name: /Cost/ }).evaluateAll((all) => all.map((b) => b.getAttribute('aria-label')));
    assert.equal(bars.length, parts.length, `bars of ${title}`);
    for (const [i, p] of parts.entries()) assert.ok(bars[i].includes(`Cost ${amount(p.figures.cost)}, Useful ${amount(p.figures.useful_cost)}`), `${bars[i]}: want ${p.figures.cost}`);
  }
}

const listed = { ...pastQuestion, sort: 'effective_cost', order: 'desc', limit: 25 };

async function instancesShow(page) {
  const l = await ask('/api/v1/instances', listed);
  const amount = (text) => money(text, l.currency, 'en');
  await page.getByText(`${count(l.total)} instances`, { exact: true }).waitFor();
  const shown = await rowsOf(page.getByRole('region', { name: 'Instances', exact: true }));
  assert.deepEqual([...shown.keys()], l.items.map((i) => i.instance));
  for (const i of l.items) {
    const f = i.figures;
    assert.deepEqual(figuresOf(shown.get(i.instance)), [`${percent(f.utilization, 'en')} ${hours(f.allocated_ms, 'en')}`, amount(f.idle_waste), amount(f.effective_cost)], i.instance);
    assert.equal(cell(shown.get(i.instance), 'Price'), amount(i.price_per_hour), i.instance);
  }
  const totals = (await page.locator('tfoot tr').innerText()).split(/[\t\n]/).map((s) => s.trim());
  for (const value of [percent(l.totals.utilization, 'en'), hours(l.totals.allocated_ms, 'en'), amount(l.totals.idle_waste), amount(l.totals.effective_cost)]) {
    assert.ok(totals.includes(value), `${value} is not among the totals ${totals}`);
  }
}

async function projectsShow(page) {
  const c = await ask('/api/v1/projects', { ...pastQuestion, share: 'proportional' });
  const amount = (text) => money(text, c.currency, 'en');
  await page.getByText(`${count(c.projects.length)} projects`, { exact: true }).waitFor();
  assert.equal(await valueOf(page, 'All together'), amount(c.totals.total));
  assert.equal(await valueOf(page, 'Of no project'), amount(c.unallocated.direct));
  assert.equal(await valueOf(page, 'Idle waste'), amount(c.totals.figures.idle_waste));
  assert.equal(await valueOf(page, 'Utilization'), percent(c.totals.figures.utilization, 'en'));
  const table = page.getByRole('region', { name: 'What each project pays', exact: true }).last();
  const shown = await rowsOf(table);
  assert.equal(shown.size, c.projects.length + 1);
  for (const r of c.projects) {
    const row = shown.get(r.project);
    // Where nothing is of no project, nothing is shared, and that is known.
    const part = r.shared === null ? '–' : amount(r.shared);
    assert.deepEqual([row.Pays, row['Own use'], row.Shared, row['Idle waste'], row.Utilization], [amount(r.total), amount(r.direct), part, amount(r.figures.idle_waste), percent(r.figures.utilization, 'en')], r.project);
  }
}

async function qualityShows(page) {
  const { quality, sources } = await ask('/api/v1/reports/quality', pastQuestion);
  const named = { 'Open incidents': 'open_incidents', 'Missing events': 'gaps', Conflicts: 'conflicts', Quarantined: 'quarantined', Late: 'late', Held: 'held' };
  for (const [name, field] of Object.entries(named)) {
    assert.equal(await valueOf(page, name), count(quality[field]), name);
  }
  const shown = await rowsOf(page.getByRole('region', { name: 'Sources', exact: true }).last());
  assert.deepEqual([...shown.keys()].toSorted(), sources.map((s) => s.source).toSorted());
  for (const s of sources) {
    const { Events, Late, Held } = shown.get(s.source);
    assert.deepEqual([Events, Late, Held], [count(s.events), count(s.late), count(s.held)], s.source);
  };
}

async function pricesShow(page) {
  const { documents } = await ask('/api/v1/prices');
  const listed = page.getByRole('region', { name: 'Documents', exact: true }).getByRole('button');
  assert.equal(await listed.count(), documents.length);
  const [{ kind, name, versions }] = documents;
  const { content_hash: version } = versions.at(-1);
  const answer = await fetch(`${settings.url}/api/v1/prices/${kind}/${encodeURIComponent(name)}?version=${version}`);
  const wanted = (await answer.text()).split('\n').filter((line) => line.includes('per_gpu_hour'));
  assert.ok(wanted.length > 3, 'the price book has hardly any prices');
  const text = page.getByRole('region', { name: 'Text', exact: true });
  await text.waitFor();
  for (const line of wanted) assert.ok((await text.innerText()).includes(line.trim()), `${line} is not shown`);
}

async function statementsShow(page) {
  const { statements } = await ask('/api/v1/statements');
  await page.getByText(`${count(statements?.length ?? 0)} closed months`, { exact: true }).waitFor();
  await page.getByRole('link', { name: `${lastMonth}, as it is now`, exact: true }).click();
  await page.getByRole('heading', { level: 1, name: `Statement of ${lastMonth}` }).waitFor();
  await page.goBack();
  await page.getByRole('heading', { level: 1, name: 'Statements' }).waitFor();
}

/** Of a page without a check of its own every amount is looked up in the answers. */
async function amountsShow(page, _id, urls) {
  assert.ok(urls.size > 0, 'the page asked nothing');
  assert.ok((await amountsAreAnswers(page, urls, 'en')) > 5, 'there are hardly any amounts');
}

/** An instance of the past that has charges. */
async function oneInstance() {
  const { items } = await ask('/api/v1/instances', listed);
  return items[0].instance;
}

async function instanceShows(page, id) {
  const at = `/api/v1/instances/${encodeURIComponent(id)}`;
  const [d, charges] = [await ask(at, pastQuestion), await ask(`${at}/charges`, pastSpanOf(await ask(at, pastQuestion)))];
  const amount = (text) => money(text, d.currency, 'en');
  const value = (name) => valueOf(page, name);
  assert.equal(await value('Effective cost'), amount(d.figures.effective_cost));
  assert.equal(await value('Idle waste'), amount(d.figures.idle_waste));
  assert.equal(await value('Utilization'), percent(d.figures.utilization, 'en'));
  assert.equal(await value('Price / GPU h'), amount(d.price_per_hour));
  const lines = page.getByRole('region', { name: 'Charge lines', exact: true }).getByRole('listitem').getByRole('button');
  await lines.first().waitFor();
  assert.equal(await lines.count(), charges.items.length);
  await timelineShows(page, await ask(`${at}/timeline`, { ...pastQuestion, step: 'auto' }), amount);
}

const pastSpanOf = ({ from, to }) => ({ from, to });

async function timelineShows(page, timeline, amount) {
  await page.getByRole('button', { name: 'Timeline as a table' }).click();
  const rows = await page.getByRole('region', { name: 'Timeline', exact: true }).locator('tbody tr').evaluateAll((all) => all.map((r) => [...r.children].map((c) => c.innerText.trim())));
  assert.equal(rows.length, timeline.points.length);
  for (const [i, p] of timeline.points.entries()) {
    assert.deepEqual([rows[i][1], rows[i][7], rows[i][8]], [percent(p.utilization, 'en'), amount(p.idle_waste), amount(p.cost)], p.from);
  }
}

test('the navigation leads to every page that is tested here', () =>
  visit(`/${search(pastQuestion)}`, async (page) => {
    await loaded(page);
    const links = await page.getByRole('navigation').getByRole('link').evaluateAll((all) => all.map((a) => new URL(a.href).pathname));
    assert.deepEqual(links.toSorted(), paths.toSorted());
  }));

const languages = { en: 'English', 'zh-CN': '简体中文' };

/** A page is loaded once, and looked at in every way. */
for (const path of [...Object.keys(figures), '/no-such-page']) {
  describe(path, () => {
    let part, urls;
    const opened = opening();
    before(async () => {
      opened.started = (page) => (urls = recorded(page));
      const name = /:(\w+)/.exec(path)?.[1];
      part = name && (await parts[name]());
      await opened.open(path.replace(/:\w+/, part) + search(pastQuestion));
      await (path === '/no-such-page' ? opened.page.getByText('There is no such page').waitFor() : loaded(opened.page));
    });
    after(() => opened.close());

    if (figures[path]) test(`${path} shows what the API answers`, () => figures[path](opened.page, part, urls));
    for (const theme of ['light', 'dark']) {
      test(`${path} is accessible, ${theme}`, async () => {
        await opened.page.emulateMedia({ colorScheme: theme });
        await opened.page.waitForFunction((t) => document.documentElement.dataset.mantineColorScheme === t, theme);
        await accessible(opened.page);
      });
    }
    for (const language of Object.keys(languages)) {
      test(`${path} fits a telephone, ${language}`, async () => {
        const { page } = opened;
        await page.setViewportSize(narrow);
        await page.getByRole('button', { name: /Language|语言/ }).click();
        await page.getByRole('menuitem', { name: languages[language] }).click();
        await page.locator(`html[lang=${language}]`).waitFor();
        assert.equal(await page.evaluate(() => window.innerWidth), narrow.width);
        const width = await eventually(() => page.evaluate(() => Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)), (w) => w <= narrow.width, 'the page is wider than the window');
        assert.ok(width > narrow.width / 2);
      });
    }
    test(`${path} writes no error to the console`, () => opened.clean());
  });
}
