// The question that a page asks lives in the query string, so that a view can be
// shared, and back and forward work.
import { knownZone } from './format';

export const presets = ['today', 'yesterday', '7d', '30d', 'month', 'last-month'] as const;
export type Preset = (typeof presets)[number];

/** Keys that a figure can be filtered by, beside labels. */
export const dimensions = ['project', 'platform', 'model', 'region', 'plan', 'instance'] as const;
export type Dimension = (typeof dimensions)[number];

export interface View {
  range: Preset | 'custom';
  from: string; // as written; only for custom
  to: string;
  zone: string;
  asOf: string; // empty = as known now
  filters: Partial<Record<Dimension, string>>; // empty text = without one
  labels: string[]; // KEY=VALUE
}

/** Names in the query string that belong to every page. */
const shared = ['range', 'from', 'to', 'zone', 'as_of', 'label', ...dimensions];

export const browserZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC';

/**
 * parseView reads a query string. What it does not understand is left as it is written:
 * the server then says what is wrong with it.
 */
export function parseView(search: string, zone = browserZone()): View {
  const q = new URLSearchParams(search);
  const written = q.get('range');
  const custom = q.has('from') || q.has('to');
  const range = presets.find((p) => p === written);
  const filters: View['filters'] = {};
  for (const d of dimensions) {
    const value = q.get(d);
    if (value !== null) filters[d] = value;
  }
  return {
    // An unknown name is passed on as a from, so that it is not taken for a month.
    range: custom || (written !== null && !range) ? 'custom' : (range ?? 'month'),
    from: q.get('from') ?? (written !== null && !range && !custom ? written : ''),
    to: q.get('to') ?? '',
    zone: q.get('zone') || zone,
    asOf: q.get('as_of') ?? '',
    filters,
    labels: q.getAll('label'),
  };
}

/**
 * writeView returns search with the view in it; other names stay unless only is set.
 * What is the default is left out.
 */
export function writeView(view: View, search = '', only = false, zone = browserZone()): string {
  const q = new URLSearchParams(only ? '' : search);
  for (const name of shared) q.delete(name);
  if (view.range === 'custom') {
    if (view.from) q.set('from', view.from);
    if (view.to) q.set('to', view.to);
  } else if (view.range !== 'month') {
    q.set('range', view.range);
  }
  if (view.zone !== zone) q.set('zone', view.zone);
  if (view.asOf) q.set('as_of', view.asOf);
  for (const d of dimensions) {
    const value = view.filters[d];
    if (value !== undefined) q.set(d, value);
  }
  for (const label of view.labels) q.append('label', label);
  const text = q.toString();
  return text === '' ? '' : `?${text}`;
}

/** dateIn returns the calendar date of an instant in a zone, YYYY-MM-DD. */
export function dateIn(at: Date, zone: string): string {
  return new Intl.DateTimeFormat('en-CA', { timeZone: knownZone(zone) ? zone : 'UTC', year: 'numeric', month: '2-digit', day: '2-digit' }).format(at);
}

/** addDays counts calendar days, so the length of a day does not matter. */
export function addDays(date: string, days: number): string {
  const d = new Date(`${date}T00:00:00Z`);
  d.setUTCDate(d.getUTCDate() + days);
  return d.toISOString().slice(0, 10);
}

/** spanOf turns a range into what the server is asked with: dates of the zone. */
export function spanOf(view: View, now: Date): { from?: string; to?: string } {
  const asked = view.asOf && !Number.isNaN(Date.parse(view.asOf)) ? new Date(view.asOf) : now;
  const today = dateIn(asked < now ? asked : now, view.zone);
  const month = `${today.slice(0, 7)}-01`;
  switch (view.range) {
    case 'today':
      return { from: today };
    case 'yesterday':
      return { from: addDays(today, -1), to: today };
    case '7d':
      return { from: addDays(today, -6) };
    case '30d':
      return { from: addDays(today, -29) };
    case 'month':
      return { from: month };
    case 'last-month':
      return { from: `${addDays(month, -1).slice(0, 7)}-01`, to: month };
    case 'custom':
      return { ...(view.from ? { from: view.from } : {}), ...(view.to ? { to: view.to } : {}) };
  }
}

/** Whether the span of the view ends now, so that its figures still grow. */
export const isOpen = (view: View) => view.asOf === '' && (view.range === 'custom' ? view.to === '' : !['yesterday', 'last-month'].includes(view.range));

/** filterQuery is the part of a question that says which usage is meant. */
export function filterQuery(view: View): Record<string, string | string[]> {
  return { ...view.filters, ...(view.labels.length > 0 ? { label: view.labels } : {}) };
}

/** scopeQuery is filterQuery with the zone and the as-of. */
export function scopeQuery(view: View): Record<string, string | string[]> {
  return { zone: view.zone, ...(view.asOf ? { as_of: view.asOf } : {}), ...filterQuery(view) };
}

/** viewQuery is the whole question. */
export const viewQuery = (view: View, now: Date) => ({ ...spanOf(view, now), ...scopeQuery(view) });

/** shellWord quotes a word for a POSIX shell when it needs that. */
export const shellWord = (s: string) => (/^[\w@%+=:,./-]+$/.test(s) ? s : `'${s.replaceAll("'", `'\\''`)}'`);

/** explainCommand is the command line that shows the same explanation. */
export function explainCommand(span: { from: string; to: string }, view: View): string {
  const pairs = [...Object.entries(view.filters).map(([k, v]) => `${k}=${v}`), ...view.labels.map((l) => `label:${l}`)];
  return [
    'gpumeter explain',
    `--from ${shellWord(span.from)} --to ${shellWord(span.to)} --zone ${shellWord(view.zone)}`,
    ...(view.asOf ? [`--as-of ${shellWord(view.asOf)}`] : []),
    ...pairs.map((p) => `--filter ${shellWord(p)}`),
  ].join(' ');
}
