// Types of the routes that the OpenAPI document does not have yet. Amounts are exact
// decimal strings; null is unknown, never zero. Times are RFC 3339, *_ms integers.
import type { components } from './schema';

export type Amount = string | null;
export type Quality = components['schemas']['Quality'];
export type Figures = components['schemas']['FiguresDoc'];

export interface Span {
  from: string;
  to: string;
  figures: Figures;
}

/** One of several spans or groups; the key of a group is empty for "without one". */
export interface Part extends Span {
  key: string;
}

export interface Overview {
  at: string;
  zone: string;
  currency: string | null;
  filter: Record<string, string>;
  now: Span & {
    burn_per_hour: Amount;
    waste_per_hour: Amount;
    gpus: { allocated: string; active: string; idle: string; free: string; unknown: string };
  };
  today: Span;
  month: Span;
  last_month: Span;
  last_month_to_date: Span;
  budget: { amount: string; spent: Amount; left: Amount; used_share: Amount } | null;
  forecast: { amount: string; low: Amount; high: Amount; days_used: number; method: string } | null;
  days: Part[];
  hours: Part[];
  by: { project: Part[]; model: Part[]; platform: Part[]; plan: Part[] };
  coverage: string | null;
  quality: Quality;
}

export interface InstanceItem {
  instance: string;
  project: string;
  platform: string;
  region: string;
  model: string;
  plan: string;
  gpus: number | null;
  state: string; // empty = without a lease
  since: string | null;
  owner: string;
  price_per_hour: Amount; // per GPU
  idle_since: string | null;
  last_active: string | null;
  last_reading: string | null;
  utilization_24h: (string | null)[];
  figures: Figures;
}

export interface InstancePage {
  at: string;
  from: string;
  to: string;
  zone: string;
  currency: string | null;
  total: number;
  next: string | null;
  items: InstanceItem[];
  totals: Figures;
}

export interface StateSpan {
  from: string;
  to: string;
  state: string;
  plan: string;
  gpus: number | null;
  project: string;
}

export interface InstanceDetail extends InstanceItem {
  at: string;
  from: string;
  to: string;
  zone: string;
  currency: string | null;
  labels: Record<string, string>;
  units: { unit: string; node: string }[];
  states: StateSpan[];
}

export interface TimelinePoint {
  from: string;
  to: string;
  active_ms: number;
  idle_ms: number;
  unknown_ms: number;
  allocated_ms: number;
  utilization: string | null;
  memory_bytes: string | null;
  power_watts: string | null;
  cost: Amount;
  idle_waste: Amount;
}

export interface Timeline {
  step: string;
  points: TimelinePoint[];
}

export interface ChargeItem {
  line: string;
  from: string;
  to: string;
  category: string;
  status: string | null;
  plan: string;
  meter: string;
  quantity: string | null;
  price: Amount;
  cost: Amount;
  currency: string | null;
}

export interface ChargePage {
  items: ChargeItem[];
  next: string | null;
}

export interface Session {
  name: string;
  role: string | null; // null = not signed in
  projects: string[] | null; // null = all
  sign_in: 'none' | 'token' | 'oidc';
  tenant: string;
  version: string;
  oidc: boolean;
}

/** What a question of the page is asked with; label is repeatable. */
export interface ViewQuery {
  from?: string;
  to?: string;
  zone?: string;
  as_of?: string;
  project?: string;
  platform?: string;
  model?: string;
  region?: string;
  plan?: string;
  instance?: string;
  label?: string[];
}

interface Get<Query, Body, Path = undefined> {
  get: {
    parameters: Path extends undefined ? { query?: Query } : { query?: Query; path: Path };
    responses: { 200: { content: { 'application/json': Body } }; default: { content: { 'application/problem+json': unknown } } };
  };
}

export interface InstanceQuery extends ViewQuery {
  state?: string;
  q?: string;
  sort?: string;
  order?: 'asc' | 'desc';
  limit?: number;
  after?: string;
}

interface NoContent {
  parameters: object;
  responses: { 204: { content?: never }; default: { content: { 'application/problem+json': unknown } } };
}

export interface BoardPaths {
  '/api/v1/session': Get<never, Session> & {
    post: { parameters: object; requestBody: { content: { 'application/json': { token: string } } }; responses: { 200: { content: { 'application/json': Session } }; default: { content: { 'application/problem+json': unknown } } } };
    delete: NoContent;
  };
  '/api/v1/overview': Get<ViewQuery, Overview>;
  '/api/v1/instances': Get<InstanceQuery, InstancePage>;
  '/api/v1/instances/{id}': Get<ViewQuery, InstanceDetail, { id: string }>;
  '/api/v1/instances/{id}/timeline': Get<ViewQuery & { step?: string }, Timeline, { id: string }>;
  '/api/v1/instances/{id}/charges': Get<ViewQuery & { after?: string }, ChargePage, { id: string }>;
}
