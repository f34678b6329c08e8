// Identities that were sent with several contents, side by side where they differ.
import { Badge, Table } from '@mantine/core';
import { useTranslation } from 'react-i18next';
import type { Schemas } from '../api/client';
import { Panel } from '../components/figures';
import { Empty } from '../components/states';
import { useFormats } from '../lib/hooks';

type Conflict = Schemas['ConflictDoc'];
type Content = Record<string, unknown>;

/** Where a content was stored, which differs always and says nothing of what was sent. */
const places = new Set(['counted', 'payload_hash', 'stream', 'stream_sequence', 'place', 'stored_at']);

export function Conflicts({ rows, total }: { rows: Conflict[]; total: number }) {
  const { t } = useTranslation();
  return (
    <Panel title={t('quality.conflictsTitle')} hint={t('quality.conflictsHint')}>
      {rows.length === 0 ? (
        <Empty title={t('quality.noConflicts')} hint={t('quality.noConflictsHint')} />
      ) : (
        rows.map((c) => <ConflictTable key={`${c.source} ${c.id}`} conflict={c} />)
      )}
      {total > rows.length && rows.length > 0 ? <p className="gm-cell-sub">{t('quality.moreConflicts', { count: total - rows.length })}</p> : null}
    </Panel>
  );
}

function ConflictTable({ conflict }: { conflict: Conflict }) {
  const { t } = useTranslation();
  const format = useFormats();
  const { contents, corrections } = conflict;
  const text = (v: unknown) => (v === null || v === undefined ? t('unknown.text') : typeof v === 'object' ? JSON.stringify(v) : String(v));
  const keys = [...new Set(contents.flatMap((c) => Object.keys(c)))].filter((k) => !places.has(k));
  const differ = keys.filter((k) => new Set(contents.map((c) => JSON.stringify(c[k] ?? null))).size > 1);
  const same = keys.filter((k) => !differ.includes(k) && ['unit', 'instance', 'start', 'end', 'at', 'model'].includes(k));
  const settled = corrections.find((c) => c.effective === true);
  const head = (c: Content) => (
    <>
      <Badge variant="light" color={c.counted === true && !settled ? 'green' : 'gray'} tt="none">
        {t(c.counted === true ? 'quality.counts' : 'why.notCounted')}
      </Badge>
      <span className="gm-cell-sub">{format.instant(String(c.stored_at), true)}</span>
    </>
  );
  return (
    <div className="gm-conflict">
      <div className="gm-cell-main">{conflict.id}</div>
      <div className="gm-cell-sub">
        {conflict.source} · {same.map((k) => text(contents[0]?.[k])).join(' · ')}
      </div>
      <div className="gm-scroll" tabIndex={0} role="region" aria-label={conflict.id}>
        <Table className="gm-table" verticalSpacing={5}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('quality.differs')}</Table.Th>
              {contents.map((c, i) => (
                <Table.Th key={i}>{head(c)}</Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {differ.map((k) => (
              <Table.Tr key={k}>
                <Table.Th scope="row">
                  <code>{k}</code>
                </Table.Th>
                {contents.map((c, i) => (
                  <Table.Td key={i}>{text(c[k])}</Table.Td>
                ))}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
      <div className="gm-todo">{settled ? t('quality.settled', { actor: text(settled.actor), reason: text(settled.reason) }) : t('quality.todos.conflict')}</div>
    </div>
  );
}
