// What could not be accepted, whole and with the reason, and offering it again.
import { Badge, Button, CopyButton, Drawer, Group, Modal, Stack, Text } from '@mantine/core';
import { useInfiniteQuery, useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { api, must, type Schemas } from '../api/client';
import { Panel } from '../components/figures';
import { Icon } from '../components/icons';
import { Empty, Failure, Loading } from '../components/states';
import { useFormats } from '../lib/hooks';
import { useSession } from '../lib/session';

type Item = Schemas['QuarantineItem'];
type Redrive = { all: true } | { refs: string[] };

const pageSize = 25;

/** useOperator says whether the asker may offer items again. */
function useOperator(): boolean {
  const { data } = useSession();
  return data !== undefined && (data === null || data.role === 'operator' || data.role === 'admin');
}

export function QuarantinePanel() {
  const { t } = useTranslation();
  const operator = useOperator();
  const [shown, setShown] = useState<Item | null>(null);
  const [asked, setAsked] = useState<Redrive | null>(null);
  const pages = useInfiniteQuery({
    queryKey: ['quarantine'],
    initialPageParam: '',
    queryFn: ({ pageParam, signal }) => must(api.GET('/api/v1/quarantine', { params: { query: { limit: pageSize, ...(pageParam ? { after: pageParam } : {}) } }, signal })),
    getNextPageParam: (last) => last.next || undefined,
  });
  const items = pages.data?.pages.flatMap((p) => p.items ?? []) ?? [];
  const waiting = items.some((i) => !i.redriven_at && !i.due_at);
  return (
    <Panel
      title={t('quality.quarantine')}
      hint={t('quality.quarantineHint')}
      actions={
        operator && waiting ? (
          <Button size="xs" variant="default" onClick={() => setAsked({ all: true })}>
            {t('quality.redriveAll')}
          </Button>
        ) : null
      }
    >
      {pages.data === undefined ? (
        pages.error ? <Failure error={pages.error} retry={() => void pages.refetch()} /> : <Loading />
      ) : items.length === 0 ? (
        <Empty title={t('quality.noQuarantine')} hint={t('quality.noQuarantineHint')} />
      ) : (
        <ul className="gm-list">
          {items.map((i) => (
            <ItemRow key={i.ref} item={i} open={() => setShown(i)} />
          ))}
        </ul>
      )}
      {pages.hasNextPage ? (
        <Button variant="default" size="xs" mt="sm" loading={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>
          {t('instance.more')}
        </Button>
      ) : null}
      <Drawer opened={shown !== null} onClose={() => setShown(null)} position="right" size="xl" title={t('quality.item')} closeButtonProps={{ 'aria-label': t('why.close') }} classNames={{ title: 'gm-drawer-title' }}>
        {shown ? <ItemDetail item={shown} redrive={operator ? () => setAsked({ refs: [shown.ref] }) : null} /> : null}
      </Drawer>
      <Confirm
        asked={asked}
        close={(done) => {
          setAsked(null);
          if (done) setShown(null);
        }}
      />
    </Panel>
  );
}

function useKind() {
  const { t } = useTranslation();
  return (kind: string) => t(`quality.fault.${kind as 'malformed'}`, { defaultValue: kind });
}

function ItemState({ item }: { item: Item }) {
  const { t } = useTranslation();
  const format = useFormats();
  if (item.redriven_at) return <Badge variant="light" color="green" tt="none">{t('quality.redrivenAt', { at: format.instant(item.redriven_at) })}</Badge>;
  if (item.due_at) return <Badge variant="light" color="gray" tt="none">{t('quality.dueAt', { at: format.instant(item.due_at) })}</Badge>;
  return null;
}

function ItemRow({ item, open }: { item: Item; open: () => void }) {
  const format = useFormats();
  const kind = useKind();
  return (
    <li>
      <button type="button" className="gm-row" onClick={open}>
        <span>
          <span className="gm-cell-main">{kind(item.kind)}</span> <ItemState item={item} />
          <small lang="en">{item.reason}</small>
        </span>
        <span className="gm-cell-sub gm-wide">{format.instant(item.stored_at, true)}</span>
        <Icon name="right" size={14} />
      </button>
    </li>
  );
}

function ItemDetail({ item, redrive }: { item: Item; redrive: (() => void) | null }) {
  const { t } = useTranslation();
  const format = useFormats();
  const kind = useKind();
  const facts: [string, string][] = [
    [t('quality.storedAt'), format.exact(item.stored_at)], [t('quality.subject'), item.subject], [t('quality.contentType'), item.content_type || '–'], [t('quality.position'), item.ref],
  ];
  return (
    <Stack>
      <div>
        <Text fw={600}>{kind(item.kind)}</Text>
        <Text size="sm" lang="en">
          {item.reason}
        </Text>
        <ItemState item={item} />
      </div>
      <dl className="gm-pairs">
        {facts.map(([k, v]) => (
          <div key={k}>
            <dt>{k}</dt>
            <dd>{v}</dd>
          </div>
        ))}
      </dl>
      <div>
        <Group justify="space-between" mb={4}>
          <Text fw={600}>{t('quality.raw')}</Text>
          <CopyButton value={item.raw}>
            {({ copied, copy }) => (
              <Button size="compact-xs" variant="default" onClick={copy} leftSection={<Icon name={copied ? 'check' : 'copy'} size={13} />}>
                {copied ? t('why.copied') : t('why.copy')}
              </Button>
            )}
          </CopyButton>
        </Group>
        {/* Not laid out anew: a key that is there twice, for one, would be gone. */}
        <pre className="gm-raw" tabIndex={0}>
          {item.raw}
        </pre>
      </div>
      {redrive && !item.due_at ? (
        <Button variant="default" size="sm" onClick={redrive} style={{ alignSelf: 'flex-start' }}>
          {t('quality.redrive')}
        </Button>
      ) : null}
    </Stack>
  );
}

function Confirm({ asked, close }: { asked: Redrive | null; close: (done: boolean) => void }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const drive = useMutation({
    mutationFn: (body: Redrive) => must(api.POST('/api/v1/quarantine/redrive', { body })),
    onSuccess: () => Promise.all([client.invalidateQueries({ queryKey: ['quarantine'] }), client.invalidateQueries({ queryKey: ['quality'] })]),
  });
  const leave = () => {
    const done = drive.isSuccess;
    drive.reset();
    close(done);
  };
  return (
    <Modal opened={asked !== null} onClose={leave} title={t('quality.confirmTitle')} centered closeButtonProps={{ 'aria-label': t('why.close') }}>
      <Stack>
        {drive.isSuccess ? <Text role="status">{t('quality.redriven', { count: drive.data.redriven })}</Text> : <Text size="sm">{t(asked && 'all' in asked ? 'quality.confirmAll' : 'quality.confirmOne')}</Text>}
        {drive.error ? <Failure error={drive.error} /> : null}
        <Group justify="flex-end">
          <Button variant="default" onClick={leave}>
            {t(drive.isSuccess ? 'why.close' : 'view.cancel')}
          </Button>
          {drive.isSuccess || asked === null ? null : (
            <Button loading={drive.isPending} onClick={() => drive.mutate(asked)}>
              {t('quality.redrive')}
            </Button>
          )}
        </Group>
      </Stack>
    </Modal>
  );
}
