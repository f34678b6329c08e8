import { Anchor, Badge, Skeleton, Table } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { Link } from 'wouter';
import { api, must } from '../api/client';
import { Command } from '../components/command';
import { Panel } from '../components/figures';
import { Empty, Loaded } from '../components/states';
import { addDays, dateIn } from '../lib/view';
import { useFormats, useNow } from '../lib/hooks';

export default function StatementsPage() {
  const { t } = useTranslation();
  const format = useFormats();
  const now = useNow(60_000);
  const query = useQuery({ queryKey: ['statements'], queryFn: ({ signal }) => must(api.GET('/api/v1/statements', { signal })) });
  return (
    <div className="gm-page">
      <div className="gm-page-head">
        <h1>{t('statements.title')}</h1>
        {query.data ? <span className="gm-count">{t('statements.count', { count: query.data.statements?.length ?? 0 })}</span> : null}
      </div>
      <Loaded query={query} skeleton={<Skeleton height={300} radius="lg" />}>
        {(data) => {
          const closed = [...(data.statements ?? [])].reverse();
          const month = dateIn(new Date(now), closed[0]?.zone ?? 'UTC').slice(0, 7);
          const last = addDays(`${month}-01`, -1).slice(0, 7);
          const open = [month, last].filter((p) => closed.every((c) => c.period !== p));
          return (
            <>
              <Panel title={t('statements.closed')} hint={t('statements.closedHint')}>
                {closed.length === 0 ? (
                  <Empty title={t('statements.none')} hint={t('statements.noneHint')} />
                ) : (
                  <div className="gm-scroll" tabIndex={0} role="region" aria-label={t('statements.closed')}>
                    <Table className="gm-table" verticalSpacing={7} highlightOnHover>
                      <Table.Thead>
                        <Table.Tr>
                          <Table.Th>{t('statements.period')}</Table.Th>
                          <Table.Th>{t('statements.closedAt')}</Table.Th>
                          <Table.Th>{t('statements.reason')}</Table.Th>
                          <Table.Th visibleFrom="sm">{t('statements.hash')}</Table.Th>
                        </Table.Tr>
                      </Table.Thead>
                      <Table.Tbody>
                        {closed.map((c) => (
                          <Table.Tr key={c.hash}>
                            <Table.Td>
                              <Anchor component={Link} href={`/statements/${c.period}`} size="sm" className="gm-cell-main">
                                {c.period}
                              </Anchor>
                              <span className="gm-cell-sub">{c.zone}</span>
                            </Table.Td>
                            <Table.Td>
                              {format.instant(c.closed_at, true)}
                              <span className="gm-cell-sub">{c.closed_by}</span>
                            </Table.Td>
                            <Table.Td className="gm-name">
                              {c.reason || '–'}
                              {c.override ? (
                                <span className="gm-forced">
                                  <Badge variant="light" color="orange" tt="none">{t('statements.overridden')}</Badge> {c.override}
                                </span>
                              ) : null}
                            </Table.Td>
                            <Table.Td visibleFrom="sm">
                              <code title={c.hash}>{c.hash.slice(0, 16)}</code>
                            </Table.Td>
                          </Table.Tr>
                        ))}
                      </Table.Tbody>
                    </Table>
                  </div>
                )}
              </Panel>
              <Panel title={t('statements.open')} hint={t('statements.openHint')}>
                <ul className="gm-list">
                  {open.map((p) => (
                    <li key={p} className="gm-event">
                      <Anchor component={Link} href={`/statements/${p}`} size="sm">
                        {t('statements.preview', { period: p })}
                      </Anchor>
                    </li>
                  ))}
                </ul>
                <div style={{ marginTop: 12 }}>
                  <Command title={t('statements.close')} command={`gpumeter statement close --period ${open.at(-1) ?? month} --actor NAME`} />
                </div>
              </Panel>
            </>
          );
        }}
      </Loaded>
    </div>
  );
}
