import { Badge, Skeleton, Table } from '@mantine/core';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { api, must, type Schemas } from '../api/client';
import { Panel, Tile, Unknown } from '../components/figures';
import { Empty, Loaded } from '../components/states';
import { ViewBar } from '../components/viewbar';
import { useFormats, useNow, useView } from '../lib/hooks';
import { spanOf } from '../lib/view';
import { Conflicts } from './conflicts';
import { QuarantinePanel } from './quarantine';

type Report = Schemas['ReportDoc'];
type Incident = Schemas['IncidentDoc'];

export default function QualityPage() {
  const { t } = useTranslation();
  const [view] = useView();
  const minute = useNow(60_000);
  const asked = useMemo(() => ({ ...spanOf(view, new Date(minute)), zone: view.zone, ...(view.asOf ? { as_of: view.asOf } : {}) }), [view, minute]);
  const query = useQuery({
    queryKey: ['quality', asked],
    queryFn: ({ signal }) => must(api.GET('/api/v1/reports/{kind}', { params: { path: { kind: 'quality' }, query: asked }, signal })),
    placeholderData: keepPreviousData,
  });
  return (
    <div className="gm-page">
      <div className="gm-page-head">
        <h1>{t('quality.title')}</h1>
      </div>
      <ViewBar filters={false} />
      <Loaded query={query} skeleton={<Skeleton height={420} radius="lg" />}>
        {(data) => (
          <>
            <Figures quality={data.quality} />
            <Incidents rows={data.incidents ?? []} />
            <Conflicts rows={data.conflict_list ?? []} total={data.quality.conflicts} />
            <QuarantinePanel />
            <Sources data={data} />
          </>
        )}
      </Loaded>
    </div>
  );
}

const figures = ['open_incidents', 'gaps', 'conflicts', 'quarantined', 'late', 'held'] as const;

function Figures({ quality }: { quality: Schemas['Quality'] }) {
  const { t } = useTranslation();
  const format = useFormats();
  return (
    <div className="gm-tiles">
      {figures.map((k) => (
        <Tile key={k} label={t(`quality.${k}`)} value={<span className={quality[k] > 0 && k !== 'late' && k !== 'held' ? 'gm-loss' : ''}>{format.number(quality[k])}</span>}>
          <span>{t(`quality.${k}_hint`)}</span>
        </Tile>
      ))}
      <Tile label={t('quality.outside')} value={format.hours(quality.outside_lease_ms)}>
        <span>{t('quality.outside_hint')}</span>
      </Tile>
    </div>
  );
}

function Incidents({ rows }: { rows: Incident[] }) {
  const { t } = useTranslation();
  const sorted = useMemo(() => [...rows].sort((a, b) => Number(a.closed_at !== null) - Number(b.closed_at !== null) || b.opened_at.localeCompare(a.opened_at)), [rows]);
  return (
    <Panel title={t('quality.incidents')} hint={t('quality.incidentsHint')}>
      {sorted.length === 0 ? (
        <Empty title={t('quality.noIncidents')} hint={t('quality.noIncidentsHint')} />
      ) : (
        <ul className="gm-list">
          {sorted.map((i) => (
            <IncidentRow key={`${i.kind} ${i.key} ${i.opened_at}`} incident={i} />
          ))}
        </ul>
      )}
    </Panel>
  );
}

function IncidentRow({ incident: i }: { incident: Incident }) {
  const { t } = useTranslation();
  const format = useFormats();
  const open = i.closed_at === null;
  const span = i.from === null ? t('quality.anyTime') : i.to === null ? t('quality.goesOn', { from: format.instant(i.from) }) : format.span(i.from, i.to);
  return (
    <li className="gm-incident">
      <div className="gm-card-row">
        <span className="gm-cell-main">
          {t(`quality.kind.${i.kind}`)} <Badge variant="light" color={open ? 'red' : 'gray'} tt="none">{t(open ? 'quality.open' : 'quality.closed')}</Badge>
        </span>
        <span className="gm-cell-sub gm-right">
          {t('quality.openedAt', { at: format.instant(i.opened_at, true) })}
          {i.closed_at === null ? null : ` · ${t('quality.closedAt', { at: format.instant(i.closed_at, true) })}`}
        </span>
      </div>
      <div lang="en">{i.detail}</div>
      <div className="gm-cell-sub">
        {t('quality.touches')} {span} · {i.key}
      </div>
      {open ? (
        <div className="gm-todo">
          <strong>{t('quality.todo')}</strong> {t(`quality.todos.${i.kind}`)}
        </div>
      ) : null}
    </li>
  );
}

function Sources({ data }: { data: Report }) {
  const { t } = useTranslation();
  const format = useFormats();
  const rows = data.sources ?? [];
  return (
    <Panel title={t('quality.sources')} hint={t('quality.sourcesHint', { shown: rows.length, total: data.sources_total ?? rows.length })}>
      {rows.length === 0 ? (
        <Empty title={t('quality.noSources')} hint={t('state.emptySpanHint')} />
      ) : (
        <div className="gm-scroll gm-scroll-y" tabIndex={0} role="region" aria-label={t('quality.sources')}>
          <Table className="gm-table" verticalSpacing={6} stickyHeader>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t('why.source')}</Table.Th>
                <Table.Th className="gm-right">{t('why.events')}</Table.Th>
                <Table.Th className="gm-right">{t('quality.late')}</Table.Th>
                <Table.Th className="gm-right">{t('quality.held')}</Table.Th>
                <Table.Th className="gm-right">{t('quality.worst')}</Table.Th>
                <Table.Th className="gm-right">{t('quality.clock')}</Table.Th>
                <Table.Th>{t('quality.last')}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {rows.map((s) => (
                <Table.Tr key={s.source}>
                  <Table.Td className="gm-name">{s.source}</Table.Td>
                  <Table.Td className="gm-right">{format.number(s.events)}</Table.Td>
                  <Table.Td className="gm-right">{format.number(s.late)}</Table.Td>
                  <Table.Td className="gm-right">{format.number(s.held)}</Table.Td>
                  <Table.Td className="gm-right">{s.worst_delay_ms === null ? <Unknown hint={t('unknown.value')} /> : format.duration(s.worst_delay_ms)}</Table.Td>
                  <Table.Td className="gm-right">{s.clock_offset_ms === null ? <Unknown hint={t('quality.noClock')} /> : s.clock_offset_ms === 0 ? t('quality.clockGood') : t('quality.ahead', { time: format.duration(s.clock_offset_ms) })}</Table.Td>
                  <Table.Td>{format.instant(s.last_event, true)}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </div>
      )}
    </Panel>
  );
}
