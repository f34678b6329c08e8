import { ActionIcon, AppShell, Burger, Button, Group, Menu, Text, Tooltip, useMantineColorScheme, type MantineColorScheme } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { useQueryClient } from '@tanstack/react-query';
import { useEffect, type ReactNode } from 'react';
import { useTranslation } from 'react-i18next';
import { Link, useLocation, useSearch } from 'wouter';
import type { Session } from '../api/board';
import { api, must } from '../api/client';
import { languages, setLanguage, type Language } from '../i18n';
import { useFormats, useNow, useView } from '../lib/hooks';
import { useLive } from '../lib/live';
import { sessionKey } from '../lib/session';
import { writeView } from '../lib/view';
import { pages } from '../pages';
import { Icon, type IconName } from './icons';

export function Shell({ session, children }: { session: Session | null; children: ReactNode }) {
  const { t } = useTranslation();
  const [open, { toggle, close }] = useDisclosure(false);
  const [path] = useLocation();
  // Another page begins at its top, and its navigation is not in the way.
  useEffect(() => {
    close();
    window.scrollTo(0, 0);
  }, [path, close]);
  return (
    <AppShell header={{ height: 54 }} navbar={{ width: 212, breakpoint: 'sm', collapsed: { mobile: !open } }} padding={{ base: 'sm', sm: 'lg' }}>
      <a href="#content" className="gm-skip">
        {t('app.skip')}
      </a>
      <AppShell.Header className="gm-header">
        <Group gap="xs" wrap="nowrap">
          <Burger opened={open} onClick={toggle} hiddenFrom="sm" size="sm" aria-label={t('app.menu')} aria-expanded={open} />
          <img src="/icon.svg" alt="" width={26} height={26} />
          <Text fw={700} size="md" className="gm-brand">
            {t('app.name')}
          </Text>
        </Group>
        <Group gap={4} wrap="nowrap">
          <LiveBadge />
          <LanguageMenu />
          <ThemeMenu />
          {session && session.role !== null && session.sign_in !== 'none' ? <UserMenu session={session} /> : null}
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs" className="gm-navbar" aria-label={t('app.navigation')}>
        <Navigation />
        {session ? (
          <Text size="xs" c="dimmed" mt="auto" px="sm" py="xs">
            {session.tenant} · {t('app.version', { version: session.version })}
          </Text>
        ) : null}
      </AppShell.Navbar>
      <AppShell.Main id="content" tabIndex={-1}>
        {children}
      </AppShell.Main>
    </AppShell>
  );
}

function Navigation() {
  const { t } = useTranslation();
  const [path] = useLocation();
  const [view] = useView();
  const search = useSearch();
  const question = writeView(view, search, true); // the question goes along, the page's own parameters do not
  return (
    <ul className="gm-nav">
      {pages.filter((p) => p.nav).map((p) => {
        const here = p.path === '/' ? path === '/' : path === p.path || path.startsWith(`${p.path}/`);
        return (
          <li key={p.path}>
            <Link href={p.path + question} aria-current={here ? 'page' : undefined} className={here ? 'gm-nav-here' : ''}>
              <Icon name={p.nav as IconName} />
              {t(`nav.${p.nav!}`)}
            </Link>
          </li>
        );
      })}
    </ul>
  );
}

const staleMs = 3 * 60_000;

/** LiveBadge says whether the figures are kept fresh, and how old they are. */
function LiveBadge() {
  const { t } = useTranslation();
  const { state, at } = useLive();
  const format = useFormats();
  const now = useNow(5000);
  const client = useQueryClient();
  const heard = at ?? (state === 'polling' ? Math.max(0, ...client.getQueryCache().getAll().map((q) => q.state.dataUpdatedAt)) : 0);
  const age = heard > 0 ? Math.max(0, now - heard) : null;
  const stale = state !== 'fixed' && age !== null && age > staleMs;
  const text = stale ? t('live.stale') : t(`live.${state}`);
  const ageText = age === null ? '' : age < 5000 ? t('live.now') : t('live.age', { age: format.duration(age) });
  return (
    <Tooltip label={ageText || t('live.hint')} events={{ hover: true, focus: true, touch: true }}>
      <span className={`gm-live gm-live-${stale ? 'stale' : state}`} tabIndex={0} role="status" aria-label={[text, ageText].filter(Boolean).join(', ')}>
        <span className="gm-live-dot" aria-hidden="true" />
        <span className="gm-live-text">{stale || state === 'reconnecting' ? `${text} · ${age === null ? '' : format.duration(age)}` : text}</span>
      </span>
    </Tooltip>
  );
}

function LanguageMenu() {
  const { t, i18n } = useTranslation();
  return (
    <Menu position="bottom-end" shadow="md">
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" size="lg" aria-label={t('app.language')} title={t('app.language')}>
          <Icon name="globe" />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        {(Object.keys(languages) as Language[]).map((l) => (
          <Menu.Item key={l} lang={l} onClick={() => setLanguage(l)} aria-current={i18n.language === l} rightSection={i18n.language === l ? <Icon name="check" size={14} /> : null}>
            {languages[l]}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}

const schemes: Record<MantineColorScheme, IconName> = { auto: 'auto', light: 'sun', dark: 'moon' };

function ThemeMenu() {
  const { t } = useTranslation();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  return (
    <Menu position="bottom-end" shadow="md">
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" size="lg" aria-label={t('app.theme')} title={t('app.theme')}>
          <Icon name={schemes[colorScheme]} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        {(Object.keys(schemes) as MantineColorScheme[]).map((s) => (
          <Menu.Item key={s} leftSection={<Icon name={schemes[s]} size={16} />} onClick={() => setColorScheme(s)} aria-current={colorScheme === s} rightSection={colorScheme === s ? <Icon name="check" size={14} /> : null}>
            {t(`app.${s}`)}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}

function UserMenu({ session }: { session: Session }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const signOut = async () => {
    await must(api.DELETE('/api/v1/session', {}));
    await client.resetQueries({ queryKey: sessionKey }); // the form to sign in takes the place of the page
    client.removeQueries({ predicate: (q) => q.queryKey[0] !== sessionKey[0] }); // nothing of one person stays for the next
  };
  return (
    <Menu position="bottom-end" shadow="md">
      <Menu.Target>
        <Button variant="subtle" color="gray" size="compact-md" px={6} leftSection={<Icon name="user" />} aria-label={t('session.as', { name: session.name ?? '' })}>
          <span className="gm-user">{session.name}</span>
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>{t('session.role', { role: session.role ?? '' })}</Menu.Label>
        <Menu.Label>{t('session.projects', { projects: session.projects?.join(', ') ?? t('session.allProjects') })}</Menu.Label>
        <Menu.Item onClick={() => void signOut()}>{t('session.signOut')}</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
