import { Badge, Button, Progress, Skeleton, Table } from '@mantine/core';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { api, must, type Schemas } from '../api/client';
import { Money, Panel, Percent, Tile } from '../components/figures';
import { Icon } from '../components/icons';
import { Empty, Loaded } from '../components/states';
import { ViewBar } from '../components/viewbar';
import { Why } from '../components/why';
import { compareDecimals, isZero, quotient } from '../lib/format';
import { useFormats, useNow, useView } from '../lib/hooks';
import { spanOf, type Dimension, type View } from '../lib/view';
import { Advice } from './advice';

type PlanRow = Schemas['PlanRow'];

/** Filters that a plan can be asked by; the rest of the view says nothing about plans. */
const known: Dimension[] = ['project', 'platform', 'model', 'region'];

function planQuery(view: View, now: Date) {
  const filters = Object.fromEntries(known.flatMap((d) => (view.filters[d] === undefined ? [] : [[d, view.filters[d]]])));
  return { ...spanOf(view, now), zone: view.zone, ...(view.asOf ? { as_of: view.asOf } : {}), ...filters };
}

export default function PlansPage() {
  const { t } = useTranslation();
  const [view] = useView();
  const minute = useNow(60_000);
  const asked = useMemo(() => planQuery(view, new Date(minute)), [view, minute]);
  const plans = useQuery({
    queryKey: ['plans', asked],
    queryFn: ({ signal }) => must(api.GET('/api/v1/reports/plans', { params: { query: asked }, signal })),
    placeholderData: keepPreviousData,
  });
  const advice = useQuery({
    queryKey: ['advise', asked],
    queryFn: ({ signal }) => must(api.GET('/api/v1/reports/advise', { params: { query: asked }, signal })),
    placeholderData: keepPreviousData,
    // Who may not see plans may not see advice: one refusal says it.
    enabled: plans.data !== undefined,
  });
  const left = [...(Object.keys(view.filters) as Dimension[]).filter((d) => !known.includes(d)).map((d) => t(`key.${d}`)), ...(view.labels.length > 0 ? [t('key.label')] : [])];
  return (
    <div className="gm-page">
      <div className="gm-page-head">
        <h1>{t('plans.title')}</h1>
        {plans.data ? <span className="gm-count">{t('plans.count', { count: plans.data.plans.length })}</span> : null}
      </div>
      <ViewBar />
      {left.length > 0 ? (
        <div className="gm-quality" role="note">
          <Icon name="filter" size={16} /> {t('plans.leftOut', { filters: left.join(', ') })}
        </div>
      ) : null}
      <Loaded query={plans} skeleton={<Skeleton height={360} radius="lg" />}>
        {(data) => (
          <>
            {data.totals.map((s) => (
              <Totals key={s.currency} sums={s} />
            ))}
            <Panel title={t('plans.bought')} hint={t('plans.boughtHint')}>
              {data.plans.length === 0 ? <Empty title={t('plans.none')} hint={t('plans.noneHint')} /> : <Plans rows={data.plans} />}
            </Panel>
            <Loaded query={advice} skeleton={<Skeleton height={360} radius="lg" />}>
              {(a) => <Advice data={a} />}
            </Loaded>
          </>
        )}
      </Loaded>
    </div>
  );
}

function Totals({ sums }: { sums: Schemas['PlanTotals'] }) {
  const { t } = useTranslation();
  const format = useFormats();
  const { currency } = sums;
  const unused = quotient(sums.unused_cost, sums.cost);
  return (
    <div className="gm-tiles">
      <Tile label={t('plans.cost')} value={<Money value={sums.cost} currency={currency} />}>
        <span>{t('plans.costHint')}</span>
      </Tile>
      <Tile label={t('plans.unusedCost')} value={<Money value={sums.unused_cost} currency={currency} />}>
        {unused === null ? null : <span>{t('plans.ofCost', { share: format.percent(unused) })}</span>}
      </Tile>
      <Tile label={t('plans.onDemand')} value={<Money value={sums.on_demand_cost} currency={currency} hint={t('plans.noOnDemand')} />}>
        <span>{t('plans.onDemandHint')}</span>
      </Tile>
      <Tile label={t('plans.savings')} value={<Saved value={sums.savings} currency={currency} />}>
        <span>{t('plans.savingsHint')}</span>
      </Tile>
    </div>
  );
}

/** Saved is an amount that is good above zero and bad below. */
export function Saved({ value, currency }: { value: string | null; currency: string | null }) {
  const { t } = useTranslation();
  const sign = value === null || isZero(value) ? '' : value.startsWith('-') ? 'gm-loss' : 'gm-gain';
  return (
    <span className={sign}>
      <Money value={value} currency={currency} hint={t('plans.noOnDemand')} />
    </span>
  );
}

const shortList = 8;

function Plans({ rows }: { rows: PlanRow[] }) {
  const { t } = useTranslation();
  const [all, setAll] = useState(false);
  // The dearest first: that is where a look is worth most.
  const sorted = useMemo(() => [...rows].sort((a, b) => compareDecimals(b.cost, a.cost)), [rows]);
  const shown = all ? sorted : sorted.slice(0, shortList);
  return (
    <>
      <div className="gm-scroll" tabIndex={0} role="region" aria-label={t('plans.bought')}>
        <Table className="gm-table" verticalSpacing={7}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('plans.plan')}</Table.Th>
              <Table.Th>{t('plans.verdict')}</Table.Th>
              <Table.Th w={130}>{t('plans.use')}</Table.Th>
              <Table.Th className="gm-right">{t('figure.cost')}</Table.Th>
              <Table.Th className="gm-right" visibleFrom="sm">
                {t('plans.onDemand')}
              </Table.Th>
              <Table.Th className="gm-right">{t('plans.savings')}</Table.Th>
              <Table.Th visibleFrom="sm">{t('plans.breakEven')}</Table.Th>
              <Table.Th />
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {shown.map((p) => (
              <Plan key={`${p.kind} ${p.contract} ${p.id} ${p.instance} ${p.from}`} plan={p} />
            ))}
          </Table.Tbody>
        </Table>
      </div>
      {sorted.length > shortList ? (
        <Button variant="subtle" size="compact-sm" mt="xs" onClick={() => setAll(!all)}>
          {all ? t('overview.less') : t('overview.more', { count: sorted.length - shortList })}
        </Button>
      ) : null}
    </>
  );
}

function Plan({ plan: p }: { plan: PlanRow }) {
  const { t } = useTranslation();
  const format = useFormats();
  const name = p.instance || p.id;
  const term = p.term === '' ? '' : t(`plans.term.${p.term}`, { defaultValue: p.term });
  return (
    <Table.Tr>
      <Table.Td className="gm-name">
        <span className="gm-cell-main">{name}</span>
        <span className="gm-cell-sub">{[t(`plans.kind.${p.kind}`), p.contract, term, p.gpus > 0 ? t('instances.gpus', { count: p.gpus }) : ''].filter(Boolean).join(' · ')}</span>
        <span className="gm-cell-sub">{[p.model, p.platform, p.region, p.project].filter(Boolean).join(' · ')}</span>
      </Table.Td>
      <Table.Td>
        <Verdict verdict={p.verdict} />
      </Table.Td>
      <Table.Td>
        {p.kind === 'quote' ? (
          <span className="gm-cell-sub">{format.hours(p.used_ms)}</span>
        ) : (
          <>
            {p.utilization === null ? null : <Progress value={Number(p.utilization) * 100} size="sm" mb={4} aria-label={t('plans.useOf', { share: format.percent(p.utilization) })} />}
            <Percent value={p.utilization} />
            <span className="gm-cell-sub">{t('plans.unusedTime', { time: format.hours(p.unused_ms) })}</span>
          </>
        )}
      </Table.Td>
      <Table.Td className="gm-right">
        <Money value={p.cost} currency={p.currency} />
        {isZero(p.unused_cost) ? null : (
          <span className="gm-cell-sub">
            {t('plans.unused')} <Money value={p.unused_cost} currency={p.currency} />
          </span>
        )}
      </Table.Td>
      <Table.Td className="gm-right" visibleFrom="sm">
        <Money value={p.on_demand_cost} currency={p.currency} hint={t('plans.noOnDemand')} />
      </Table.Td>
      <Table.Td className="gm-right">
        <Saved value={p.savings} currency={p.currency} />
      </Table.Td>
      <Table.Td visibleFrom="sm">
        <BreakEven plan={p} />
      </Table.Td>
      <Table.Td>
        <Why what={name} from={p.from} to={p.to} filters={p.instance ? { instance: p.instance } : { project: p.project, platform: p.platform, ...(p.model ? { model: p.model } : {}) }} />
      </Table.Td>
    </Table.Tr>
  );
}

function BreakEven({ plan: p }: { plan: PlanRow }) {
  const { t } = useTranslation();
  const format = useFormats();
  if (p.break_even_hours === null) return <span className="gm-cell-sub">{t('plans.noBreakEven')}</span>;
  const hours = format.number(p.break_even_hours, 1);
  return (
    <>
      {p.cycle_hours === null ? t('plans.breakEvenJob', { hours }) : t('plans.breakEvenOf', { hours, cycle: format.number(p.cycle_hours, 1) })}
      {p.never_breaks_even ? <span className="gm-cell-sub gm-loss">{t('plans.never')}</span> : null}
      {!p.never_breaks_even && p.hours_to_break_even !== null ? (
        <span className="gm-cell-sub">{isZero(p.hours_to_break_even) ? t('plans.reached') : t('plans.missing', { hours: format.number(p.hours_to_break_even, 1), left: format.number(p.hours_left, 1) })}</span>
      ) : null}
    </>
  );
}

const verdictColors: Record<PlanRow['verdict'], string> = { keep: 'green', too_dear_at_this_use: 'orange', never_breaks_even: 'red', unused: 'red', unpriced: 'gray' };

function Verdict({ verdict }: { verdict: PlanRow['verdict'] }) {
  const { t } = useTranslation();
  return (
    <Badge variant="light" color={verdictColors[verdict]} tt="none" miw="max-content" title={t(`plans.verdictHint.${verdict}`)}>
      {t(`plans.verdicts.${verdict}`)}
    </Badge>
  );
}
