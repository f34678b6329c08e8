// Stacked bars of money over time, as SVG: few bars, each reachable by the keyboard,
// with a hatch for what is unknown. The same figures are in a table behind a button.
import { ActionIcon, Table, Tooltip } from '@mantine/core';
import { useElementSize } from '@mantine/hooks';
import { useId, useState } from 'react';
import { useTranslation } from 'react-i18next';
import type { Part } from '../api/board';
import { axisOf, classes, heightOf, slicesOf, type ClassKey } from '../lib/classes';
import { useFormats, useView } from '../lib/hooks';
import { Money, Panel, Percent } from './figures';
import { Icon } from './icons';
import { Empty } from './states';
import { useWhy, Why } from './why';

interface Props {
  title: string;
  hint?: string;
  parts: Part[];
  currency: string | null;
  label: (p: Part) => string; // on the axis
  name: (p: Part) => string; // of one bar
  count?: number; // bars that there is room for, when more are to come
}

export function BarsPanel(props: Props) {
  const { t } = useTranslation();
  const [table, setTable] = useState(false);
  const { title, hint, parts } = props;
  return (
    <Panel
      title={title}
      hint={hint}
      actions={
        <Tooltip label={t(table ? 'chart.asChart' : 'chart.asTable')}>
          <ActionIcon variant="subtle" color="gray" onClick={() => setTable(!table)} aria-pressed={table} aria-label={t('chart.asTableOf', { title })}>
            <Icon name="table" size={16} />
          </ActionIcon>
        </Tooltip>
      }
    >
      {parts.length === 0 ? <Empty title={t('state.emptySpan')} hint={t('state.emptySpanHint')} /> : table ? <BarsTable {...props} /> : <Bars {...props} />}
    </Panel>
  );
}

const height = 210;
const margin = { left: 56, right: 6, top: 8, bottom: 24 };

function Bars({ title, parts, currency, label, name, count }: Props) {
  const { t } = useTranslation();
  const format = useFormats();
  const { ref, width } = useElementSize<HTMLDivElement>();
  const hatch = useId();
  const ask = useWhy();
  const [view] = useView();
  const [at, setAt] = useState<number | null>(null);
  const heights = parts.map((p) => heightOf(p.figures));
  const { top, steps } = axisOf(Math.max(0, ...heights.map((h) => h ?? 0)));
  const slots = Math.max(count ?? 0, parts.length);
  const inner = Math.max(0, width - margin.left - margin.right);
  const slot = inner / slots;
  const bar = Math.min(44, Math.max(2, slot * 0.72));
  const tall = height - margin.top - margin.bottom;
  const y = (v: number) => margin.top + tall - (v / top) * tall;
  const every = Math.max(1, Math.ceil(62 / Math.max(1, slot)));
  const used = new Set<ClassKey>(parts.flatMap((p) => slicesOf(p.figures).filter((s) => s.size > 0).map((s) => s.key)));
  const shown = at === null ? undefined : parts[at];
  return (
    <div>
      <div ref={ref} className="gm-chart" onMouseLeave={() => setAt(null)}>
        <svg width={width} height={height} role="group" aria-label={t('chart.bars', { title })}>
          <defs>
            <pattern id={hatch} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
              <rect width="6" height="6" fill="var(--gm-surface)" />
              <rect width="3" height="6" fill="var(--gm-unknown)" />
            </pattern>
          </defs>
          {steps.map((s) => (
            <g key={s} aria-hidden="true">
              <line x1={margin.left} x2={width - margin.right} y1={y(s)} y2={y(s)} stroke="var(--gm-line)" />
              <text x={margin.left - 8} y={y(s) + 4} textAnchor="end" className="gm-axis">
                {format.moneyShort(s, currency)}
              </text>
            </g>
          ))}
          {parts.map((p, i) => {
            const x = margin.left + i * slot + (slot - bar) / 2;
            let sum = 0;
            const open = () => ask({ span: { what: `${title}: ${name(p)}`, from: p.from, to: p.to }, view });
            return (
              <g key={p.key} role="button" tabIndex={0} aria-label={describe(p)} onClick={open} onKeyDown={(e) => (e.key === 'Enter' || e.key === ' ') && (e.preventDefault(), open())} className="gm-bar" data-dim={at !== null && at !== i ? true : undefined} onMouseEnter={() => setAt(i)} onFocus={() => setAt(i)} onBlur={() => setAt(null)}>
                <rect x={margin.left + i * slot} y={margin.top} width={slot} height={tall} fill="transparent" />
                {heights[i] === null ? (
                  <rect x={x} y={y(0) - tall * 0.3} width={bar} height={tall * 0.3} fill={`url(#${hatch})`} opacity={0.45} stroke="var(--gm-unknown)" strokeDasharray="3 3" />
                ) : (
                  slicesOf(p.figures)
                    .filter((s) => s.size > 0)
                    .map((s) => {
                      const from = sum;
                      sum += s.size;
                      return <rect key={s.key} x={x} width={bar} y={y(sum)} height={Math.max(0.5, y(from) - y(sum))} fill={s.key === 'unknown' ? `url(#${hatch})` : s.color} />;
                    })
                )}
                {i % every === 0 ? (
                  <text x={x + bar / 2} y={height - 6} textAnchor="middle" className="gm-axis" aria-hidden="true">
                    {label(p)}
                  </text>
                ) : null}
              </g>
            );
          })}
        </svg>
        {shown && at !== null ? <BarTip part={shown} currency={currency} name={name(shown)} left={margin.left + at * slot + slot / 2} width={width} /> : null}
      </div>
      <ul className="gm-legend">
        {classes.filter((c) => used.has(c.key)).map((c) => (
          <li key={c.key} title={t(`classHint.${c.key}`)}>
            <span className={c.key === 'unknown' ? 'gm-swatch gm-swatch-hatch' : 'gm-swatch'} style={{ background: c.key === 'unknown' ? undefined : c.color }} />
            {t(`class.${c.key}`)}
          </li>
        ))}
      </ul>
    </div>
  );

  function describe(p: Part): string {
    const f = p.figures;
    const amount = (v: string | null) => (v == null ? t('unknown.text') : format.money(v, currency));
    return `${name(p)}: ${t('why.cost')} ${amount(f.cost)}, ${slicesOf(f).map((s) => `${t(`class.${s.key}`)} ${format.money(s.text, currency)}`).join(', ')}`;
  }
}

function BarTip({ part, currency, name, left, width }: { part: Part; currency: string | null; name: string; left: number; width: number }) {
  const { t } = useTranslation();
  const slices = slicesOf(part.figures);
  const onRight = left > width / 2;
  return (
    <div className="gm-tip" style={onRight ? { right: width - left + 14 } : { left: left + 14 }} aria-hidden="true">
      <strong>{name}</strong>
      <dl>
        {slices.map((s) => (
          <div key={s.key}>
            <dt>
              <span className={s.key === 'unknown' ? 'gm-swatch gm-swatch-hatch' : 'gm-swatch'} style={{ background: s.key === 'unknown' ? undefined : s.color }} />
              {t(`class.${s.key}`)}
            </dt>
            <dd>
              <Money value={s.text} currency={currency} />
            </dd>
          </div>
        ))}
        <div className="gm-tip-total">
          <dt>{t('why.effective')}</dt>
          <dd>
            <Money value={part.figures.effective_cost} currency={currency} />
          </dd>
        </div>
        <div>
          <dt>{t('figure.billed')}</dt>
          <dd>
            <Money value={part.figures.cost} currency={currency} />
          </dd>
        </div>
        <div>
          <dt>{t('figure.utilization')}</dt>
          <dd>
            <Percent value={part.figures.utilization} />
          </dd>
        </div>
      </dl>
    </div>
  );
}

function BarsTable({ title, parts, currency, name }: Props) {
  const { t } = useTranslation();
  const used = classes.filter((c) => parts.some((p) => slicesOf(p.figures).some((s) => s.key === c.key)));
  return (
    <div className="gm-scroll gm-scroll-y" tabIndex={0} role="region" aria-label={title}>
      <Table className="gm-table" verticalSpacing={5} stickyHeader>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('why.span')}</Table.Th>
            <Table.Th className="gm-right">{t('figure.billed')}</Table.Th>
            {used.map((c) => (
              <Table.Th key={c.key} className="gm-right">
                {t(`class.${c.key}`)}
              </Table.Th>
            ))}
            <Table.Th />
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {parts.map((p) => (
            <Table.Tr key={p.key}>
              <Table.Th scope="row">{name(p)}</Table.Th>
              <Table.Td className="gm-right">
                <Money value={p.figures.cost} currency={currency} />
              </Table.Td>
              {used.map((c) => (
                <Table.Td key={c.key} className="gm-right">
                  <Money value={p.figures[c.column]} currency={currency} />
                </Table.Td>
              ))}
              <Table.Td>
                <Why what={name(p)} from={p.from} to={p.to} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

/** Spark is the utilization of the last hours; an hour without a reading is a gap with a mark. */
export function Spark({ values, label }: { values: (string | null)[]; label: string }) {
  const [w, h] = [84, 24];
  const step = w / Math.max(1, values.length);
  return (
    <svg width={w} height={h} role="img" aria-label={label} className="gm-spark">
      {values.map((v, i) =>
        v === null ? (
          <rect key={i} x={i * step + 0.5} y={h - 4} width={step - 1} height={3} fill="none" stroke="var(--gm-unknown)" strokeWidth={0.7} />
        ) : (
          <rect key={i} x={i * step + 0.5} width={step - 1} y={h - Math.max(1, Number(v) * h)} height={Math.max(1, Number(v) * h)} fill={Number(v) < 0.01 ? 'var(--gm-waste)' : 'var(--gm-useful)'} />
        ),
      )}
    </svg>
  );
}
