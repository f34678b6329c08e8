// Everything that a reader sees is in both languages, and nowhere else.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { expect, test } from 'vitest';
import { en } from '../src/i18n/en';
import { zh } from '../src/i18n/zh';

const src = join(import.meta.dirname, '../src');

function flat(texts: object, path = ''): Map<string, string> {
  return new Map(Object.entries(texts).flatMap(([k, v]) => (typeof v === 'string' ? [[path + k, v] as [string, string]] : [...flat(v as object, `${path}${k}.`)])));
}
const english = flat(en);
const chinese = flat(zh);
const holes = (s: string | undefined) => [...(s ?? '').matchAll(/{{(\w+)(?:, \w+)?}}/g)].map((m) => m[1]).sort();

test('both languages have the same texts with the same holes', () => {
  expect([...chinese.keys()].sort()).toEqual([...english.keys()].sort());
  expect(english.size).toBeGreaterThan(150);
  for (const [key, text] of english) {
    expect(text.trim(), key).not.toBe('');
    expect(chinese.get(key)?.trim(), key).not.toBe('');
    expect(holes(chinese.get(key)), key).toEqual(holes(text));
  }
});

const files = readdirSync(src, { recursive: true, encoding: 'utf8' }).filter((f) => /\.tsx?$/.test(f) && !f.endsWith('.d.ts'));
const spoken = new Set(['aria-label', 'title', 'label', 'placeholder', 'description', 'alt', 'hint', 'what']);
const word = /\p{L}{2,}/u;

/** spokenIn finds texts that a reader sees and that are written into the code. */
function spokenIn(name: string, text: string): string[] {
  const found: string[] = [];
  const visit = (node: ts.Node) => {
    if (ts.isJsxText(node) && word.test(node.text)) found.push(node.text.trim());
    if (ts.isJsxAttribute(node) && spoken.has(node.name.getText()) && node.initializer && ts.isStringLiteral(node.initializer) && word.test(node.initializer.text)) found.push(node.initializer.text);
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true, ts.ScriptKind.TSX));
  return found;
}

test('no text is written into the code', () => {
  expect(spokenIn('x.tsx', '<p title="Some words">More {n} words</p>')).toEqual(['Some words', 'More', 'words']);
  expect(files.length).toBeGreaterThan(20);
  const names = ['OpenAPI']; // a name in every language
  expect(files.flatMap((f) => spokenIn(f, readFileSync(join(src, f), 'utf8')).filter((s) => !names.includes(s)).map((s) => `${f}: ${s}`))).toEqual([]);
});

test('every text is used', () => {
  const code = files.filter((f) => !f.startsWith('i18n')).map((f) => readFileSync(join(src, f), 'utf8')).join('\n');
  // A key may be put together: `class.${c.key}` uses all of class.
  const groups = [...code.matchAll(/`((?:\w+\.)+\w*)\$\{/g)].map((m) => m[1]!);
  const unused = [...english.keys()].filter((key) => {
    const base = key.replace(/_(one|other)$/, '');
    return !code.includes(`'${base}'`) && !groups.some((g) => key.startsWith(g));
  });
  expect(unused).toEqual([]);
});
