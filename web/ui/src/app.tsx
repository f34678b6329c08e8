import { Anchor } from '@mantine/core';
import { Suspense, Component, type ReactNode } from 'react';
import { useTranslation } from 'react-i18next';
import { Link, Route, Switch, useLocation } from 'wouter';
import { Shell } from './components/shell';
import { SignIn } from './components/signin';
import { Empty, Failure, Loading } from './components/states';
import { WhyProvider } from './components/why';
import { LiveProvider } from './lib/live';
import { useSession } from './lib/session';
import { pages } from './pages';

export function App() {
  const session = useSession();
  if (session.data === undefined) return <div className="gm-start">{session.error ? <Failure error={session.error} retry={() => void session.refetch()} /> : <Loading rows={3} />}</div>;
  if (session.data !== null && session.data.sign_in !== 'none' && session.data.role === null) return <SignIn session={session.data} />;
  return (
    <LiveProvider>
      <WhyProvider>
        <Shell session={session.data}>
          <Pages />
        </Shell>
      </WhyProvider>
    </LiveProvider>
  );
}

function Pages() {
  const [path] = useLocation();
  return (
    <Fault key={path}>
      <Suspense fallback={<Loading rows={8} />}>
        <Switch>
          {pages.map((p) => (
            <Route key={p.path} path={p.path} component={p.component} />
          ))}
          <Route component={NoPage} />
        </Switch>
      </Suspense>
    </Fault>
  );
}

function NoPage() {
  const { t } = useTranslation();
  return (
    <Empty title={t('app.noPage')} hint={t('app.noPageHint')}>
      <Anchor component={Link} href="/">
        {t('app.home')}
      </Anchor>
    </Empty>
  );
}

/** Fault keeps a page that broke from taking the navigation with it. */
class Fault extends Component<{ children: ReactNode }, { error: Error | null }> {
  state = { error: null as Error | null };

  static getDerivedStateFromError(error: unknown) {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  render() {
    return this.state.error ? <Failure error={this.state.error} retry={() => window.location.reload()} /> : this.props.children;
  }
}
