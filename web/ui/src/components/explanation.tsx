import { Anchor, Badge, Button, Code, Group, Stack, Table, Text } from '@mantine/core';
import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { api, must, type Schemas } from '../api/client';
import { Formats } from '../lib/format';
import { explainCommand, filterQuery, type View } from '../lib/view';
import { Command } from './command';
import { Money, Unknown, Unpriced } from './figures';
import { Icon } from './icons';
import { Failure, Loaded, Loading } from './states';
import { useFormats } from '../lib/hooks';
import type { Asked, Question } from './why';

export default function Explanation({ asked }: { asked: Asked }) {
  const { t } = useTranslation();
  const [line, setLine] = useState<string | null>('line' in asked ? asked.line : null);
  if (line !== null) {
    return (
      <Stack>
        {'span' in asked ? (
          <Button variant="subtle" size="compact-sm" leftSection={<Icon name="left" size={14} />} onClick={() => setLine(null)} style={{ alignSelf: 'flex-start' }}>
            {t('why.back')}
          </Button>
        ) : null}
        <Charge line={line} />
      </Stack>
    );
  }
  return 'span' in asked ? <Figure span={asked.span} view={asked.view} open={setLine} /> : null;
}

export function Repeat({ command }: { command: string }) {
  const { t } = useTranslation();
  return <Command title={t('why.repeat')} command={command} />;
}

function Figure({ span, view, open }: { span: Question; view: View; open: (line: string) => void }) {
  const { t, i18n } = useTranslation();
  const format = new Formats(i18n.language, view.zone);
  const query = { from: span.from, to: span.to, zone: view.zone, ...(view.asOf ? { as_of: view.asOf } : {}), ...filterQuery(view) };
  const pages = useInfiniteQuery({
    queryKey: ['explain', query],
    initialPageParam: '',
    queryFn: ({ pageParam, signal }) => must(api.GET('/api/v1/explain', { params: { query: { ...query, limit: 50, ...(pageParam ? { after: pageParam } : {}) } }, signal })),
    getNextPageParam: (last) => last.next || undefined,
  });
  if (pages.data === undefined) return pages.error ? <Failure error={pages.error} retry={() => void pages.refetch()} /> : <Loading rows={10} />;
  const first = pages.data.pages[0];
  if (first === undefined) return null;
  const events = pages.data.pages.flatMap((p) => p.events ?? []);
  const link = `/api/v1/explain?${new URLSearchParams(Object.entries(query).flatMap(([k, v]) => [v].flat().map((x): [string, string] => [k, x])))}`;
  return (
    <Stack gap="lg">
      <div>
        <Text fw={600}>{span.what}</Text>
        <Text size="sm" c="dimmed">
          {format.span(first.from, first.to)} · {view.zone}
        </Text>
        <Group gap={6} mt={6}>
          {Object.entries(first.filter ?? {}).map(([k, v]) => (
            <Badge key={k} variant="light" color="gray" tt="none">
              {k}={v}
            </Badge>
          ))}
        </Group>
      </div>
      <Totals total={first.total} currency={first.currency ?? null} format={format} />
      <Text size="xs" c="dimmed">
        {t('why.asOf')} {format.exact(first.as_of)} · {t('why.priceVersion')} {first.price_version ? <Code>{first.price_version.slice(0, 16)}</Code> : t('why.noPrices')}
      </Text>
      <Pieces lines={first.lines ?? []} currency={first.currency ?? null} format={format} />
      <Charges charges={first.charges ?? []} more={first.more_charges} format={format} open={open} />
      <Events events={events} format={format} />
      {pages.hasNextPage ? (
        <Button variant="default" size="xs" loading={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()} style={{ alignSelf: 'flex-start' }}>
          {t('why.more')}
        </Button>
      ) : null}
      <Repeat command={explainCommand({ from: first.from, to: first.to }, view)} />
      <Anchor href={link} size="sm" target="_blank">
        {t('why.api')}
      </Anchor>
    </Stack>
  );
}

function Totals({ total, currency, format }: { total: Schemas['ExplainTotal']; currency: string | null; format: Formats }) {
  const { t } = useTranslation();
  return (
    <section aria-label={t('why.total')} className="gm-totals">
      <dl>
        <div>
          <dt>{t('why.cost')}</dt>
          <dd>
            <Money value={total.cost} currency={currency} />
          </dd>
        </div>
        <div>
          <dt>{t('why.idleWaste')}</dt>
          <dd>
            <Money value={total.idle_waste} currency={currency} />
          </dd>
        </div>
        <div>
          <dt>{t('why.effective')}</dt>
          <dd>
            <Money value={total.effective_cost} currency={currency} />
          </dd>
        </div>
        <div>
          <dt>{t('why.list')}</dt>
          <dd>
            <Money value={total.list_cost} currency={currency} />
          </dd>
        </div>
        {(['allocated', 'active', 'idle', 'unknown'] as const).map((k) => (
          <div key={k}>
            <dt>{t(`why.${k}`)}</dt>
            <dd className="gm-number">{format.hours(total[`${k}_ms`])}</dd>
          </div>
        ))}
      </dl>
      <Unpriced ms={total.unpriced_ms} />
    </section>
  );
}

function Pieces({ lines, currency, format }: { lines: Schemas['ExplainLine'][]; currency: string | null; format: Formats }) {
  const { t } = useTranslation();
  if (lines.length === 0) return null;
  return (
    <section aria-label={t('why.pieces')}>
      <Text fw={600}>{t('why.pieces')}</Text>
      <Text size="xs" c="dimmed" mb={6}>
        {t('why.piecesHint')}
      </Text>
      <div className="gm-scroll" tabIndex={0} role="region" aria-label={t('why.pieces')}>
        <Table className="gm-table" verticalSpacing={6}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('why.span')}</Table.Th>
              <Table.Th>{t('key.model')}</Table.Th>
              <Table.Th className="gm-right">{t('why.time')}</Table.Th>
              <Table.Th className="gm-right">{t('why.amount')}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {lines.map((l, i) => (
              <Table.Tr key={i}>
                <Table.Td>{format.span(l.from, l.to)}</Table.Td>
                <Table.Td>
                  {[l.model, l.platform, l.region].filter(Boolean).join(' · ')}
                  <div className="gm-arithmetic">{l.arithmetic}</div>
                </Table.Td>
                <Table.Td className="gm-right gm-number">{format.hours(l.allocated_ms)}</Table.Td>
                <Table.Td className="gm-right">
                  <Money value={l.amount} currency={currency} hint={t('why.unpriced')} />
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
    </section>
  );
}

function Charges({ charges, more, format, open }: { charges: Schemas['ExplainCharge'][]; more: number; format: Formats; open: (line: string) => void }) {
  const { t } = useTranslation();
  if (charges.length === 0) return null;
  return (
    <section aria-label={t('why.charges')}>
      <Text fw={600}>{t('why.charges')}</Text>
      <Text size="xs" c="dimmed" mb={6}>
        {t('why.chargesHint')}
      </Text>
      <ul className="gm-list">
        {charges.map((c) => (
          <li key={c.id}>
            <button type="button" className="gm-row" onClick={() => open(c.id)} title={t('why.open', { line: c.id.slice(0, 8) })}>
              <span>
                <code>{c.id.slice(0, 8)}</code> {[c.category, c.status, c.plan, c.instance, c.meter].filter(Boolean).join(' · ')}
                <small>{format.span(c.from, c.to)}</small>
              </span>
              <Money value={c.billed_cost} currency={c.currency ?? null} />
              <Icon name="right" size={14} />
            </button>
          </li>
        ))}
      </ul>
      {more > 0 ? (
        <Text size="sm" c="dimmed">
          {t('why.moreCharges', { count: more })}
        </Text>
      ) : null}
    </section>
  );
}

function Events({ events, format }: { events: Schemas['ExplainEvent'][]; format: Formats }) {
  const { t } = useTranslation();
  return (
    <section aria-label={t('why.events')}>
      <Text fw={600}>{t('why.events')}</Text>
      <Text size="xs" c="dimmed" mb={6}>
        {events.length === 0 ? t('why.empty') : t('why.eventsHint')}
      </Text>
      <ul className="gm-list">
        {events.map((e) => (
          <li key={`${e.source}/${e.id}/${e.payload_hash}`} className={e.counted ? 'gm-event' : 'gm-event gm-event-out'}>
            <div>
              <span className="gm-number">{format.span(e.start, e.end)}</span>
              <span className="gm-number">{e.utilization == null ? <Unknown hint={t('unknown.utilization')} /> : format.percent(e.utilization)}</span>
            </div>
            <small>
              {[e.instance, e.unit, e.source].filter(Boolean).join(' · ')}
              {e.counted ? null : ` · ${t('why.notCounted')}`}
            </small>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Charge({ line }: { line: string }) {
  const { t } = useTranslation();
  const format = useFormats();
  const query = useQuery({ queryKey: ['charge', line], queryFn: ({ signal }) => must(api.GET('/api/v1/charges/{line}', { params: { path: { line } }, signal })) });
  return (
    <Loaded query={query}>
      {({ charge: c, entries }) => {
        const money = (v: string | null | undefined) => <Money value={v} currency={c.currency ?? null} />;
        const rows: [string, React.ReactNode][] = [
          [t('why.span'), format.span(c.from, c.to)],
          [t('why.category'), [c.category, c.status, c.plan, c.meter].filter(Boolean).join(' · ')],
          [t('key.instance'), c.instance || '–'],
          [t('key.model'), [c.model, c.platform, c.region].filter(Boolean).join(' · ')],
          [t('why.metered'), format.hours(c.metered_ms)],
          [t('why.billable'), format.hours(c.billable_ms)],
          [t('why.quantity'), c.quantity == null ? <Unknown hint={t('unknown.value')} /> : `${format.number(c.quantity, 6)} ${c.unit ?? ''}`],
          [t('why.listPrice'), money(c.list_unit_price)],
          [t('why.price'), money(c.unit_price)],
          [t('why.list'), money(c.list_cost)],
          [t('why.cost'), money(c.billed_cost)],
          [t('why.effective'), money(c.effective_cost)],
          [t('why.priceVersion'), c.price_version ? <Code key="v">{c.price_version.slice(0, 16)}</Code> : t('why.noPrices')],
        ];
        return (
          <Stack gap="md">
            <Text fw={600}>{t('why.charge', { line: c.id.slice(0, 12) })}</Text>
            <dl className="gm-pairs">
              {rows.map(([k, v]) => (
                <div key={k}>
                  <dt>{k}</dt>
                  <dd>{v}</dd>
                </div>
              ))}
            </dl>
            {c.arithmetic?.length ? <div className="gm-arithmetic gm-arithmetic-block">{c.arithmetic.join('\n')}</div> : null}
            <div>
              <Text fw={600}>{t('why.booked')}</Text>
              {entries.length === 0 ? (
                <Text size="sm" c="dimmed">
                  {t('why.notBooked')}
                </Text>
              ) : (
                <ul className="gm-list">
                  {entries.map((e) => (
                    <li key={e.id} className="gm-event">
                      <div>
                        <span>{e.reversal ? t('why.reversal') : t('why.booking')}</span>
                        <span className="gm-number">{format.instant(e.booked_at, true)}</span>
                      </div>
                      <small>{e.reason}</small>
                    </li>
                  ))}
                </ul>
              )}
            </div>
            <Repeat command={`gpumeter explain ${c.id}`} />
          </Stack>
        );
      }}
    </Loaded>
  );
}
