// What the advisor says: how many GPUs to reserve, which way of paying fits a workload,
// and the same usage paid for otherwise.
import { Badge, SegmentedControl, Table } from '@mantine/core';
import { useMemo, useState } from 'react';
import { useTranslation } from 'react-i18next';
import type { Schemas } from '../api/client';
import { Curve } from '../components/curve';
import { Money, Panel, Percent, Unknown } from '../components/figures';
import { Empty } from '../components/states';
import { compareDecimals, quotient, toNumber } from '../lib/format';
import { useFormats, useParams } from '../lib/hooks';
import { Saved } from './plans';

type Pool = Schemas['PoolAdvice'];

interface Report {
  currency: string | null;
  from: string;
  to: string;
  pools: Pool[];
  modes: Schemas['ModeRow'][];
  what_if: Schemas['WhatIfRow'][];
}

const keyOf = (p: { platform: string; region: string; model: string }) => `${p.platform}/${p.region}/${p.model}`;
const placeOf = (p: { platform: string; region: string }) => [p.platform, p.region].filter(Boolean).join(' · ');

/** useTerm names a term or another mode; one that this page does not know is shown as it is. */
function useTerm() {
  const { t } = useTranslation();
  return (mode: string) => t(`plans.term.${mode as 'month'}`, { defaultValue: mode });
}

export function Advice({ data }: { data: Report }) {
  const { t } = useTranslation();
  const [params, setParams] = useParams();
  const pools = useMemo(() => [...data.pools].sort((a, b) => compareDecimals(b.savings ?? '-1', a.savings ?? '-1')), [data.pools]);
  const chosen = pools.find((p) => keyOf(p) === params.get('pool')) ?? pools.find((p) => p.offers.length > 0);
  if (pools.length === 0) {
    return (
      <Panel title={t('plans.advice')}>
        <Empty title={t('state.emptySpan')} hint={t('state.emptySpanHint')} />
      </Panel>
    );
  }
  return (
    <>
      <div className="gm-grid">
        <div className="gm-half">
          <Panel title={t('plans.advice')} hint={t('plans.adviceHint')}>
            <Pools pools={pools} currency={data.currency} chosen={chosen} choose={(p) => setParams({ pool: keyOf(p) }, true)} />
          </Panel>
        </div>
        <div className="gm-half">{chosen ? <CostCurve key={keyOf(chosen)} pool={chosen} currency={data.currency} /> : null}</div>
      </div>
      <Modes rows={data.modes} currency={data.currency} />
      <WhatIfs rows={data.what_if} currency={data.currency} />
    </>
  );
}

function Pools({ pools, currency, chosen, choose }: { pools: Pool[]; currency: string | null; chosen: Pool | undefined; choose: (p: Pool) => void }) {
  const { t } = useTranslation();
  const term = useTerm();
  return (
    <ul className="gm-list">
      {pools.map((p) => (
        <li key={keyOf(p)}>
          <button type="button" className="gm-row" aria-pressed={p === chosen} disabled={p.offers.length === 0} onClick={() => choose(p)}>
            <span>
              <span className="gm-cell-main">{p.model}</span>
              <small>
                {placeOf(p)} · {t('plans.peak', { count: p.peak_gpus })} · {t('plans.committed', { count: p.committed_gpus })}
              </small>
            </span>
            <span className="gm-right">
              <Badge variant="light" tt="none" color={p.code === 'reserve' ? 'green' : 'gray'} title={t(`plans.codeHint.${p.code}`)}>
                {p.code === 'reserve' && p.reserve_gpus !== null && p.best_term !== null ? t('plans.reserve', { count: p.reserve_gpus, term: term(p.best_term) }) : t(`plans.code.${p.code}`)}
              </Badge>
              <small>{p.offers.length === 0 ? t(`plans.codeHint.${p.code}`) : <Saving pool={p} currency={currency} />}</small>
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}

function Saving({ pool, currency }: { pool: Pool; currency: string | null }) {
  const { t } = useTranslation();
  return (
    <>
      {t('plans.saves')} <Saved value={pool.savings} currency={currency} />
    </>
  );
}

function CostCurve({ pool, currency }: { pool: Pool; currency: string | null }) {
  const { t } = useTranslation();
  const format = useFormats();
  const term = useTerm();
  const [name, setName] = useState(pool.best_term ?? pool.offers[0]?.term ?? '');
  const [at, setAt] = useState<number | null>(null);
  const offer = pool.offers.find((o) => o.term === name) ?? pool.offers[0];
  if (!offer) return null;
  const best = offer.curve.find((m) => m.reserved_gpus === offer.reserve_gpus);
  const point = (at === null ? undefined : offer.curve[at]) ?? best;
  const bestText = t('plans.best', { count: offer.reserve_gpus, cost: format.money(offer.cost, currency) });
  return (
    <Panel
      title={t('plans.curve', { pool: pool.model })}
      hint={`${placeOf(pool)} · ${t('plans.curveHint')}`}
      actions={pool.offers.length > 1 ? <SegmentedControl size="xs" aria-label={t('plans.termLabel')} value={offer.term} onChange={setName} data={pool.offers.map((o) => ({ value: o.term, label: term(o.term) }))} /> : null}
    >
      <Curve label={`${t('plans.curve', { pool: pool.model })}: ${bestText}`} curve={offer.curve} best={offer.reserve_gpus} bestText={bestText} money={(v) => format.moneyShort(v, currency)} onPoint={setAt} />
      <ul className="gm-legend">
        {(['cost', 'reserved', 'rest'] as const).map((k, i) => (
          <li key={k}>
            <span className="gm-swatch" style={{ background: ['var(--gm-useful)', 'var(--gm-commitment)', 'var(--gm-waste)'][i] }} />
            {t(`plans.line.${k}`)}
          </li>
        ))}
      </ul>
      {point ? (
        <dl className="gm-pairs">
          <Pair name={t('plans.atReserved', { count: point.reserved_gpus })}>
            <Money value={point.cost} currency={currency} />
          </Pair>
          <Pair name={t('plans.line.reserved')}>
            <Money value={point.reserved_cost} currency={currency} /> · {t('plans.unusedTime', { time: format.hours(point.unused_ms) })}
          </Pair>
          <Pair name={t('plans.line.rest')}>
            <Money value={point.rest_cost} currency={currency} /> · {format.hours(point.rest_ms)}
          </Pair>
          <Pair name={t('plans.threshold')}>{offer.threshold === null ? <Unknown hint={t('plans.noOnDemand')} /> : compareDecimals(offer.threshold, '1') > 0 ? t('plans.neverWorth') : format.percent(offer.threshold)}</Pair>
          <Pair name={t('plans.perHour')}>
            <Money value={offer.per_gpu_hour} currency={currency} /> · {t('plans.mode.on_demand')} <Money value={pool.on_demand_per_gpu_hour} currency={currency} />
            {pool.spot_per_gpu_hour === null ? null : (
              <>
                {' '}
                · {t('plans.mode.spot')} <Money value={pool.spot_per_gpu_hour} currency={currency} />
              </>
            )}
          </Pair>
        </dl>
      ) : null}
    </Panel>
  );
}

function Pair({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Modes({ rows, currency }: { rows: Report['modes']; currency: string | null }) {
  const { t } = useTranslation();
  const format = useFormats();
  const term = useTerm();
  const modes = useMemo(() => [...new Set(rows.flatMap((r) => r.costs.map((c) => c.mode)))], [rows]);
  if (rows.length === 0) return null;
  return (
    <Panel title={t('plans.modes')} hint={t('plans.modesHint')}>
      <div className="gm-scroll gm-scroll-y" tabIndex={0} role="region" aria-label={t('plans.modes')}>
        <Table className="gm-table" verticalSpacing={6} stickyHeader>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('plans.workload')}</Table.Th>
              <Table.Th>{t('plans.fits')}</Table.Th>
              <Table.Th className="gm-right">{t('plans.savings')}</Table.Th>
              <Table.Th className="gm-right">{t('plans.duty')}</Table.Th>
              {modes.map((m) => (
                <Table.Th key={m} className="gm-right">
                  {term(m)}
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rows.map((r) => (
              <Table.Tr key={`${keyOf(r)} ${r.workload}`}>
                <Table.Td className="gm-name">
                  <span className="gm-cell-main">{r.workload || t('plans.noWorkload')}</span>
                  <span className="gm-cell-sub">
                    {r.model} · {placeOf(r)} · {t('plans.peak', { count: r.peak_gpus })} · {format.hours(r.gpu_ms)}
                  </span>
                </Table.Td>
                <Table.Td>{r.mode === null ? <Unknown hint={t('plans.codeHint.unpriced')} /> : <Badge variant="light" tt="none">{term(r.mode)}</Badge>}</Table.Td>
                <Table.Td className="gm-right">
                  <Saved value={r.saving} currency={currency} />
                </Table.Td>
                <Table.Td className="gm-right">
                  <Percent value={r.duty} hint={t('unknown.value')} />
                </Table.Td>
                {modes.map((m) => {
                  const cost = r.costs.find((c) => c.mode === m);
                  return (
                    <Table.Td key={m} className="gm-right" fw={m === r.mode ? 600 : undefined}>
                      {cost ? <Money value={cost.cost} currency={currency} /> : <span title={t('plans.noSuchOffer')}>–</span>}
                    </Table.Td>
                  );
                })}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
    </Panel>
  );
}

function WhatIfs({ rows, currency }: { rows: Report['what_if']; currency: string | null }) {
  const { t } = useTranslation();
  const format = useFormats();
  const term = useTerm();
  // Of a platform without prices of its own nothing would be different.
  const shown = rows.filter((r) => r.own_ms > 0);
  const most = Math.max(0, ...shown.map((r) => toNumber(r.cost) ?? 0));
  if (shown.length === 0) return null;
  const name = (r: Report['what_if'][number]) => (r.kind === 'platform' ? t('plans.if.platform', { platform: r.platform }) : r.kind === 'plan' ? t('plans.if.plan', { term: term(r.term) }) : t(`plans.if.${r.kind}`));
  return (
    <Panel title={t('plans.whatIf')} hint={t('plans.whatIfHint', { count: rows.length - shown.length })}>
      <ul className="gm-list">
        {shown.map((r) => (
          <li key={`${r.kind} ${r.platform} ${r.term}`} className="gm-if">
            <span className={r.kind === 'as_is' ? 'gm-cell-main' : ''}>{name(r)}</span>
            <span className="gm-pay" aria-hidden="true">
              <span style={{ width: `${most > 0 ? ((toNumber(r.cost) ?? 0) / most) * 100 : 0}%`, background: r.kind === 'as_is' ? 'var(--gm-useful)' : 'var(--gm-free)' }} />
            </span>
            <span className="gm-right">
              <Money value={r.cost} currency={currency} />
              <small>
                {t('plans.ownPrices', { share: format.percent(quotient(String(r.own_ms), String(r.gpu_ms)) ?? '0') })}
                {r.unpriced_ms > 0 ? ` · ${t('unknown.unpriced', { time: format.hours(r.unpriced_ms) })}` : ''}
              </small>
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
