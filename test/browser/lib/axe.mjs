import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const axe = readFileSync(fileURLToPath(import.meta.resolve('axe-core/axe.min.js')), 'utf8');

/** accessible fails when axe finds what keeps people out, and names the elements. */
export async function accessible(page) {
  // Evaluated by the debugger: the policy of the page forbids inline scripts.
  await page.evaluate(axe);
  const { violations, passes } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  assert.ok(passes.length > 10, 'axe found hardly anything to check');
  const grave = violations.filter((v) => v.impact === 'serious' || v.impact === 'critical');
  assert.deepEqual(grave.map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 4).map((n) => n.html.slice(0, 200)).join(' | ')}`), []);
}
