// What a mix of reserved GPUs and the rest costs, by how many are reserved, with the
// cheapest marked.
import { useComputedColorScheme } from '@mantine/core';
import { useElementSize } from '@mantine/hooks';
import { useEffect, useRef } from 'react';
import uPlot from 'uplot';
import type { Schemas } from '../api/client';
import { toNumber } from '../lib/format';

interface Props {
  label: string; // for those who cannot see it
  curve: Schemas['MixRow'][];
  best: number; // GPUs reserved at the minimum
  bestText: string; // written beside it
  money: (value: number) => string;
  onPoint: (index: number | null) => void;
}

const height = 240;

function options(p: Props, width: number, css: (name: string) => string): uPlot.Options {
  const axis = { stroke: css('--gm-muted'), grid: { stroke: css('--gm-line'), width: 1 }, ticks: { show: false }, font: `11px ${css('font-family')}` };
  const mark = (u: uPlot) => {
    const at = p.curve.findIndex((m) => m.reserved_gpus === p.best);
    const cost = u.data[1]?.[at];
    if (cost == null) return;
    const [x, y] = [u.valToPos(p.best, 'x', true), u.valToPos(cost, 'y', true)];
    const c = u.ctx;
    c.save();
    c.strokeStyle = c.fillStyle = css('--gm-good');
    c.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    c.beginPath();
    c.moveTo(x, y);
    c.lineTo(x, u.bbox.top + u.bbox.height);
    c.stroke();
    c.beginPath();
    c.arc(x, y, 5 * devicePixelRatio, 0, 7);
    c.fill();
    c.font = `600 ${12 * devicePixelRatio}px ${css('font-family')}`;
    const right = x > u.bbox.left + u.bbox.width / 2;
    c.textAlign = right ? 'right' : 'left';
    c.fillText(p.bestText, x + (right ? 8 : -8) * devicePixelRatio, u.bbox.top - 8 * devicePixelRatio); // above all lines
    c.restore();
  };
  const line = (color: string, dash?: number[]) => ({ stroke: css(color), width: dash ? 1.2 : 2, ...(dash ? { dash } : {}), points: { show: false } });
  return {
    width,
    height,
    padding: [24, 14, 0, 0],
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: false }, y: { range: (_u, _least, most) => [0, most > 0 ? most * 1.1 : 1] } },
    axes: [
      { ...axis, size: 28, space: 50, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] },
      { ...axis, size: 64, space: 34, values: (_u, list) => list.map(p.money) },
    ],
    series: [{}, line('--gm-useful'), line('--gm-commitment', [5, 4]), line('--gm-waste', [2, 3])],
    hooks: { draw: [mark], setCursor: [(u) => p.onPoint(u.cursor.idx ?? null)] },
  };
}

export function Curve(props: Props) {
  const scheme = useComputedColorScheme();
  const { ref, width } = useElementSize<HTMLDivElement>();
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!host.current || width === 0) return;
    const style = getComputedStyle(host.current);
    const css = (name: string) => (style.getPropertyValue(name) || name).trim();
    const numbers = (of: (m: Schemas['MixRow']) => string) => props.curve.map((m) => toNumber(of(m)));
    const data: uPlot.AlignedData = [props.curve.map((m) => m.reserved_gpus), numbers((m) => m.cost), numbers((m) => m.reserved_cost), numbers((m) => m.rest_cost)];
    const plot = new uPlot(options(props, width, css), data, host.current);
    return () => plot.destroy();
    // The functions among the properties are new every time and do the same.
  }, [props.curve, props.best, props.bestText, props.label, scheme, width]);
  return (
    <div ref={ref}>
      <div ref={host} role="img" aria-label={props.label} />
    </div>
  );
}
