import { Anchor, Button, Progress, Skeleton, Table } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { Link } from 'wouter';
import type { Figures, Overview, Part } from '../api/board';
import { api, must } from '../api/client';
import { BarsPanel } from '../components/bars';
import { Money, Panel, Percent, Tile, Unknown, Unpriced } from '../components/figures';
import { Icon } from '../components/icons';
import { Loaded } from '../components/states';
import { ViewBar } from '../components/viewbar';
import { Why } from '../components/why';
import { compareDecimals, growth, quotient, toNumber } from '../lib/format';
import { useFormats, useView } from '../lib/hooks';
import { overviewKey } from '../lib/live';
import { scopeQuery, viewQuery, writeView, type Dimension } from '../lib/view';

export default function OverviewPage() {
  const { t } = useTranslation();
  const [view] = useView();
  // The month to date is what the stream tells; every other range is asked for.
  const scope = useMemo(() => (view.range === 'month' ? scopeQuery(view) : viewQuery(view, new Date())), [view]);
  const query = useQuery({
    queryKey: overviewKey(scope),
    queryFn: ({ signal }) => must(api.GET('/api/v1/overview', { params: { query: scope }, signal })),
  });
  return (
    <div className="gm-page">
      <div className="gm-page-head">
        <h1>{t('overview.title')}</h1>
      </div>
      <ViewBar />
      <Loaded query={query} skeleton={<Placeholder />}>
        {(data) => <Board data={data} />}
      </Loaded>
    </div>
  );
}

function Placeholder() {
  return (
    <>
      <div className="gm-tiles">
        {Array.from({ length: 8 }, (_, i) => (
          <Skeleton key={i} height={112} radius="lg" />
        ))}
      </div>
      <Skeleton height={290} radius="lg" />
      <Skeleton height={290} radius="lg" />
    </>
  );
}

function Board({ data }: { data: Overview }) {
  const { t } = useTranslation();
  const format = useFormats();
  const { currency } = data;
  const [view] = useView();
  const { range, series } = data;
  const middle = new Date(Date.parse(data.month.from) + 15 * 86_400_000);
  const days = new Date(Date.UTC(middle.getUTCFullYear(), middle.getUTCMonth() + 1, 0)).getUTCDate();
  const hourly = series.step === 'hour';
  const name = (p: Part) => (series.step === 'month' ? format.month(p.from) : hourly ? format.instant(p.from) : format.dayLong(p.from));
  return (
    <>
      <div className="gm-tiles">
        <BurnTile data={data} />
        <WasteNowTile data={data} />
        <Tile label={t('overview.today')} value={<Money value={data.today.figures.effective_cost} currency={currency} />} why={<Why what={t('overview.today')} from={data.today.from} to={data.today.to} />}>
          <Billed figures={data.today.figures} currency={currency} />
          <WasteLine figures={data.today.figures} currency={currency} />
          <Unpriced ms={data.today.figures.unpriced_ms} />
        </Tile>
        <MonthTile data={data} />
        <ForecastTile data={data} />
        <Tile label={t('figure.idleWaste')} value={<Money value={range.figures.idle_waste} currency={currency} />} why={<Why what={t('figure.idleWaste')} from={range.from} to={range.to} />}>
          <Share text="overview.wasteOfCost" part={range.figures.idle_waste} whole={range.figures.effective_cost} />
          <span>{format.span(range.from, range.to)}</span>
        </Tile>
        <Tile label={t('figure.utilization')} value={<Percent value={range.figures.utilization} />} why={<Why what={t('figure.utilization')} from={range.from} to={range.to} />}>
          <span>
            {t('figure.allocated')}: {format.hours(range.figures.allocated_ms)}
          </span>
          <span>{format.span(range.from, range.to)}</span>
        </Tile>
        <Tile label={t('overview.coverage')} value={<Percent value={data.coverage} />} why={<Why what={t('overview.coverage')} from={range.from} to={range.to} />}>
          <span>{t('overview.coverageHint')}</span>
        </Tile>
      </div>
      <QualityLine data={data} />
      <div className="gm-grid">
        <div className="gm-two-thirds">
          <BarsPanel title={t(`overview.per_${series.step}`)} hint={`${t('overview.stackHint')} · ${format.span(range.from, range.to)}`} parts={series.points ?? []} currency={currency} label={(p) => (hourly ? format.time(p.from) : series.step === 'day' ? format.day(p.from) : format.month(p.from))} name={name} count={view.range === 'month' && series.step === 'day' ? days : undefined} />
        </div>
        <div className="gm-third">
          <BarsPanel title={t('overview.hours')} hint={t('overview.stackHint')} parts={data.hours ?? []} currency={currency} label={(p) => format.time(p.from)} name={(p) => format.instant(p.from)} count={24} />
        </div>
        {(['project', 'model', 'platform', 'plan'] as const).map((d) => (
          <div className="gm-half" key={d}>
            <Breakdown dimension={d} parts={data.by[d] ?? []} currency={currency} total={range.figures.effective_cost} />
          </div>
        ))}
      </div>
    </>
  );
}

function BurnTile({ data }: { data: Overview }) {
  const { t } = useTranslation();
  const format = useFormats();
  const { gpus } = data.now;
  const kinds = [['active', 'var(--gm-useful)'], ['idle', 'var(--gm-waste)'], ['unknown', 'var(--gm-unknown)'], ['free', 'var(--gm-free)']] as const;
  const sum = kinds.reduce((n, [k]) => n + (toNumber(gpus[k]) ?? 0), 0);
  return (
    <Tile
      accent
      label={t('overview.burn')}
      value={
        <>
          <Money value={data.now.burn_per_hour} currency={data.currency} /> <small>{t('overview.burnUnit')}</small>
        </>
      }
      why={<Why what={t('overview.burn')} from={data.now.from} to={data.now.to} />}
    >
      <span>{t('overview.gpus', { allocated: format.number(gpus.allocated) })}</span>
      <span className="gm-split" aria-hidden="true">
        {kinds.map(([k, color]) => (
          <span key={k} className={k === 'unknown' ? 'gm-swatch-hatch' : ''} style={{ flexGrow: sum > 0 ? (toNumber(gpus[k]) ?? 0) / sum : 0, background: k === 'unknown' ? undefined : color }} />
        ))}
      </span>
      <span className="gm-inline">
        {kinds.map(([k, color]) => (
          <span key={k}>
            <span className={k === 'unknown' ? 'gm-swatch gm-swatch-hatch' : 'gm-swatch'} style={{ background: k === 'unknown' ? undefined : color }} />
            {format.number(gpus[k])} {t(`overview.${k}`)}
          </span>
        ))}
      </span>
    </Tile>
  );
}

function WasteNowTile({ data }: { data: Overview }) {
  const { t } = useTranslation();
  const { waste_per_hour: waste, burn_per_hour: burn, from, to } = data.now;
  return (
    <Tile
      label={t('overview.wasteNow')}
      value={
        <>
          <Money value={waste} currency={data.currency} /> <small>{t('overview.burnUnit')}</small>
        </>
      }
      why={<Why what={t('overview.wasteNow')} from={from} to={to} />}
    >
      <Share text="overview.wasteShare" part={waste} whole={burn} />
    </Tile>
  );
}

function Share({ text, part, whole }: { text: 'overview.wasteShare' | 'overview.wasteOfCost'; part: string | null; whole: string | null }) {
  const { t } = useTranslation();
  const format = useFormats();
  const share = quotient(part, whole);
  return share === null ? null : <span>{t(text, { share: format.percent(share) })}</span>;
}

function WasteLine({ figures, currency }: { figures: Figures; currency: string | null }) {
  const { t } = useTranslation();
  return (
    <span>
      {t('figure.idleWaste')}: <Money value={figures.idle_waste} currency={currency} />
    </span>
  );
}

/** Billed is shown where what was billed is not what the time effectively cost. */
function Billed({ figures, currency }: { figures: Figures; currency: string | null }) {
  const { t } = useTranslation();
  const { cost, effective_cost: effective } = figures;
  if (cost === effective || (cost != null && effective != null && compareDecimals(cost, effective) === 0)) return null;
  return (
    <span>
      {t('figure.billed')}: <Money value={cost} currency={currency} />
    </span>
  );
}

function MonthTile({ data }: { data: Overview }) {
  const { t } = useTranslation();
  const format = useFormats();
  const { currency, budget, month } = data;
  const same = data.last_month_to_date.figures.effective_cost;
  const whole = data.last_month.figures.effective_cost;
  const change = growth(month.figures.effective_cost, same);
  const over = budget?.used_share != null && compareDecimals(budget.used_share, '1') > 0;
  return (
    <Tile label={t('overview.month')} value={<Money value={month.figures.effective_cost} currency={currency} />} why={<Why what={t('overview.month')} from={month.from} to={month.to} />}>
      <Billed figures={month.figures} currency={currency} />
      {budget ? (
        <>
          {budget.used_share == null ? null : <Progress value={Math.min(100, Number(budget.used_share) * 100)} size="sm" color={over ? 'red' : undefined} aria-label={t('overview.budget', { share: format.percent(budget.used_share), amount: format.money(budget.amount, currency) })} />}
          <span>
            {budget.used_share == null ? <Unknown hint={t('unknown.amount')} /> : t('overview.budget', { share: format.percent(budget.used_share), amount: format.money(budget.amount, currency) })}
            {over ? ` · ${t('overview.budgetOver')}` : ''}
          </span>
        </>
      ) : (
        <span>{t('overview.noBudget')}</span>
      )}
      {change !== null && same !== null ? <span>{t('overview.vsSame', { change: format.change(change), amount: format.money(same, currency) })}</span> : null}
      {whole !== null ? <span>{t('overview.vsWhole', { amount: format.money(whole, currency) })}</span> : null}
      <Unpriced ms={month.figures.unpriced_ms} />
    </Tile>
  );
}

function ForecastTile({ data }: { data: Overview }) {
  const { t } = useTranslation();
  const format = useFormats();
  const { forecast, currency } = data;
  return (
    <Tile label={t('overview.forecast')} value={forecast ? <Money value={forecast.amount} currency={currency} /> : <Unknown hint={t('overview.noForecast')} />} why={<Why what={t('overview.forecast')} from={data.month.from} to={data.month.to} />}>
      {forecast?.low != null && forecast.high != null ? <span>{t('overview.forecastRange', { low: format.money(forecast.low, currency), high: format.money(forecast.high, currency) })}</span> : null}
      {forecast ? <span>{forecast.method === 'mean_of_days' ? t('overview.forecastFrom', { count: forecast.days_used }) : t('overview.forecastNow')}</span> : <span>{t('overview.noForecast')}</span>}
    </Tile>
  );
}

function QualityLine({ data }: { data: Overview }) {
  const { t } = useTranslation();
  const q = data.quality;
  if (q === null) return null; // it cannot be told apart by project
  const facts = [
    [q.open_incidents, 'overview.incidents'], [q.gaps, 'overview.gaps'], [q.conflicts, 'overview.conflicts'], [q.quarantined, 'overview.quarantined'], [q.late, 'overview.late'], [q.held, 'overview.held'],
  ] as const;
  const there = facts.filter(([n]) => n > 0);
  const serious = q.open_incidents > 0 || q.gaps > 0;
  return (
    <div className={serious ? 'gm-quality gm-quality-bad' : 'gm-quality'} role="note" aria-label={t('overview.quality')}>
      <Icon name={serious ? 'alert' : 'quality'} size={16} />
      <strong>{t('overview.quality')}</strong>
      <span>{there.length === 0 ? t('overview.allGood') : there.map(([count, key]) => t(key, { count })).join(' · ')}</span>
    </div>
  );
}

const shortList = 6;

function Breakdown({ dimension, parts, currency, total }: { dimension: 'project' | 'model' | 'platform' | 'plan'; parts: Part[]; currency: string | null; total: string | null }) {
  const { t } = useTranslation();
  const [view] = useView();
  const [all, setAll] = useState(false);
  const title = t(({ project: 'overview.byProject', model: 'overview.byModel', platform: 'overview.byPlatform', plan: 'overview.byPlan' } as const)[dimension]);
  const sorted = useMemo(() => [...parts].sort((a, b) => compareDecimals(b.figures.effective_cost ?? '-1', a.figures.effective_cost ?? '-1')), [parts]);
  const shown = all ? sorted : sorted.slice(0, shortList);
  return (
    <Panel title={title}>
      <div className="gm-scroll">
        <Table className="gm-table" verticalSpacing={6}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t(`key.${dimension}`)}</Table.Th>
              <Table.Th className="gm-right">{t('why.effective')}</Table.Th>
              <Table.Th className="gm-right">{t('figure.idleWaste')}</Table.Th>
              <Table.Th className="gm-right">{t('figure.utilization')}</Table.Th>
              <Table.Th />
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {shown.map((p) => {
              const name = p.key !== '' ? p.key : dimension === 'plan' ? t('overview.onDemand') : t('overview.without');
              const share = quotient(p.figures.effective_cost, total);
              const filters = { ...view.filters, [dimension]: p.key } as Partial<Record<Dimension, string>>;
              return (
                <Table.Tr key={p.key}>
                  <Table.Td className="gm-name">
                    <Anchor component={Link} href={`/instances${writeView({ ...view, filters })}`} size="sm" title={t('overview.toInstances', { key: name })}>
                      {name}
                    </Anchor>
                    <span className="gm-share" aria-hidden="true">
                      <span style={{ width: `${Math.min(100, Math.max(0, (toNumber(share) ?? 0) * 100))}%` }} />
                    </span>
                  </Table.Td>
                  <Table.Td className="gm-right">
                    <Money value={p.figures.effective_cost} currency={currency} />
                    {p.figures.unpriced_ms > 0 ? (
                      <div>
                        <Unpriced ms={p.figures.unpriced_ms} />
                      </div>
                    ) : null}
                  </Table.Td>
                  <Table.Td className="gm-right">
                    <Money value={p.figures.idle_waste} currency={currency} />
                  </Table.Td>
                  <Table.Td className="gm-right">
                    <Percent value={p.figures.utilization} />
                  </Table.Td>
                  <Table.Td className="gm-right">
                    <Why what={`${t('why.effective')}: ${name}`} from={p.from} to={p.to} filters={{ [dimension]: p.key }} />
                  </Table.Td>
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      </div>
      {sorted.length > shortList ? (
        <Button variant="subtle" size="compact-sm" mt="xs" onClick={() => setAll(!all)}>
          {all ? t('overview.less') : t('overview.more', { count: sorted.length - shortList })}
        </Button>
      ) : null}
    </Panel>
  );
}
