import { Anchor, SegmentedControl, Skeleton, Table } from '@mantine/core';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { Link } from 'wouter';
import { api, must, type Schemas } from '../api/client';
import { Money, Panel, Percent, Tile, Unpriced } from '../components/figures';
import { address, Download } from '../components/links';
import { Empty, Loaded } from '../components/states';
import { ViewBar } from '../components/viewbar';
import { Why } from '../components/why';
import { compareDecimals, quotient, toNumber } from '../lib/format';
import { useFormats, useNow, useParams, useView } from '../lib/hooks';
import { liveKey } from '../lib/live';
import { filterQuery, viewQuery, writeView, type View } from '../lib/view';

type Chargeback = Schemas['Chargeback'];
type Amounts = Schemas['ProjectAmounts'];

const shares = ['proportional', 'even', 'none'] as const;
type Share = (typeof shares)[number];

export default function ProjectsPage() {
  const { t } = useTranslation();
  const [view] = useView();
  const [params, setParams] = useParams();
  const share = (params.get('share') ?? 'proportional') as Share;
  const minute = useNow(60_000);
  const asked = useMemo(() => ({ ...viewQuery(view, new Date(minute)), share }), [view, minute, share]);
  const query = useQuery({
    queryKey: [liveKey, 'projects', asked],
    queryFn: ({ signal }) => must(api.GET('/api/v1/projects', { params: { query: asked }, signal })),
    placeholderData: keepPreviousData,
  });
  return (
    <div className="gm-page">
      <div className="gm-page-head">
        <h1>{t('projects.title')}</h1>
        {query.data ? <span className="gm-count">{t('projects.count', { count: query.data.projects?.length ?? 0 })}</span> : null}
      </div>
      <ViewBar />
      <div className="gm-tools">
        <span className="gm-count" id="share-label">
          {t('projects.share')}
        </span>
        <SegmentedControl size="xs" aria-labelledby="share-label" value={share} onChange={(v) => setParams({ share: v === 'proportional' ? null : v })} data={shares.map((s) => ({ value: s, label: t(`projects.${s}`) }))} />
        {query.data ? <SpendDownload data={query.data} view={view} /> : null}
      </div>
      <Loaded query={query} skeleton={<Skeleton height={480} radius="lg" />}>
        {(data) => <Board data={data} />}
      </Loaded>
    </div>
  );
}

function SpendDownload({ data, view }: { data: Chargeback; view: View }) {
  const { t } = useTranslation();
  const href = address('/api/v1/reports/spend', { by: 'project', format: 'csv', from: data.from, to: data.to, zone: data.zone, as_of: data.as_of, ...filterQuery(view) });
  return <Download href={href} name={`spend-by-project-${data.from.slice(0, 10)}.csv`} label={t('projects.csv')} />;
}

function Board({ data }: { data: Chargeback }) {
  const { t } = useTranslation();
  const { currency, totals, unallocated } = data;
  const rows = useMemo(() => [...(data.projects ?? [])].sort((a, b) => compareDecimals(b.total ?? '-1', a.total ?? '-1')), [data.projects]);
  // A sum over several projects is answered only to those who see all of them.
  const scoped = unallocated === null;
  if (rows.length === 0 && (scoped || unallocated.direct === null)) {
    return (
      <div className="gm-panel">
        <Empty title={t('state.emptySpan')} hint={t('state.emptySpanHint')} />
      </div>
    );
  }
  return (
    <>
      <div className="gm-tiles">
        <Tile label={t('projects.total')} value={<Money value={totals.total} currency={currency} />} why={<Why what={t('projects.total')} from={data.from} to={data.to} />}>
          <span>{t('projects.totalHint')}</span>
          <Unpriced ms={totals.figures.unpriced_ms} />
        </Tile>
        {scoped ? null : (
          <Tile label={t('projects.unallocated')} value={<Money value={unallocated.direct} currency={currency} />} why={<Why what={t('projects.unallocated')} from={data.from} to={data.to} filters={{ project: '' }} />}>
            <span>{t(unallocated.shared === null ? 'projects.notShared' : 'projects.isShared')}</span>
          </Tile>
        )}
        <Tile label={t('figure.idleWaste')} value={<Money value={totals.figures.idle_waste} currency={currency} />} why={<Why what={t('figure.idleWaste')} from={data.from} to={data.to} />}>
          <WasteShare amounts={totals} />
        </Tile>
        <Tile label={t('figure.utilization')} value={<Percent value={totals.figures.utilization} />} why={<Why what={t('figure.utilization')} from={data.from} to={data.to} />} />
      </div>
      <Panel title={t('projects.table')} hint={t(`projects.${scoped ? 'none' : (data.share as Share)}Hint`)}>
        <Rows data={data} rows={rows} />
      </Panel>
    </>
  );
}

function WasteShare({ amounts }: { amounts: Amounts }) {
  const { t } = useTranslation();
  const format = useFormats();
  const share = quotient(amounts.figures.idle_waste, amounts.direct);
  return share === null ? null : <span>{t('projects.ofCost', { share: format.percent(share) })}</span>;
}

function Rows({ data, rows }: { data: Chargeback; rows: Schemas['ProjectRow'][] }) {
  const { t } = useTranslation();
  const [view] = useView();
  const { currency, unallocated, totals } = data;
  const most = Math.max(0, ...[...rows, ...(unallocated ? [unallocated] : [])].map((r) => toNumber(r.total) ?? 0));
  const link = (project: string) => `/instances${writeView({ ...view, filters: { ...view.filters, project } })}`;
  return (
    <>
      <div className="gm-scroll" tabIndex={0} role="region" aria-label={t('projects.table')}>
        <Table className="gm-table" verticalSpacing={7} highlightOnHover>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('key.project')}</Table.Th>
              <Table.Th className="gm-right">{t('projects.pays')}</Table.Th>
              <Table.Th visibleFrom="sm" w="24%" />
              <Table.Th className="gm-right">{t('projects.ofTotal')}</Table.Th>
              <Table.Th className="gm-right" visibleFrom="sm">
                {t('projects.direct')}
              </Table.Th>
              <Table.Th className="gm-right" visibleFrom="sm">
                {t('projects.shared')}
              </Table.Th>
              <Table.Th className="gm-right" visibleFrom="sm">
                {t('figure.idleWaste')}
              </Table.Th>
              <Table.Th className="gm-right" visibleFrom="sm">
                {t('figure.utilization')}
              </Table.Th>
              <Table.Th />
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rows.map((r) => (
              <Row key={r.project} name={r.project} href={link(r.project)} amounts={r} data={data} most={most} filter={r.project} />
            ))}
            {unallocated ? <Row name={t('projects.unallocated')} href={link('')} amounts={unallocated} data={data} most={most} filter="" muted /> : null}
          </Table.Tbody>
          <Table.Tfoot>
            <Table.Tr className="gm-total">
              <Table.Th scope="row">{t('projects.sum')}</Table.Th>
              <Table.Td className="gm-right">
                <Money value={totals.total} currency={currency} />
              </Table.Td>
              <Table.Td visibleFrom="sm" />
              <Table.Td />
              <Table.Td className="gm-right" visibleFrom="sm">
                <Money value={totals.direct} currency={currency} />
              </Table.Td>
              <Table.Td className="gm-right" visibleFrom="sm">
                <SharedAmount value={totals.shared} data={data} />
              </Table.Td>
              <Table.Td className="gm-right" visibleFrom="sm">
                <Money value={totals.figures.idle_waste} currency={currency} />
              </Table.Td>
              <Table.Td className="gm-right" visibleFrom="sm">
                <Percent value={totals.figures.utilization} />
              </Table.Td>
              <Table.Td>
                <Why what={t('projects.sum')} from={data.from} to={data.to} />
              </Table.Td>
            </Table.Tr>
          </Table.Tfoot>
        </Table>
      </div>
      <ul className="gm-legend">
        <li>
          <span className="gm-swatch" style={{ background: 'var(--gm-useful)' }} />
          {t('projects.direct')}
        </li>
        {data.share === 'none' ? null : (
          <li>
            <span className="gm-swatch" style={{ background: 'var(--gm-stopped)' }} />
            {t('projects.shared')}
          </li>
        )}
      </ul>
    </>
  );
}

/** SharedAmount is a dash where nothing is divided: that is known, and no amount. */
function SharedAmount({ value, data }: { value: string | null; data: Chargeback }) {
  const { t } = useTranslation();
  if (value === null) return <span title={t(data.share === 'none' ? 'projects.noneHint' : 'projects.nothingShared')}>–</span>;
  return <Money value={value} currency={data.currency} />;
}

interface RowProps {
  name: string;
  href: string;
  amounts: Amounts;
  data: Chargeback;
  most: number;
  filter: string;
  muted?: boolean;
}

function Row({ name, href, amounts, data, most, filter, muted }: RowProps) {
  const { t } = useTranslation();
  const format = useFormats();
  const { currency } = data;
  const width = (v: string | null) => `${most > 0 ? Math.max(0, ((toNumber(v) ?? 0) / most) * 100) : 0}%`;
  const share = quotient(amounts.total, data.totals.total);
  return (
    <Table.Tr>
      <Table.Td className="gm-name">
        <Anchor component={Link} href={href} size="sm" className="gm-cell-main" c={muted ? 'dimmed' : undefined} title={t('overview.toInstances', { key: name })}>
          {name}
        </Anchor>
        <Unpriced ms={amounts.figures.unpriced_ms} />
      </Table.Td>
      <Table.Td className="gm-right gm-cell-main">
        <Money value={amounts.total} currency={currency} />
      </Table.Td>
      <Table.Td visibleFrom="sm">
        <span className="gm-pay" aria-hidden="true">
          <span style={{ width: width(muted ? amounts.total : amounts.direct), background: muted ? 'var(--gm-free)' : 'var(--gm-useful)' }} />
          {muted ? null : <span style={{ width: width(amounts.shared), background: 'var(--gm-stopped)' }} />}
        </span>
      </Table.Td>
      <Table.Td className="gm-right gm-number">{share === null ? '–' : format.percent(share)}</Table.Td>
      <Table.Td className="gm-right" visibleFrom="sm">
        <Money value={amounts.direct} currency={currency} />
      </Table.Td>
      <Table.Td className="gm-right" visibleFrom="sm">
        <SharedAmount value={amounts.shared} data={data} />
      </Table.Td>
      <Table.Td className="gm-right" visibleFrom="sm">
        <Money value={amounts.figures.idle_waste} currency={currency} />
      </Table.Td>
      <Table.Td className="gm-right" visibleFrom="sm">
        <Percent value={amounts.figures.utilization} />
      </Table.Td>
      <Table.Td>
        <Why what={`${t('projects.direct')}: ${name}`} from={data.from} to={data.to} filters={{ project: filter }} />
      </Table.Td>
    </Table.Tr>
  );
}
