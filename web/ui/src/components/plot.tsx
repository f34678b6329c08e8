// A line over the time axis that the plots of a page share. What is unknown is a hatched
// gap in the line.
import { useComputedColorScheme } from '@mantine/core';
import { useElementSize } from '@mantine/hooks';
import { useEffect, useRef } from 'react';
import uPlot from 'uplot';
import type { Formats } from '../lib/format';

export const plotLeft = 64;
export const plotRight = 10;

export interface PlotProps {
  label: string; // for those who cannot see it
  at: number[]; // where steps begin, Unix seconds
  end: number; // where the last one ends
  values: (number | null)[];
  span: [number, number];
  color: string; // a CSS variable
  show: (value: number) => string;
  formats: Formats;
  steps?: number[]; // that the axis may have; decimal otherwise
  top?: number; // upper end of the axis; that of the values otherwise
  axis?: boolean; // whether the time is written below
  onPoint?: (index: number | null) => void;
}

const plain = 96;

function hatch(context: CanvasRenderingContext2D, color: string): CanvasPattern | string {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 8;
  const c = tile.getContext('2d');
  if (!c) return 'transparent';
  c.strokeStyle = color;
  c.globalAlpha = 0.4;
  c.lineWidth = 1.5;
  for (const d of [-8, 0, 8]) {
    c.moveTo(d, 8);
    c.lineTo(d + 8, 0);
  }
  c.stroke();
  return context.createPattern(tile, 'repeat') ?? 'transparent';
}

function options(p: PlotProps, width: number, css: (name: string) => string): uPlot.Options {
  const unknown = css('--gm-unknown');
  const time = (s: number) => new Date(s * 1000).toISOString();
  const long = p.span[1] - p.span[0] > 3 * 86400;
  return {
    width,
    height: plain + (p.axis ? 26 : 0),
    padding: [8, plotRight, p.axis ? 0 : 8, 0],
    legend: { show: false },
    cursor: { sync: { key: 'gpumeter' }, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: true, range: () => p.span }, y: { range: (_u, _min, most) => [0, p.top ?? (most > 0 ? most * 1.08 : 1)] } },
    axes: [
      { show: p.axis === true, size: 26, stroke: css('--gm-muted'), grid: { stroke: css('--gm-line'), width: 1 }, ticks: { show: false }, font: `11px ${css('font-family')}`, space: 90, values: (_u, list) => list.map((s) => (long ? p.formats.day(time(s)) : p.formats.time(time(s)))) },
      { size: plotLeft, stroke: css('--gm-muted'), grid: { stroke: css('--gm-line'), width: 1 }, ticks: { show: false }, font: `11px ${css('font-family')}`, space: 30, ...(p.steps ? { incrs: p.steps } : {}), values: (_u, list) => list.map(p.show) },
    ],
    series: [{}, { stroke: css(p.color), width: 1.5, fill: `color-mix(in srgb, ${css(p.color)} 16%, transparent)`, spanGaps: false, points: { show: false } }],
    hooks: {
      drawClear: [
        (u) => {
          u.ctx.save();
          u.ctx.fillStyle = hatch(u.ctx, unknown);
          p.values.forEach((v, i) => {
            if (v !== null) return;
            const from = u.valToPos(p.at[i]!, 'x', true);
            const to = u.valToPos(p.at[i + 1] ?? p.end, 'x', true);
            u.ctx.fillRect(from, u.bbox.top, to - from, u.bbox.height);
          });
          u.ctx.restore();
        },
      ],
      setCursor: [(u) => p.onPoint?.(u.cursor.idx == null ? null : u.cursor.idx >> 1)],
    },
  };
}

export function Plot(props: PlotProps) {
  const scheme = useComputedColorScheme();
  const { ref, width } = useElementSize<HTMLDivElement>();
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!host.current || width === 0) return;
    const style = getComputedStyle(host.current);
    const css = (name: string) => (style.getPropertyValue(name) || name).trim();
    // A step is level from its beginning until just before the next one, also beside a gap.
    const at = props.at.flatMap((from, i) => [from, (props.at[i + 1] ?? props.end) - 0.001]);
    const values = props.values.flatMap((v) => [v, v]);
    const plot = new uPlot(options(props, width, css), [at, values], host.current);
    return () => plot.destroy();
    // The functions among the properties are new every time and do the same.
  }, [props.at, props.values, props.end, props.span[0], props.span[1], props.label, props.formats, props.axis, scheme, width]);
  return (
    <div ref={ref}>
      <div ref={host} role="img" aria-label={props.label} />
    </div>
  );
}
