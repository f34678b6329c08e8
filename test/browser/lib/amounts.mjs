import assert from 'node:assert/strict';
import { money } from './formats.mjs';

/** recorded notes what a page asks of the API from now on. */
export function recorded(page) {
  const urls = new Set();
  page.on('request', (r) => {
    if (r.method() === 'GET' && new URL(r.url()).pathname.startsWith('/api/v1/') && r.resourceType() === 'fetch') urls.add(r.url());
  });
  return urls;
}

/** decimals collects every decimal string of a document. */
function decimals(value, into = new Set()) {
  if (typeof value === 'string') into.add(value);
  else if (value !== null && typeof value === 'object') for (const v of Object.values(value)) decimals(v, into);
  return into;
}

/**
 * amountsAreAnswers fails when an amount on the page is written in another way than its
 * exact value, which the page keeps in its title, or when that value is in none of the
 * answers to what the page asked.
 */
export async function amountsAreAnswers(page, urls, language) {
  const known = new Set();
  for (const url of urls) {
    const answer = await fetch(url);
    assert.equal(answer.status, 200, url);
    decimals(await answer.json(), known);
  }
  const amounts = await page.locator('main .gm-number[title]').evaluateAll((all) => all.map((e) => [e.title, e.innerText.trim()]));
  let read = 0;
  for (const [title, text] of amounts) {
    const [, value, currency = null] = /^(-?\d+(?:\.\d+)?)(?: ([A-Z]{3}))?$/.exec(title) ?? [];
    if (value === undefined || text.endsWith('%')) continue;
    assert.equal(text, money(value, currency, language), `the exact value is ${title}`);
    assert.ok(known.has(value), `${title} is in no answer to ${[...urls].join(' ')}`);
    read++;
  }
  return read;
}
