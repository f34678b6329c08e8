// Pictures of every page of a running dashboard, in both languages, both themes and two
// widths. It fails when a page writes an error to the console (a policy that blocks
// something does), or is wider than the window.
//
//   node scripts/screenshots.mjs URL DIR [NAME...]
//
// CHROMIUM names the browser; TOKEN signs in where that is needed.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const [url, dir, ...only] = process.argv.slice(2);
if (!url || !dir) {
  console.error('usage: node scripts/screenshots.mjs URL DIR [NAME...]');
  process.exit(2);
}
mkdirSync(dir, { recursive: true });

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
const faults = [];

/** Pages by name; an instance is whichever the list shows first, a statement the last. */
async function pagesOf(context) {
  const pages = { overview: '/', instances: '/instances' };
  const answer = await context.request.get(`${url}/api/v1/instances?limit=1`);
  const first = answer.ok() ? (await answer.json()).items?.[0] : undefined;
  if (first) pages.instance = `/instances/${encodeURIComponent(first.instance)}`;
  const closed = await context.request.get(`${url}/api/v1/statements`);
  const last = closed.ok() ? (await closed.json()).statements?.at(-1) : undefined;
  if (last) pages.statement = `/statements/${last.period}`;
  const books = await context.request.get(`${url}/api/v1/prices`);
  const changed = books.ok() ? (await books.json()).documents?.find((d) => d.versions?.length > 1) : undefined;
  if (changed) pages['prices-diff'] = `/prices?show=diff&doc=${encodeURIComponent(`${changed.kind}/${changed.name}`)}`;
  const page = await context.newPage();
  await page.goto(url);
  await page.locator('nav a').first().waitFor({ state: 'attached' });
  for (const path of await page.locator('nav a').evaluateAll((links) => links.map((a) => new URL(a.href).pathname))) {
    if (!Object.values(pages).includes(path)) pages[path.slice(1).replaceAll('/', '-')] = path;
  }
  await page.close();
  return pages;
}

for (const width of [1280, 390]) {
  for (const theme of ['light', 'dark']) {
    for (const locale of ['en', 'zh-CN']) {
      const context = await browser.newContext({ viewport: { width, height: width > 600 ? 900 : 844 }, colorScheme: theme, locale, timezoneId: 'Asia/Shanghai', hasTouch: width < 600, deviceScaleFactor: width < 600 ? 2 : 1 });
      if (process.env.TOKEN) await context.request.post(`${url}/api/v1/session`, { data: { token: process.env.TOKEN } });
      for (const [name, path] of Object.entries(await pagesOf(context))) {
        if (only.length > 0 && !only.includes(name)) continue;
        const label = `${name}-${width}-${theme}-${locale}`;
        const page = await context.newPage();
        page.on('console', (m) => m.type() === 'error' && faults.push(`${label}: ${m.text()}`));
        page.on('pageerror', (e) => faults.push(`${label}: ${e.message}`));
        await page.goto(url + path);
        await page.locator('h1').first().waitFor();
        // The stream stays open, so the network is never idle: wait for what stands for data.
        await page.waitForFunction(() => !document.querySelector('.mantine-Skeleton-root'), undefined, { timeout: 60_000 }).catch(() => faults.push(`${label}: still loading after a minute`));
        await page.waitForTimeout(500);
        if (await page.locator('.gm-failure').count()) faults.push(`${label}: ${await page.locator('.gm-failure').first().innerText()}`);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
        if (wide > 0) faults.push(`${label}: ${wide} pixels wider than the window`);
        await page.screenshot({ path: join(dir, `${label}.png`), fullPage: true });
        await page.close();
      }
      await context.close();
    }
  }
}
await browser.close();
for (const f of new Set(faults)) console.error(f);
process.exit(faults.length > 0 ? 1 : 0);
