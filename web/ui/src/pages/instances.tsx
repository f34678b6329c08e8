import { Anchor, Button, Select, Skeleton, Table, TextInput } from '@mantine/core';
import { useMediaQuery } from '@mantine/hooks';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useEffect, useMemo, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { Link } from 'wouter';
import type { InstanceItem, InstancePage, InstanceQuery } from '../api/board';
import { api, must } from '../api/client';
import { Spark } from '../components/bars';
import { Money, Percent, Unpriced } from '../components/figures';
import { Icon } from '../components/icons';
import { StateBadge, stateNames } from '../components/leases';
import { Empty, Loaded } from '../components/states';
import { ViewBar } from '../components/viewbar';
import { Why } from '../components/why';
import { useFormats, useNow, useParams, useView } from '../lib/hooks';
import { liveKey } from '../lib/live';
import { viewQuery, writeView } from '../lib/view';

const sorts = ['effective_cost', 'cost', 'idle_waste', 'utilization', 'allocated', 'price', 'since', 'idle', 'gpus', 'instance', 'project', 'platform', 'region', 'model', 'plan', 'state', 'owner'] as const;
type Sort = (typeof sorts)[number];
const usual: Sort = 'effective_cost';
const sizes = ['10', '25', '50', '100'];

export default function InstancesPage() {
  const { t } = useTranslation();
  const [view] = useView();
  const [params, setParams] = useParams();
  const narrow = useMediaQuery('(max-width: 48em)', false, { getInitialValueInEffect: false });
  // Names change with the day, not with the second, so the question stays the same.
  const minute = useNow(60_000);
  const asked: InstanceQuery = useMemo(
    () => ({
      ...viewQuery(view, new Date(minute)),
      ...(params.get('state') !== null ? { state: params.get('state')! } : {}),
      ...(params.get('q') ? { q: params.get('q')! } : {}),
      sort: params.get('sort') ?? usual,
      order: (params.get('order') ?? 'desc') as 'asc' | 'desc',
      limit: Number(params.get('limit') ?? 25),
      ...(params.get('after') ? { after: params.get('after')! } : {}),
    }),
    [view, params, minute],
  );
  const query = useQuery({
    queryKey: [liveKey, 'instances', asked],
    queryFn: ({ signal }) => must(api.GET('/api/v1/instances', { params: { query: asked }, signal })),
    placeholderData: keepPreviousData,
  });
  return (
    <div className="gm-page">
      <div className="gm-page-head">
        <h1>{t('instances.title')}</h1>
        {query.data ? <span className="gm-count">{t('instances.count', { count: query.data.total })}</span> : null}
      </div>
      <ViewBar />
      <Tools />
      <Loaded query={query} skeleton={<Skeleton height={480} radius="lg" />}>
        {(page) =>
          (page.items ?? []).length === 0 ? (
            <div className="gm-panel">
              <Empty title={t('instances.none')} hint={t('instances.noneHint')} />
            </div>
          ) : (
            <>
              {narrow ? <Cards page={page} /> : <Rows page={page} />}
              <div className="gm-tools">
                {params.get('after') ? (
                  <>
                    <Button variant="default" size="xs" onClick={() => window.history.back()} leftSection={<Icon name="left" size={14} />}>
                      {t('instances.prev')}
                    </Button>
                    <Button variant="default" size="xs" onClick={() => setParams({ after: null })}>
                      {t('instances.first')}
                    </Button>
                  </>
                ) : null}
                {page.next !== null ? (
                  <Button variant="default" size="xs" onClick={() => setParams({ after: page.next })} rightSection={<Icon name="right" size={14} />}>
                    {t('instances.next')}
                  </Button>
                ) : null}
              </div>
            </>
          )
        }
      </Loaded>
    </div>
  );
}

function Tools() {
  const { t } = useTranslation();
  const [params, setParams] = useParams();
  const [text, setText] = useState(params.get('q') ?? '');
  const asked = params.get('q') ?? '';
  useEffect(() => setText(asked), [asked]);
  useEffect(() => {
    if (text === asked) return;
    const timer = setTimeout(() => setParams({ q: text, after: null }, true), 300);
    return () => clearTimeout(timer);
  }, [text, asked, setParams]);
  const any = '*';
  return (
    <div className="gm-tools" role="search">
      <TextInput size="xs" w={220} type="search" placeholder={t('instances.search')} aria-label={t('instances.search')} value={text} onChange={(e) => setText(e.currentTarget.value)} leftSection={<Icon name="search" size={15} />} />
      <Select size="xs" w={190} aria-label={t('instances.state')} value={params.get('state') || any} onChange={(v) => setParams({ state: v === any ? null : v, after: null })} allowDeselect={false} data={[{ value: any, label: t('instances.anyState') }, { value: 'none', label: t('instances.noLease') }, ...stateNames.map((s) => ({ value: s, label: t(`states.${s}`) }))]} />
      <Select size="xs" w={170} aria-label={t('instances.sort')} value={params.get('sort') ?? usual} onChange={(v) => setParams({ sort: v === usual ? null : v, after: null })} allowDeselect={false} data={sorts.map((s) => ({ value: s, label: t('instances.sortBy', { column: t(`instances.${s}`) }) }))} hiddenFrom="sm" />
      <Select size="xs" w={84} aria-label={t('instances.perPage')} value={params.get('limit') ?? '25'} onChange={(v) => setParams({ limit: v === '25' ? null : v, after: null })} allowDeselect={false} data={[...new Set([...sizes, params.get('limit') ?? '25'])]} />
    </div>
  );
}

/** SortHead heads a column that shows one thing, or one above the other. */
function SortHead({ columns, right }: { columns: Sort[]; right?: boolean }) {
  const { t } = useTranslation();
  const [params, setParams] = useParams();
  const sorted = params.get('sort') ?? usual;
  const ascending = params.get('order') === 'asc';
  return (
    <Table.Th className={right ? 'gm-right' : ''} aria-sort={columns.includes(sorted as Sort) ? (ascending ? 'ascending' : 'descending') : undefined}>
      {columns.map((column) => {
        const on = sorted === column;
        const name = t(`instances.${column}`);
        const turn = () => setParams({ sort: column === usual ? null : column, order: on && !ascending ? 'asc' : null, after: null });
        return (
          <div key={column}>
            <button type="button" className="gm-sort" data-on={on || undefined} onClick={turn} title={t('instances.sortBy', { column: name })}>
              {name}
              {on ? <Icon name={ascending ? 'up' : 'down'} size={12} /> : null}
            </button>
          </div>
        );
      })}
    </Table.Th>
  );
}

function useDetail() {
  const [view] = useView();
  const search = writeView(view);
  return (id: string) => `/instances/${encodeURIComponent(id)}${search}`;
}

function IdleTimer({ item, now }: { item: InstanceItem; now: number }) {
  const { t } = useTranslation();
  const format = useFormats();
  if (item.idle_since === null) return null;
  const ms = now - Date.parse(item.idle_since);
  return (
    <span className="gm-idle" title={format.exact(item.idle_since)}>
      {t('instances.idleFor', { age: format.duration(Math.max(0, ms)) })}
    </span>
  );
}

function useSpark() {
  const { t } = useTranslation();
  const format = useFormats();
  return (values: (string | null)[]) => {
    const known = values.filter((v) => v !== null).map(Number);
    const mean = known.length === 0 ? t('unknown.text') : format.percent((known.reduce((a, b) => a + b, 0) / known.length).toFixed(4));
    return <Spark values={values} label={t('instances.spark', { mean })} />;
  };
}

function Rows({ page }: { page: InstancePage }) {
  const { t } = useTranslation();
  const format = useFormats();
  const now = useNow(30_000);
  const detail = useDetail();
  const spark = useSpark();
  const { currency, totals } = page;
  return (
    <div className="gm-panel gm-scroll" tabIndex={0} role="region" aria-label={t('instances.title')}>
      <Table className="gm-table" verticalSpacing={7} horizontalSpacing={8} highlightOnHover>
        <Table.Thead>
          <Table.Tr>
            <SortHead columns={['instance', 'project']} />
            <SortHead columns={['state', 'idle']} />
            <SortHead columns={['model', 'platform']} />
            <Table.Th>{t('instances.last24')}</Table.Th>
            <SortHead columns={['utilization', 'allocated']} right />
            <SortHead columns={['price']} right />
            <SortHead columns={['idle_waste']} right />
            <SortHead columns={['effective_cost']} right />
            <Table.Th />
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {(page.items ?? []).map((i) => (
            <Table.Tr key={i.instance}>
              <Table.Td className="gm-name gm-name-narrow">
                <Anchor component={Link} href={detail(i.instance)} size="sm" className="gm-cell-main">
                  {i.instance}
                </Anchor>
                <span className="gm-cell-sub">{[i.project || t('overview.without'), i.owner].filter(Boolean).join(' · ')}</span>
              </Table.Td>
              <Table.Td>
                <StateBadge state={i.state} />
                <div>
                  <IdleTimer item={i} now={now} />
                </div>
              </Table.Td>
              <Table.Td className="gm-name">
                {i.gpus === null ? i.model : `${format.number(i.gpus)} × ${i.model}`}
                <span className="gm-cell-sub">{[i.platform, i.region, i.plan].filter(Boolean).join(' · ')}</span>
              </Table.Td>
              <Table.Td>{spark(i.utilization_24h)}</Table.Td>
              <Table.Td className="gm-right">
                <Percent value={i.figures.utilization} />
                <span className="gm-cell-sub">{format.hours(i.figures.allocated_ms)}</span>
              </Table.Td>
              <Table.Td className="gm-right">
                <Money value={i.price_per_hour} currency={currency} />
              </Table.Td>
              <Table.Td className="gm-right">
                <Money value={i.figures.idle_waste} currency={currency} />
              </Table.Td>
              <Table.Td className="gm-right">
                <Money value={i.figures.effective_cost} currency={currency} />
                {i.figures.unpriced_ms > 0 ? (
                  <div>
                    <Unpriced ms={i.figures.unpriced_ms} />
                  </div>
                ) : null}
              </Table.Td>
              <Table.Td>
                <Why what={`${t('why.effective')}: ${i.instance}`} from={page.from} to={page.to} filters={{ instance: i.instance }} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
        <Table.Tfoot>
          <Table.Tr>
            <Table.Th colSpan={4}>{t('instances.totals')}</Table.Th>
            <Table.Td className="gm-right">
              <Percent value={totals.utilization} />
              <span className="gm-cell-sub">{format.hours(totals.allocated_ms)}</span>
            </Table.Td>
            <Table.Td />
            <Table.Td className="gm-right">
              <Money value={totals.idle_waste} currency={currency} />
            </Table.Td>
            <Table.Td className="gm-right">
              <Money value={totals.effective_cost} currency={currency} />
              <div>
                <Unpriced ms={totals.unpriced_ms} />
              </div>
            </Table.Td>
            <Table.Td />
          </Table.Tr>
        </Table.Tfoot>
      </Table>
    </div>
  );
}

function Cards({ page }: { page: InstancePage }) {
  const { t } = useTranslation();
  const now = useNow(30_000);
  const detail = useDetail();
  const spark = useSpark();
  const { currency } = page;
  return (
    <ul className="gm-list gm-cards">
      {(page.items ?? []).map((i) => (
        <li key={i.instance} className="gm-card">
          <div className="gm-card-row">
            <Anchor component={Link} href={detail(i.instance)} size="sm" fw={600}>
              {i.instance}
            </Anchor>
            <StateBadge state={i.state} />
          </div>
          <div className="gm-card-row">
            <span className="gm-cell-sub">{[i.gpus === null ? null : t('instances.gpus', { count: i.gpus }), i.model, i.project || t('overview.without'), i.platform, i.plan].filter(Boolean).join(' · ')}</span>
            {spark(i.utilization_24h)}
          </div>
          <IdleTimer item={i} now={now} />
          <dl>
            <div>
              <dt>{t('instances.effective_cost')}</dt>
              <dd>
                <Money value={i.figures.effective_cost} currency={currency} />
              </dd>
            </div>
            <div>
              <dt>{t('instances.idle_waste')}</dt>
              <dd>
                <Money value={i.figures.idle_waste} currency={currency} />
              </dd>
            </div>
            <div>
              <dt>{t('instances.utilization')}</dt>
              <dd>
                <Percent value={i.figures.utilization} /> <Why what={`${t('why.effective')}: ${i.instance}`} from={page.from} to={page.to} filters={{ instance: i.instance }} />
              </dd>
            </div>
          </dl>
          <Unpriced ms={i.figures.unpriced_ms} />
        </li>
      ))}
    </ul>
  );
}
