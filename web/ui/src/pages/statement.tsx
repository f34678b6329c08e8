import { Anchor, Badge, CopyButton, Group, Button, Skeleton, Table } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useMemo, type ReactNode } from 'react';
import { useTranslation } from 'react-i18next';
import { Link, useParams } from 'wouter';
import { api, must, type Schemas } from '../api/client';
import { Command } from '../components/command';
import { Money, Panel, Tile, Unpriced } from '../components/figures';
import { Icon } from '../components/icons';
import { Download } from '../components/links';
import { Empty, Failure, Loaded, Loading } from '../components/states';
import { Why } from '../components/why';
import { Formats } from '../lib/format';
import { useFormats } from '../lib/hooks';
import type { View } from '../lib/view';

type Figures = Schemas['StatementFigures'];
type Row = Schemas['StatementRow'];
type Adjustment = Schemas['Adjustment'];

const statementOf = (period: string, signal: AbortSignal) => must(api.GET('/api/v1/statements/{period}', { params: { path: { period } }, signal }));
type Statement = Awaited<ReturnType<typeof statementOf>>;

export default function StatementPage() {
  const { t } = useTranslation();
  const { period = '' } = useParams<{ period: string }>();
  const query = useQuery({ queryKey: ['statement', period], queryFn: ({ signal }) => statementOf(period, signal) });
  return (
    <div className="gm-page">
      <nav className="gm-crumbs" aria-label={t('statements.title')}>
        <Anchor component={Link} href="/statements" size="sm">
          {t('statements.title')}
        </Anchor>
      </nav>
      <div className="gm-page-head">
        <h1>{t('statements.of', { period })}</h1>
        {query.data ? (
          <Badge variant="light" color={query.data.state === 'closed' ? 'green' : 'orange'} tt="none">
            {t(`statements.state.${query.data.state}`)}
          </Badge>
        ) : null}
      </div>
      <Loaded query={query} skeleton={<Skeleton height={480} radius="lg" />}>
        {(data) => <Board data={data} />}
      </Loaded>
    </div>
  );
}

function Board({ data: s }: { data: Statement }) {
  const { t } = useTranslation();
  const closed = s.state === 'closed';
  const path = `/api/v1/statements/${s.period}`;
  const adjustments = s.adjustments ?? [];
  return (
    <>
      <div className="gm-tools">
        <Download href={path} name={`statement-${s.period}.json`} label={t('statements.json')} />
        <Download href={`${path}?format=csv`} name={`statement-${s.period}.csv`} label={t('statements.csv')} />
      </div>
      <div className="gm-tiles">
        <Tile label={t('statements.due')} value={<Money value={s.due.cost} currency={s.currency} />}>
          <span>{t('statements.dueHint')}</span>
        </Tile>
        <Tile label={t('statements.usage')} value={<Money value={s.totals.cost} currency={s.currency} />}>
          <Unpriced ms={s.totals.unpriced_ms} />
        </Tile>
        <Tile label={t('statements.adjustments')} value={<Money value={adjustments.length === 0 ? '0' : s.adjustment_totals.cost} currency={s.currency} />}>
          <span>{adjustments.length === 0 ? t('statements.noAdjustments') : t('statements.from', { periods: adjustments.map((a) => a.origin).join(', ') })}</span>
        </Tile>
        <Tile label={t('figure.idleWaste')} value={<Money value={s.totals.idle_waste} currency={s.currency} />} />
      </div>
      <Facts data={s} />
      <Panel title={t('statements.rows')} hint={t('statements.rowsHint')}>
        <Rows rows={s.rows ?? []} totals={s.totals} by={s.by ?? []} currency={s.currency} span={s} />
      </Panel>
      {adjustments.map((a) => (
        <AdjustmentPanel key={a.origin} adjustment={a} by={s.by ?? []} currency={s.currency} zone={s.zone} />
      ))}
      {closed ? <Since period={s.period} /> : <Command title={t('statements.close')} command={`gpumeter statement close --period ${s.period} --actor NAME`} />}
    </>
  );
}

function useZone(zone: string): Formats {
  const { i18n } = useTranslation();
  return useMemo(() => new Formats(i18n.language, zone), [i18n.language, zone]);
}

function Facts({ data: s }: { data: Statement }) {
  const { t } = useTranslation();
  const format = useZone(s.zone);
  const closed = s.state === 'closed';
  const incidents = s.incidents ?? [];
  const facts: [string, ReactNode][] = [
    [t('statements.period'), format.span(s.from, s.to)],
    [t('view.zone'), s.zone],
    [t('statements.asOf'), format.exact(s.as_of)],
    ...(closed ? ([[t('statements.closedAt'), format.exact(s.closed_at)], [t('statements.closedBy'), s.closed_by], [t('statements.reason'), s.reason || '–']] as [string, ReactNode][]) : []),
    [t('why.priceVersion'), s.price_version ? <code key="v">{s.price_version.slice(0, 16)}</code> : t('why.noPrices')],
    ...(closed ? ([[t('statements.previous'), s.previous ? <code key="p">{s.previous.slice(0, 16)}</code> : t('statements.first')]] as [string, ReactNode][]) : []),
  ];
  return (
    <Panel title={t('statements.facts')}>
      <dl className="gm-facts">
        {facts.map(([k, v]) => (
          <div key={k}>
            <dt>{k}</dt>
            <dd>{v}</dd>
          </div>
        ))}
      </dl>
      {closed ? <Hash period={s.period} /> : null}
      {s.override ? (
        <p className="gm-forced">
          <Icon name="alert" size={14} /> {t('statements.override', { reason: s.override })}
        </p>
      ) : null}
      {incidents.length > 0 ? (
        <div className="gm-todo">
          <strong>{t('statements.incidents', { count: s.incidents_total })}</strong>
          {incidents.map((i) => (
            <div key={`${i.kind} ${i.key}`} lang="en">
              {i.detail}
            </div>
          ))}
        </div>
      ) : null}
    </Panel>
  );
}

/** Hash is that of the bytes of the download, so that anybody can check them. */
function Hash({ period }: { period: string }) {
  const { t } = useTranslation();
  const query = useQuery({ queryKey: ['statements'], queryFn: ({ signal }) => must(api.GET('/api/v1/statements', { signal })) });
  const hash = query.data?.statements?.find((c) => c.period === period)?.hash;
  if (hash === undefined) return null;
  return (
    <div className="gm-todo">
      <Group gap="xs">
        <strong>{t('statements.hash')}</strong>
        <CopyButton value={hash}>
          {({ copied, copy }) => (
            <Button size="compact-xs" variant="default" onClick={copy} leftSection={<Icon name={copied ? 'check' : 'copy'} size={13} />}>
              {copied ? t('why.copied') : t('why.copy')}
            </Button>
          )}
        </CopyButton>
        <span className="gm-cell-sub">{t('statements.hashHint', { file: `statement-${period}.json` })}</span>
      </Group>
      <code className="gm-hash">{hash}</code>
    </div>
  );
}

interface RowsProps {
  rows: Row[];
  totals: Figures;
  by: string[];
  currency: string | null;
  span?: { from: string; to: string; zone: string };
}

function Rows({ rows, totals, by, currency, span }: RowsProps) {
  const { t } = useTranslation();
  const format = useFormats();
  if (rows.length === 0) return <Empty title={t('statements.noRows')} />;
  const figures = (f: Figures) => (
    <>
      <Table.Td className="gm-right">
        <Money value={f.cost} currency={currency} />
        {f.unpriced_ms === 0 ? null : (
          <div>
            <Unpriced ms={f.unpriced_ms} />
          </div>
        )}
      </Table.Td>
      <Table.Td className="gm-right" visibleFrom="sm">
        <Money value={f.idle_waste} currency={currency} />
      </Table.Td>
      <Table.Td className="gm-right gm-number">{format.hours(f.allocated_ms)}</Table.Td>
      <Table.Td className="gm-right gm-number" visibleFrom="sm">
        {format.hours(f.active_ms)}
      </Table.Td>
      <Table.Td className="gm-right gm-number" visibleFrom="sm">
        {format.hours(f.unknown_ms)}
      </Table.Td>
    </>
  );
  return (
    <div className="gm-scroll" tabIndex={0} role="region" aria-label={t('statements.rows')}>
      <Table className="gm-table" verticalSpacing={6}>
        <Table.Thead>
          <Table.Tr>
            {by.map((k) => (
              <Table.Th key={k}>{t(`key.${k as 'project'}`, { defaultValue: k })}</Table.Th>
            ))}
            <Table.Th className="gm-right">{t('figure.cost')}</Table.Th>
            <Table.Th className="gm-right" visibleFrom="sm">
              {t('figure.idleWaste')}
            </Table.Th>
            <Table.Th className="gm-right">{t('figure.allocated')}</Table.Th>
            <Table.Th className="gm-right" visibleFrom="sm">
              {t('instance.active')}
            </Table.Th>
            <Table.Th className="gm-right" visibleFrom="sm">
              {t('instance.unknown')}
            </Table.Th>
            {span ? <Table.Th /> : null}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map((r) => (
            <Table.Tr key={by.map((k) => r.keys[k]).join('\u0000')}>
              {by.map((k) => (
                <Table.Td key={k}>{r.keys[k] || t('overview.without')}</Table.Td>
              ))}
              {figures(r)}
              {span ? (
                <Table.Td>
                  <Why what={by.map((k) => r.keys[k] || t('overview.without')).join(' · ')} from={span.from} to={span.to} filters={filtersOf(r, by)} />
                </Table.Td>
              ) : null}
            </Table.Tr>
          ))}
        </Table.Tbody>
        <Table.Tfoot>
          <Table.Tr className="gm-total">
            <Table.Th scope="row" colSpan={by.length}>
              {t('projects.sum')}
            </Table.Th>
            {figures(totals)}
            {span ? <Table.Td /> : null}
          </Table.Tr>
        </Table.Tfoot>
      </Table>
    </div>
  );
}

const filterKeys = new Set(['project', 'platform', 'model', 'region', 'plan', 'instance']);
const filtersOf = (r: Row, by: string[]): View['filters'] => Object.fromEntries(by.filter((k) => filterKeys.has(k)).map((k) => [k, r.keys[k] ?? '']));

function AdjustmentPanel({ adjustment: a, by, currency, zone }: { adjustment: Adjustment; by: string[]; currency: string | null; zone: string }) {
  const { t } = useTranslation();
  const format = useZone(zone);
  return (
    <Panel
      title={t('statements.adjustmentOf', { period: a.origin })}
      hint={t('statements.adjustmentHint', { at: format.exact(a.billed_through) })}
      actions={
        <Anchor component={Link} href={`/statements/${a.origin}`} size="sm">
          {t('statements.of', { period: a.origin })}
        </Anchor>
      }
    >
      <Rows rows={a.rows ?? []} totals={a.totals} by={by} currency={currency} />
      <Causes prices={a.prices ?? []} events={a.events} format={format} />
    </Panel>
  );
}

/** Causes are what a change comes from: versions of prices, and events. */
function Causes({ prices, events, format }: { prices: Schemas['PriceSource'][]; events: Schemas['Arrivals']; format: Formats }) {
  const { t } = useTranslation();
  const listed = events.listed ?? [];
  return (
    <>
      {prices.length > 0 ? (
        <section className="gm-causes" aria-label={t('statements.prices')}>
          <h3>{t('statements.prices')}</h3>
          <ul className="gm-list">
            {prices.map((p) => (
              <li key={`${p.kind} ${p.name} ${p.applied_at}`} className="gm-event">
                <div>
                  <Anchor component={Link} href={`/prices?doc=${encodeURIComponent(`${p.kind}/${p.name}`)}`} size="sm">
                    {t(`prices.kind.${p.kind as 'book'}`, { defaultValue: p.kind })}: {p.name}
                  </Anchor>
                  <span className="gm-number">{format.instant(p.applied_at, true)}</span>
                </div>
                <small>
                  {p.applied_by}: {p.reason}
                  {p.forced ? ` · ${t('prices.forced', { reason: p.forced })}` : ''}
                </small>
              </li>
            ))}
          </ul>
        </section>
      ) : null}
      {events.total > 0 ? (
        <section className="gm-causes" aria-label={t('statements.events', { count: events.total })}>
          <h3>{t('statements.events', { count: events.total })}</h3>
          <ul className="gm-list">
            {listed.map((e) => (
              <li key={`${e.source} ${e.id} ${e.payload_hash}`} className={e.counted ? 'gm-event' : 'gm-event gm-event-out'}>
                <div>
                  <span>{e.start ? format.span(e.start, e.end) : e.type}</span>
                  <span className="gm-number">{format.instant(e.stored_at, true)}</span>
                </div>
                <small>
                  {[e.instance, e.project, e.unit, e.source, e.id].filter(Boolean).join(' · ')}
                  {e.counted ? '' : ` · ${t('why.notCounted')}`}
                </small>
              </li>
            ))}
          </ul>
          {events.total > listed.length ? <small>{t('statements.moreEvents', { count: events.total - listed.length })}</small> : null}
        </section>
      ) : null}
    </>
  );
}

const diffOf = (period: string, signal: AbortSignal) => must(api.GET('/api/v1/statements/{period}/diff', { params: { path: { period } }, signal }));
type Diff = Awaited<ReturnType<typeof diffOf>>;

function Since({ period }: { period: string }) {
  const { t } = useTranslation();
  const query = useQuery({ queryKey: ['statement-diff', period], queryFn: ({ signal }) => diffOf(period, signal) });
  return (
    <Panel title={t('statements.since')} hint={t('statements.sinceHint')} actions={<Download href={`/api/v1/statements/${period}/diff?format=csv`} name={`statement-${period}-changes.csv`} label={t('statements.csv')} />}>
      {query.data === undefined ? query.error ? <Failure error={query.error} retry={() => void query.refetch()} /> : <Loading rows={4} /> : <Changes diff={query.data} />}
    </Panel>
  );
}

function Changes({ diff: d }: { diff: Diff }) {
  const { t } = useTranslation();
  const format = useZone(d.zone);
  const rows = d.rows ?? [];
  if (rows.length === 0 && d.events.total === 0) return <Empty title={t('statements.unchanged')} hint={t('statements.unchangedHint', { at: format.exact(d.as_of) })} />;
  return (
    <>
      <Rows rows={rows} totals={d.totals} by={d.by ?? []} currency={d.currency} />
      <Causes prices={d.prices ?? []} events={d.events} format={format} />
    </>
  );
}
