import { Badge, Button, CopyButton, Group, SegmentedControl, Select, Skeleton, Stack, Table } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { diffLines } from 'diff';
import { useMemo, type ReactNode } from 'react';
import { useTranslation } from 'react-i18next';
import { api, must, mustText, type Schemas } from '../api/client';
import { Command } from '../components/command';
import { Panel } from '../components/figures';
import { Icon } from '../components/icons';
import { Empty, Failure, Loaded, Loading } from '../components/states';
import { useFormats, useParams } from '../lib/hooks';

type Document = Schemas['PriceDocument'];
type Version = Schemas['PriceVersion'];

const keyOf = (d: Document) => `${d.kind}/${d.name}`;

export default function PricesPage() {
  const { t } = useTranslation();
  const query = useQuery({ queryKey: ['prices'], queryFn: ({ signal }) => must(api.GET('/api/v1/prices', { signal })) });
  return (
    <div className="gm-page">
      <div className="gm-page-head">
        <h1>{t('prices.title')}</h1>
        {query.data ? <span className="gm-count">{t('prices.count', { count: query.data.documents?.length ?? 0 })}</span> : null}
      </div>
      <Loaded query={query} skeleton={<Skeleton height={420} radius="lg" />}>
        {({ documents }) => <Board documents={documents ?? []} />}
      </Loaded>
    </div>
  );
}

function Board({ documents }: { documents: Document[] }) {
  const { t } = useTranslation();
  const [params, setParams] = useParams();
  const chosen = documents.find((d) => keyOf(d) === params.get('doc')) ?? documents[0];
  if (!chosen) {
    return (
      <div className="gm-panel">
        <Empty title={t('prices.none')} hint={t('prices.noneHint')}>
          <Command title={t('prices.apply')} command="gpumeter prices apply prices.yaml --reason WHY" />
        </Empty>
      </div>
    );
  }
  return (
    <div className="gm-grid">
      <div className="gm-third">
        <Panel title={t('prices.documents')} hint={t('prices.documentsHint')}>
          <ul className="gm-list">
            {documents.map((d) => (
              <li key={keyOf(d)}>
                <button type="button" className="gm-row" aria-pressed={d === chosen} onClick={() => setParams({ doc: keyOf(d), v: null, to: null, show: null })}>
                  <span>
                    <span className="gm-cell-main">{d.name}</span>
                    <small>
                      {t(`prices.kind.${d.kind}`)} · {t('prices.versions', { count: d.versions?.length ?? 0 })}
                    </small>
                  </span>
                  {d.current === null ? <Badge variant="light" color="gray" tt="none">{t('prices.withdrawn')}</Badge> : null}
                </button>
              </li>
            ))}
          </ul>
        </Panel>
      </div>
      <div className="gm-two-thirds">
        <OneDocument key={keyOf(chosen)} document={chosen} />
      </div>
    </div>
  );
}

/** OneDocument counts versions from 1, as they were applied: one may be applied twice. */
function OneDocument({ document: d }: { document: Document }) {
  const { t } = useTranslation();
  const [params, setParams] = useParams();
  const versions = d.versions ?? [];
  const at = (name: string) => {
    const n = Number(params.get(name));
    return Number.isInteger(n) && n >= 1 && n <= versions.length ? n : null;
  };
  const shown = at('v') ?? versions.length;
  const before = at('to') ?? shown - 1;
  const comparing = (params.get('show') ?? 'text') === 'diff' && versions.length > 1;
  const version = versions[shown - 1];
  const format = useFormats();
  if (!version) return null;
  return (
    <Stack gap="md">
      <Panel title={`${t(`prices.kind.${d.kind}`)}: ${d.name}`} hint={t('prices.history')}>
        <History versions={versions} shown={shown} choose={(n) => setParams({ v: n === versions.length ? null : String(n), to: null }, true)} />
      </Panel>
      <Panel
        title={comparing ? t('prices.diffOf', { from: before, to: shown }) : t('prices.textOf', { version: shown })}
        hint={t('prices.by', { who: version.applied_by, at: format.instant(version.applied_at, true) })}
        actions={
          versions.length > 1 ? (
            <Group gap="xs" justify="flex-end">
              {comparing ? (
                <Select size="xs" w={150} aria-label={t('prices.against')} value={String(before)} allowDeselect={false} onChange={(v) => setParams({ to: v }, true)} data={versions.map((_, i) => ({ value: String(i + 1), label: t('prices.version', { version: i + 1 }), disabled: i + 1 === shown })).concat(before === 0 ? [{ value: '0', label: t('prices.nothing'), disabled: false }] : [])} />
              ) : null}
              <SegmentedControl size="xs" aria-label={t('prices.show')} value={comparing ? 'diff' : 'text'} onChange={(v) => setParams({ show: v === 'text' ? null : v }, true)} data={[{ value: 'text', label: t('prices.text') }, { value: 'diff', label: t('prices.diff') }]} />
            </Group>
          ) : null
        }
      >
        {comparing ? <Difference document={d} before={versions[before - 1]} after={version} /> : <VersionText document={d} version={version} />}
      </Panel>
      <Command title={t('prices.apply')} command="gpumeter prices apply FILE --reason WHY --dry-run" />
    </Stack>
  );
}

function History({ versions, shown, choose }: { versions: Version[]; shown: number; choose: (n: number) => void }) {
  const { t } = useTranslation();
  const format = useFormats();
  const last = versions.length;
  return (
    <div className="gm-scroll gm-scroll-y" tabIndex={0} role="region" aria-label={t('prices.history')}>
      <Table className="gm-table" verticalSpacing={6}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('prices.versionHead')}</Table.Th>
            <Table.Th>{t('prices.applied')}</Table.Th>
            <Table.Th>{t('prices.why')}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {versions
            .map((v, i) => ({ v, n: i + 1 }))
            .reverse()
            .map(({ v, n }) => (
              <Table.Tr key={n} data-chosen={n === shown || undefined} className="gm-version">
                <Table.Td>
                  <Button size="compact-xs" variant={n === shown ? 'filled' : 'default'} onClick={() => choose(n)} aria-pressed={n === shown} aria-label={t('prices.version', { version: n })}>
                    {n}
                  </Button>{' '}
                  {v.withdrawn ? <Badge variant="light" color="gray" tt="none">{t('prices.withdrawn')}</Badge> : n === last ? <Badge variant="light" color="green" tt="none">{t('prices.inForce')}</Badge> : null}
                  {v.version ? <span className="gm-cell-sub" title={v.version}><code>{v.version.slice(0, 12)}</code></span> : null}
                </Table.Td>
                <Table.Td>
                  {format.instant(v.applied_at, true)}
                  <span className="gm-cell-sub">{v.applied_by}</span>
                </Table.Td>
                <Table.Td className="gm-name">
                  {v.reason}
                  {v.forced ? (
                    <span className="gm-forced">
                      <Icon name="alert" size={13} /> {t('prices.forced', { reason: v.forced })}
                    </span>
                  ) : null}
                </Table.Td>
              </Table.Tr>
            ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

/** useText reads the text of a version; of one without a text, such as a withdrawal, it is empty. */
function useText(document: Document, version: Version | undefined) {
  const hash = version?.content_hash ?? '';
  return useQuery({
    queryKey: ['price', document.kind, document.name, hash],
    staleTime: Infinity, // what a hash names never changes
    queryFn: ({ signal }) => (hash === '' ? Promise.resolve('') : mustText(api.GET('/api/v1/prices/{kind}/{name}', { params: { path: { kind: document.kind, name: document.name }, query: { version: hash } }, parseAs: 'text', signal }))),
  });
}

function VersionText({ document, version }: { document: Document; version: Version }) {
  const { t } = useTranslation();
  const query = useText(document, version);
  if (version.withdrawn) return <Empty title={t('prices.withdrawn')} hint={t('prices.withdrawnHint')} />;
  return (
    <Loaded query={query}>
      {(text) => (
        <>
          <Group justify="space-between" mb={6}>
            <span className="gm-cell-sub">
              {t('statements.hash')} <code>{version.content_hash.slice(0, 16)}</code>
            </span>
            <CopyButton value={text}>
              {({ copied, copy }) => (
                <Button size="compact-xs" variant="default" onClick={copy} leftSection={<Icon name={copied ? 'check' : 'copy'} size={13} />}>
                  {copied ? t('why.copied') : t('why.copy')}
                </Button>
              )}
            </CopyButton>
          </Group>
          <Lines>{text.replace(/\n$/, '').split('\n').map((line, i) => <Line key={i} number={i + 1} text={line} />)}</Lines>
        </>
      )}
    </Loaded>
  );
}

function Lines({ children }: { children: ReactNode }) {
  const { t } = useTranslation();
  return (
    <div className="gm-lines" tabIndex={0} role="region" aria-label={t('prices.text')}>
      {children}
    </div>
  );
}

function Line({ number, text, change = '' }: { number: number | null; text: string; change?: '' | '+' | '-' }) {
  const { t } = useTranslation();
  return (
    <div className={`gm-line${change === '+' ? ' gm-line-new' : change === '-' ? ' gm-line-old' : ''}`}>
      <span className="gm-line-number" aria-hidden="true">
        {number ?? ''}
      </span>
      <span className="gm-line-sign" aria-label={change === '+' ? t('prices.added') : change === '-' ? t('prices.removed') : undefined} role={change === '' ? undefined : 'img'}>
        {change}
      </span>
      <code>{text || ' '}</code>
    </div>
  );
}

interface Piece {
  change: '' | '+' | '-';
  number: number | null; // in the later text
  text: string;
}

/** Lines far from any change are left out, with how many there are. */
const around = 3;

function piecesOf(before: string, after: string): { pieces: (Piece | number)[]; added: number; removed: number } {
  const all: Piece[] = [];
  let number = 0;
  for (const part of diffLines(before, after)) {
    const change = part.added ? '+' : part.removed ? '-' : '';
    for (const text of part.value.replace(/\n$/, '').split('\n')) all.push({ change, text, number: change === '-' ? null : ++number });
  }
  const near = all.map((_, i) => all.slice(Math.max(0, i - around), i + around + 1).some((p) => p.change !== ''));
  const pieces: (Piece | number)[] = [];
  all.forEach((p, i) => {
    const last = pieces.at(-1);
    if (near[i]) pieces.push(p);
    else if (typeof last === 'number') pieces[pieces.length - 1] = last + 1;
    else pieces.push(1);
  });
  return { pieces, added: all.filter((p) => p.change === '+').length, removed: all.filter((p) => p.change === '-').length };
}

function Difference({ document, before, after }: { document: Document; before: Version | undefined; after: Version }) {
  const { t } = useTranslation();
  const [old, now] = [useText(document, before), useText(document, after)];
  const found = useMemo(() => (old.data === undefined || now.data === undefined ? null : piecesOf(old.data, now.data)), [old.data, now.data]);
  const error = old.error ?? now.error;
  if (error) return <Failure error={error} retry={() => void Promise.all([old.refetch(), now.refetch()])} />;
  if (found === null) return <Loading rows={8} />;
  if (found.added + found.removed === 0) return <Empty title={t('prices.same')} hint={t('prices.sameHint')} />;
  return (
    <>
      <p className="gm-cell-sub">
        <span className="gm-gain">{t('prices.addedLines', { count: found.added })}</span> · <span className="gm-loss">{t('prices.removedLines', { count: found.removed })}</span>
      </p>
      <Lines>
        {found.pieces.map((p, i) =>
          typeof p === 'number' ? (
            <div key={i} className="gm-line gm-line-gap">
              {t('prices.unchanged', { count: p })}
            </div>
          ) : (
            <Line key={i} {...p} />
          ),
        )}
      </Lines>
    </>
  );
}
