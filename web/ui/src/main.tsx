import './styles';
import { MantineProvider } from '@mantine/core';
import { QueryCache, QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { Problem } from './api/client';
import { App } from './app';
import './i18n';
import { sessionKey } from './lib/session';
import { cssVariables, theme } from './theme';

const client: QueryClient = new QueryClient({
  queryCache: new QueryCache({
    onError: (error, query) => {
      // A session that ended shows the sign-in form, not an error in every panel.
      if (error instanceof Problem && error.status === 401 && query.queryKey[0] !== sessionKey[0]) void client.invalidateQueries({ queryKey: sessionKey });
    },
  }),
  defaultOptions: {
    queries: {
      staleTime: 20_000,
      // The asker's mistakes do not get better by asking again.
      retry: (failures, error) => failures < 2 && !(error instanceof Problem && error.status >= 400 && error.status < 500),
    },
  },
});

const nonce = document.querySelector<HTMLMetaElement>('meta[property=csp-nonce]')?.nonce ?? '';
// Where the library that locks scrolling behind a drawer looks for it (get-nonce).
(globalThis as { __webpack_nonce__?: string }).__webpack_nonce__ = nonce;

createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <MantineProvider theme={theme} cssVariablesResolver={cssVariables} defaultColorScheme="auto" getStyleNonce={() => nonce}>
      <QueryClientProvider client={client}>
        <App />
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
