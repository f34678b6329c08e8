import { Anchor, Badge, Button, Group, Skeleton, Table, Text } from '@mantine/core';
import { keepPreviousData, useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { Link, useParams as useRoute } from 'wouter';
import type { InstanceDetail } from '../api/board';
import { api, must } from '../api/client';
import { Money, Panel, Percent, Tile, Unknown, Unpriced } from '../components/figures';
import { Icon } from '../components/icons';
import { StateBadge } from '../components/leases';
import { Failure, Loaded, Loading } from '../components/states';
import { Timeline } from '../components/timeline';
import { ViewBar } from '../components/viewbar';
import { useWhy, Why } from '../components/why';
import { useFormats, useNow, useView } from '../lib/hooks';
import { liveKey } from '../lib/live';
import { spanOf, writeView } from '../lib/view';

type Asked = { from?: string; to?: string; zone: string; as_of?: string };

/**
 * nameIn reads the name from the address itself: the router unescapes with decodeURI, which
 * leaves "=", "/" and others as they are.
 */
function nameIn(path: string, matched: string): string {
  try {
    return decodeURIComponent(path.slice(path.lastIndexOf('/') + 1));
  } catch {
    return matched; // no URL that a link here leads to
  }
}

export default function InstanceRoute() {
  const { id: matched = '' } = useRoute<{ id: string }>();
  const id = useMemo(() => nameIn(window.location.pathname, matched), [matched]);
  const { t } = useTranslation();
  const [view] = useView();
  const minute = useNow(60_000);
  const asked: Asked = useMemo(() => ({ ...spanOf(view, new Date(minute)), zone: view.zone, ...(view.asOf ? { as_of: view.asOf } : {}) }), [view, minute]);
  const query = useQuery({
    queryKey: [liveKey, 'instance', id, asked],
    queryFn: ({ signal }) => must(api.GET('/api/v1/instances/{id}', { params: { path: { id }, query: asked }, signal })),
    placeholderData: keepPreviousData,
  });
  return (
    <div className="gm-page">
      <div>
        <div className="gm-crumbs">
          <Anchor component={Link} href={`/instances${writeView(view)}`} size="sm">
            {t('instances.title')}
          </Anchor>
        </div>
        <div className="gm-page-head">
          <h1>{id}</h1>
          {query.data ? <StateBadge state={query.data.state} /> : null}
        </div>
      </div>
      <ViewBar />
      <Loaded query={query} skeleton={<Skeleton height={420} radius="lg" />}>
        {(item) => <Detail id={id} item={item} asked={asked} />}
      </Loaded>
    </div>
  );
}

function Detail({ id, item, asked }: { id: string; item: InstanceDetail; asked: Asked }) {
  const { t } = useTranslation();
  const ask = useWhy();
  const [view] = useView();
  const { from, to, currency } = item;
  const timeline = useQuery({
    queryKey: [liveKey, 'timeline', id, asked],
    queryFn: ({ signal }) => must(api.GET('/api/v1/instances/{id}/timeline', { params: { path: { id }, query: { ...asked, step: 'auto' } }, signal })),
    placeholderData: keepPreviousData,
  });
  const span: [number, number] = [Date.parse(from) / 1000, Date.parse(to) / 1000];
  const f = item.figures;
  const why = (what: string) => <Why what={`${what}: ${id}`} from={from} to={to} filters={{ instance: id }} />;
  return (
    <>
      <div className="gm-tiles">
        <Tile label={t('why.effective')} value={<Money value={f.effective_cost} currency={currency} />} why={why(t('why.effective'))}>
          <span>
            {t('figure.billed')}: <Money value={f.cost} currency={currency} />
          </span>
          <Unpriced ms={f.unpriced_ms} />
        </Tile>
        <Tile label={t('figure.idleWaste')} value={<Money value={f.idle_waste} currency={currency} />} why={why(t('figure.idleWaste'))} />
        <Tile label={t('figure.utilization')} value={<Percent value={f.utilization} />} why={why(t('figure.utilization'))} />
        <Tile label={t('instances.price')} value={<Money value={item.price_per_hour} currency={currency} />} why={why(t('instances.price'))} />
      </div>
      <Facts item={item} />
      <Loaded query={timeline} skeleton={<Skeleton height={460} radius="lg" />}>
        {(data) => <Timeline data={data} states={item.states ?? []} span={span} currency={currency} />}
      </Loaded>
      <div className="gm-grid">
        <div className="gm-half">
          <States item={item} />
        </div>
        <div className="gm-half">
          <Charges id={id} from={from} to={to} />
        </div>
      </div>
      <Group>
        <Button variant="default" size="sm" leftSection={<Icon name="why" size={16} />} onClick={() => ask({ span: { what: `${t('instance.events')}: ${id}`, from, to }, view: { ...view, filters: { instance: id }, labels: [] } })}>
          {t('instance.eventsShow')}
        </Button>
      </Group>
    </>
  );
}

function Facts({ item }: { item: InstanceDetail }) {
  const { t } = useTranslation();
  const format = useFormats();
  const now = useNow(30_000);
  const none = <Text c="dimmed" size="sm" component="span">{t('instance.none')}</Text>;
  const time = (s: string | null) => (s === null ? <Unknown hint={t('unknown.value')} /> : <span title={format.exact(s)}>{format.instant(s)}</span>);
  const facts: [string, React.ReactNode][] = [
    [t('instances.project'), item.project || none],
    [t('instances.model'), item.model || <Unknown hint={t('unknown.value')} />],
    [t('instance.gpus'), item.gpus === null ? <Unknown hint={t('unknown.value')} /> : format.number(item.gpus)],
    [t('instances.platform'), [item.platform, item.region].filter(Boolean).join(' · ') || none],
    [t('instances.plan'), item.plan || none],
    [t('instance.owner'), item.owner || none],
    [t('instances.since'), time(item.since)],
    [t('instance.lastActive'), time(item.last_active)],
    [t('instance.lastReading'), time(item.last_reading)],
  ];
  if (item.idle_since !== null) facts.push([t('instances.idle'), <span key="idle" className="gm-idle">{t('instances.idleFor', { age: format.duration(Math.max(0, now - Date.parse(item.idle_since))) })}</span>]);
  const labels = Object.entries(item.labels);
  const units = item.units ?? [];
  return (
    <Panel title={t('instance.facts')}>
      <dl className="gm-facts">
        {facts.map(([k, v]) => (
          <div key={k}>
            <dt>{k}</dt>
            <dd>{v}</dd>
          </div>
        ))}
        <div>
          <dt>{t('instance.labels')}</dt>
          <dd>
            {labels.length === 0
              ? none
              : labels.map(([k, v]) => (
                  <Badge key={k} variant="light" color="gray" tt="none" mr={4}>
                    {k}={v}
                  </Badge>
                ))}
          </dd>
        </div>
      </dl>
      {units.length > 0 ? (
        <details className="gm-details">
          <summary>
            {t('instance.units')} ({format.number(units.length)})
          </summary>
          <ul className="gm-list">
            {units.map((u) => (
              <li key={`${u.unit} ${u.node}`} className="gm-event">
                <code>{u.unit}</code> <small>{u.node}</small>
              </li>
            ))}
          </ul>
        </details>
      ) : null}
    </Panel>
  );
}

function States({ item }: { item: InstanceDetail }) {
  const { t } = useTranslation();
  const format = useFormats();
  const states = item.states ?? [];
  const end = Date.parse(item.to);
  return (
    <Panel title={t('instance.states')}>
      {states.length === 0 ? (
        <Text size="sm" c="dimmed">
          {t('instance.noStates')}
        </Text>
      ) : (
        <div className="gm-scroll gm-scroll-y" tabIndex={0} role="region" aria-label={t('instance.states')}>
          <Table className="gm-table" verticalSpacing={6}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t('instances.state')}</Table.Th>
                <Table.Th>{t('instance.span')}</Table.Th>
                <Table.Th>{t('instance.plan')}</Table.Th>
                <Table.Th className="gm-right">{t('instance.gpus')}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {states.map((s) => (
                <Table.Tr key={s.from}>
                  <Table.Td>
                    <StateBadge state={s.state} />
                  </Table.Td>
                  <Table.Td>
                    {format.instant(s.from)}
                    <span className="gm-cell-sub">{format.duration((s.to === null ? end : Date.parse(s.to)) - Date.parse(s.from))}</span>
                  </Table.Td>
                  <Table.Td>{s.plan}</Table.Td>
                  <Table.Td className="gm-right">{format.number(s.gpus)}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </div>
      )}
    </Panel>
  );
}

function Charges({ id, from, to }: { id: string; from: string; to: string }) {
  const { t } = useTranslation();
  const format = useFormats();
  const ask = useWhy();
  const pages = useInfiniteQuery({
    queryKey: [liveKey, 'charges', id, from, to],
    initialPageParam: '',
    queryFn: ({ pageParam, signal }) => must(api.GET('/api/v1/instances/{id}/charges', { params: { path: { id }, query: { from, to, ...(pageParam ? { after: pageParam } : {}) } }, signal })),
    getNextPageParam: (last) => last.next || undefined,
    placeholderData: keepPreviousData,
  });
  const items = pages.data?.pages.flatMap((p) => p.items ?? []) ?? [];
  return (
    <Panel title={t('instance.charges')} hint={t('instance.chargesHint')}>
      {pages.data === undefined ? (
        pages.error ? <Failure error={pages.error} retry={() => void pages.refetch()} /> : <Loading />
      ) : items.length === 0 ? (
        <Text size="sm" c="dimmed">
          {t('instance.noCharges')}
        </Text>
      ) : (
        <ul className="gm-list gm-scroll-y">
          {items.map((c) => (
            <li key={c.id}>
              <button type="button" className="gm-row" onClick={() => ask({ line: c.id })} title={t('why.open', { line: c.id.slice(0, 8) })}>
                <span>
                  {[c.category, c.status, c.plan, c.meter].filter(Boolean).join(' · ')}
                  <small>
                    {format.span(c.from, c.to)}
                    {c.quantity !== null && c.unit_price !== null ? ` · ${format.number(c.quantity, 4)} × ${format.money(c.unit_price, c.currency)}` : ''}
                  </small>
                </span>
                <Money value={c.billed_cost} currency={c.currency} />
                <Icon name="right" size={14} />
              </button>
            </li>
          ))}
        </ul>
      )}
      {pages.hasNextPage ? (
        <Button variant="default" size="xs" mt="xs" loading={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>
          {t('instance.more')}
        </Button>
      ) : null}
    </Panel>
  );
}
