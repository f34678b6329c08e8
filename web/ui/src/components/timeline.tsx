// What an instance did over time: its states and its readings, over one axis.
import { ActionIcon, Table, Tooltip } from '@mantine/core';
import { useMemo, useState } from 'react';
import { useTranslation } from 'react-i18next';
import type { StateSpan, Timeline as Data, TimelinePoint } from '../api/board';
import { toNumber } from '../lib/format';
import { useFormats } from '../lib/hooks';
import { Money, Panel, Percent, Unknown } from './figures';
import { Icon } from './icons';
import { stateColor, useStateName } from './leases';
import { Plot } from './plot';
import { Empty } from './states';

interface Props {
  data: Data;
  states: StateSpan[];
  span: [number, number]; // Unix seconds
  currency: string | null;
}

export function Timeline(props: Props) {
  const { t } = useTranslation();
  const [table, setTable] = useState(false);
  const { step } = props.data;
  const points = props.data.points ?? [];
  return (
    <Panel
      title={t('instance.timeline')}
      hint={t('instance.timelineHint', { step: t(`instance.${step}`) })}
      actions={
        <Tooltip label={t(table ? 'chart.asChart' : 'chart.asTable')}>
          <ActionIcon variant="subtle" color="gray" onClick={() => setTable(!table)} aria-pressed={table} aria-label={t('instance.tableOf')}>
            <Icon name="table" size={16} />
          </ActionIcon>
        </Tooltip>
      }
    >
      {points.length === 0 ? <Empty title={t('instance.noPoints')} /> : table ? <PointsTable points={points} currency={props.currency} /> : <Plots {...props} points={points} />}
    </Panel>
  );
}

const kinds = [
  { key: 'utilization', color: '--gm-useful' },
  { key: 'memory', color: '--gm-stopped' },
  { key: 'power', color: '--gm-minimum' },
  { key: 'cost', color: '--gm-meter' },
] as const;
type Kind = (typeof kinds)[number]['key'];

/** Steps of an axis of bytes: 1 MiB, 2 MiB and so on. */
const binary = Array.from({ length: 34 }, (_, i) => 2 ** (20 + i));

const textOf = (p: TimelinePoint, kind: Kind) => ({ utilization: p.utilization, memory: p.memory_bytes, power: p.power_watts, cost: p.cost })[kind];

function Plots({ points, states, span, currency }: Props & { points: TimelinePoint[] }) {
  const { t } = useTranslation();
  const format = useFormats();
  const [point, setPoint] = useState<number | null>(null);
  const series = useMemo(() => {
    const seconds = (s: string) => Date.parse(s) / 1000;
    return { at: points.map((p) => seconds(p.from)), end: seconds(points.at(-1)!.to), values: kinds.map(({ key }) => points.map((p) => toNumber(textOf(p, key)))) };
  }, [points]);
  const show: Record<Kind, (text: string) => string> = {
    utilization: (s) => format.percent(s),
    memory: (s) => format.bytes(s),
    power: (s) => `${format.number(s, 0)} W`,
    cost: (s) => format.money(s, currency),
  };
  const axis: Record<Kind, (n: number) => string> = {
    utilization: (n) => format.percent(n.toFixed(3)),
    memory: (n) => format.bytes(Math.round(n).toString()),
    power: (n) => `${format.number(n, 0)} W`,
    cost: (n) => format.moneyShort(n, currency),
  };
  const there = kinds.filter((_, i) => series.values[i]!.some((v) => v !== null));
  const shown = point === null ? undefined : points[point];
  return (
    <div>
      <Lane states={states} span={span} />
      {kinds.map(({ key, color }, i) => {
        const values = series.values[i]!;
        if (!there.some((k) => k.key === key)) return null;
        const known = values.filter((v) => v !== null);
        const label = t('instance.chart', { name: t(`instance.${key}`), low: axis[key](Math.min(...known)), high: axis[key](Math.max(...known)), gaps: values.length - known.length });
        const text = shown ? textOf(shown, key) : undefined;
        return (
          <div key={key}>
            <div className="gm-plot-head">
              <strong>{t(`instance.${key}`)}</strong>
              {shown ? (
                <span className="gm-number">
                  {format.instant(shown.from)} · {text == null ? t('unknown.text') : show[key](text)}
                </span>
              ) : null}
            </div>
            <Plot label={label} at={series.at} end={series.end} values={values} span={span} color={color} show={axis[key]} formats={format} top={key === 'utilization' ? 1 : undefined} steps={key === 'memory' ? binary : undefined} axis={key === there.at(-1)?.key} onPoint={(n) => setPoint(n !== null && n < points.length ? n : null)} />
          </div>
        );
      })}
    </div>
  );
}

/** Lane shows the states as blocks over the axis of the plots. */
function Lane({ states, span: [from, to] }: { states: StateSpan[]; span: [number, number] }) {
  const { t } = useTranslation();
  const format = useFormats();
  const name = useStateName();
  if (states.length === 0) return null;
  const lasts = (s: StateSpan) => (s.to === null ? `${format.instant(s.from)} – ${t('instance.now')}` : format.span(s.from, s.to));
  const place = (s: string) => Math.min(100, Math.max(0, ((Date.parse(s) / 1000 - from) / (to - from)) * 100));
  return (
    <>
      <div className="gm-plot-head">
        <strong>{t('instance.states')}</strong>
      </div>
      <div className="gm-lane-wrap">
        <div className="gm-lane" role="img" aria-label={t('instance.lane', { states: states.map((s) => `${name(s.state)} ${lasts(s)}`).join('; ') })}>
          {states.map((s) => (
            <span key={s.from} title={`${name(s.state)} · ${lasts(s)}`} style={{ left: `${place(s.from)}%`, width: `${(s.to === null ? 100 : place(s.to)) - place(s.from)}%`, '--gm-state': `color-mix(in srgb, ${stateColor(s.state)} 55%, #101319)` } as React.CSSProperties}>
              {name(s.state)}
            </span>
          ))}
        </div>
      </div>
    </>
  );
}

function PointsTable({ points, currency }: { points: TimelinePoint[]; currency: string | null }) {
  const { t } = useTranslation();
  const format = useFormats();
  const reading = (text: string | null, show: (s: string) => string) => (text === null ? <Unknown hint={t('unknown.value')} /> : show(text));
  return (
    <div className="gm-scroll gm-scroll-y" tabIndex={0} role="region" aria-label={t('instance.timeline')}>
      <Table className="gm-table" verticalSpacing={5} stickyHeader>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('instance.span')}</Table.Th>
            {[t('instance.utilization'), t('instance.memory'), t('instance.power'), t('instance.active'), t('instance.idle'), t('instance.unknown'), t('figure.idleWaste'), t('figure.cost')].map((h) => (
              <Table.Th key={h} className="gm-right">
                {h}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {points.map((p) => (
            <Table.Tr key={p.from}>
              <Table.Th scope="row">{format.instant(p.from)}</Table.Th>
              <Table.Td className="gm-right">
                <Percent value={p.utilization} />
              </Table.Td>
              <Table.Td className="gm-right">{reading(p.memory_bytes, (s) => format.bytes(s))}</Table.Td>
              <Table.Td className="gm-right">{reading(p.power_watts, (s) => `${format.number(s, 1)} W`)}</Table.Td>
              <Table.Td className="gm-right">{format.hours(p.active_ms)}</Table.Td>
              <Table.Td className="gm-right">{format.hours(p.idle_ms)}</Table.Td>
              <Table.Td className="gm-right">{format.hours(p.unknown_ms)}</Table.Td>
              <Table.Td className="gm-right">
                <Money value={p.idle_waste} currency={currency} />
              </Table.Td>
              <Table.Td className="gm-right">
                <Money value={p.cost} currency={currency} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}
