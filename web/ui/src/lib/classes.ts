// What money went to: the classes that effective cost is the sum of.
import type { Figures } from '../api/board';
import { toNumber } from './format';

/** In the order in which they are stacked; colour is a variable of theme.ts. */
export const classes = [
  { key: 'useful', column: 'useful_cost', color: 'var(--gm-useful)' },
  { key: 'waste', column: 'idle_waste', color: 'var(--gm-waste)' },
  { key: 'unknown', column: 'unknown_cost', color: 'var(--gm-unknown)' },
  { key: 'free', column: 'free_cost', color: 'var(--gm-free)' },
  { key: 'stopped', column: 'stopped_cost', color: 'var(--gm-stopped)' },
  { key: 'minimum', column: 'minimum_cost', color: 'var(--gm-minimum)' },
  { key: 'commitment', column: 'commitment_unused_cost', color: 'var(--gm-commitment)' },
  { key: 'rework', column: 'rework_cost', color: 'var(--gm-rework)' },
  { key: 'meter', column: 'meter_cost', color: 'var(--gm-meter)' },
  { key: 'credit', column: 'credit_cost', color: 'var(--gm-credit)' },
] as const;

export type ClassKey = (typeof classes)[number]['key'];

export interface Slice {
  key: ClassKey;
  color: string;
  text: string; // exact
  size: number; // for drawing
}

/** slicesOf returns the classes that are known and not zero. */
export function slicesOf(f: Figures): Slice[] {
  return classes.flatMap(({ key, column, color }) => {
    const text = f[column];
    const size = toNumber(text);
    return text == null || size === null || size === 0 ? [] : [{ key, color, text, size }];
  });
}

/** heightOf is what a bar of these figures is drawn as; null when no amount is known. */
export function heightOf(f: Figures): number | null {
  const slices = slicesOf(f);
  if (slices.length === 0) return f.effective_cost == null && f.cost == null ? null : 0;
  return slices.reduce((sum, s) => sum + Math.max(0, s.size), 0);
}

/** axisOf returns a limit for an axis, and its steps. */
export function axisOf(most: number): { top: number; steps: number[] } {
  if (!(most > 0)) return { top: 1, steps: [0] };
  const power = 10 ** Math.floor(Math.log10(most / 3));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => most / s <= 4) ?? 10 * power;
  const n = Math.ceil(most / step);
  return { top: n * step, steps: Array.from({ length: n + 1 }, (_, i) => i * step) };
}
