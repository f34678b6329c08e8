import { Anchor, Button, Divider, Paper, PasswordInput, Stack, Text, Title } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import type { Session } from '../api/board';
import { api, must } from '../api/client';
import { sessionKey } from '../lib/session';
import { Failure } from './states';

export function SignIn({ session }: { session: Session }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [token, setToken] = useState('');
  const signIn = useMutation({
    mutationFn: () => must(api.POST('/api/v1/session', { body: { token: token.trim() } })),
    onSuccess: () => client.resetQueries({ queryKey: sessionKey }),
  });
  return (
    <main className="gm-signin" id="content" aria-label={t('session.title')}>
      <Paper p="xl" radius="lg" withBorder w="100%" maw={400}>
        <Stack>
          <Stack gap={6} align="center">
            <img src="/icon.svg" alt="" width={40} height={40} />
            <Title order={1} size="h3">
              {t('app.name')}
            </Title>
          </Stack>
          {session.oidc ? (
            <>
              <Button component="a" href="/auth/login" fullWidth>
                {t('session.oidc')}
              </Button>
              <Divider label={t('session.or')} />
            </>
          ) : null}
          <form
            onSubmit={(e) => {
              e.preventDefault();
              signIn.mutate();
            }}
          >
            <Stack>
              <PasswordInput label={t('session.token')} description={t('session.tokenHint')} value={token} onChange={(e) => setToken(e.currentTarget.value)} autoComplete="current-password" required data-autofocus />
              <Button type="submit" loading={signIn.isPending} variant={session.oidc ? 'default' : 'filled'}>
                {t('session.submit')}
              </Button>
              {signIn.error ? <Failure error={signIn.error} /> : null}
            </Stack>
          </form>
          <Text size="xs" c="dimmed" ta="center">
            {t('app.version', { version: session.version })} · <Anchor href="/openapi.json">OpenAPI</Anchor>
          </Text>
        </Stack>
      </Paper>
    </main>
  );
}
