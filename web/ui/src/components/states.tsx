// What a part of a page looks like before, without and instead of its data.
import { Alert, Button, Group, Skeleton, Stack, Text, VisuallyHidden } from '@mantine/core';
import type { UseQueryResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useTranslation } from 'react-i18next';
import { Problem } from '../api/client';
import { useFormats, useNow } from '../lib/hooks';
import { Icon, type IconName } from './icons';

export function Loading({ rows = 4, height = 18 }: { rows?: number; height?: number }) {
  const { t } = useTranslation();
  return (
    <Stack gap="sm" role="status">
      <VisuallyHidden>{t('state.loading')}</VisuallyHidden>
      {Array.from({ length: rows }, (_, i) => (
        <Skeleton key={i} height={height} width={`${100 - ((i * 13) % 35)}%`} radius="sm" />
      ))}
    </Stack>
  );
}

export function Failure({ error, retry }: { error: Error; retry?: (() => void) | undefined }) {
  const { t } = useTranslation();
  const problem = error instanceof Problem ? error : new Problem(-1, error.message);
  // What somebody may not see is no fault, and asking again does not help.
  if (problem.status === 403) {
    return (
      <div className="gm-panel" role="status">
        <Empty title={t('state.forbidden')} hint={problem.message} icon="user" />
      </div>
    );
  }
  const title = problem.status === 404 ? t('state.notFound') : problem.status === 504 ? t('state.tooLong') : t('state.failed');
  return (
    <Alert className="gm-failure" color="red" variant="light" role="alert" icon={<Icon name="alert" />} title={title}>
      <Stack gap="xs" align="flex-start">
        <Text size="sm">{problem.status === 0 ? t('state.unreachable') : problem.message}</Text>
        {problem.details.map((d, i) => (
          <Text size="sm" key={i}>
            {d.location ? <code>{d.location}</code> : null} {d.message}
          </Text>
        ))}
        <Group gap="sm">
          {retry ? (
            <Button size="xs" variant="default" onClick={retry}>
              {t('state.retry')}
            </Button>
          ) : null}
          {problem.status > 0 ? (
            <Text size="xs" c="dimmed">
              {t('state.status', { status: problem.status })}
            </Text>
          ) : null}
        </Group>
      </Stack>
    </Alert>
  );
}

export function Empty({ title, hint, icon = 'empty', children }: { title: string; hint?: string; icon?: IconName; children?: ReactNode }) {
  return (
    <Stack align="center" gap={6} py="xl" px="md" className="gm-empty">
      <Icon name={icon} size={30} />
      <Text fw={600}>{title}</Text>
      {hint ? (
        <Text size="sm" c="dimmed" ta="center" maw={460}>
          {hint}
        </Text>
      ) : null}
      {children}
    </Stack>
  );
}

/** Loaded shows a query: its skeleton, its error, or its data; old data says so. */
export function Loaded<T>({ query, skeleton, children }: { query: UseQueryResult<T, Error>; skeleton?: ReactNode; children: (data: T) => ReactNode }) {
  const { t } = useTranslation();
  const format = useFormats();
  const now = useNow(15_000);
  if (query.data === undefined) {
    if (query.error) return <Failure error={query.error} retry={() => void query.refetch()} />;
    return skeleton ?? <Loading />;
  }
  return (
    <>
      {query.error ? (
        <Alert color="yellow" variant="light" role="status" icon={<Icon name="clock" />} mb="md" p="xs">
          <Group justify="space-between">
            <Text size="sm">
              {t('state.failedRefresh', { age: format.duration(Math.max(1000, now - query.dataUpdatedAt)) })} {query.error.message}
            </Text>
            <Button size="compact-xs" variant="default" onClick={() => void query.refetch()}>
              {t('state.retry')}
            </Button>
          </Group>
        </Alert>
      ) : null}
      {children(query.data)}
    </>
  );
}
