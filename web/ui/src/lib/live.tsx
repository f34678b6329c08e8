// What the server tells by itself: a stream of events that refreshes the page, and
// asking every minute where there is no stream.
import { useQueryClient } from '@tanstack/react-query';
import { createContext, useContext, useEffect, useMemo, useState, type ReactNode } from 'react';
import type { Overview } from '../api/board';
import { useView } from './hooks';
import { scopeQuery } from './view';

export type LiveState = 'connecting' | 'live' | 'reconnecting' | 'polling' | 'fixed';

interface Live {
  state: LiveState;
  at: number | null; // when the server was last heard of, Unix milliseconds
}

const LiveContext = createContext<Live>({ state: 'connecting', at: null });
export const useLive = () => useContext(LiveContext);

/** Queries whose key begins with this are asked anew when something changed. */
export const liveKey = 'live';

/** The stream is of the month to date, and so is the query that it fills. */
export const overviewKey = (scope: object) => [liveKey, 'overview', scope] as const;


const pollMs = 60_000;

/** What the stream does not hold is asked for when it says that something changed, and no more often than this. */
const refetchMs = 15_000;

export function LiveProvider({ children }: { children: ReactNode }) {
  const client = useQueryClient();
  const [view] = useView();
  const [live, setLive] = useState<Live>({ state: 'connecting', at: null });
  const scope = useMemo(() => scopeQuery(view), [view]);
  const fixed = view.asOf !== '';
  // The same question is the same stream, whatever else is in the query string.
  const question = JSON.stringify(scope);

  useEffect(() => {
    if (fixed) {
      setLive({ state: 'fixed', at: null });
      return;
    }
    let source: EventSource | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const asked = JSON.parse(question) as Record<string, string | string[]>;
    const query = new URLSearchParams(Object.entries(asked).flatMap(([k, v]) => [v].flat().map((x): [string, string] => [k, x])));
    let refetched = Date.now();
    const heard = () => setLive({ state: 'live', at: Date.now() });
    const refetch = () => void client.invalidateQueries({ queryKey: [liveKey] });
    const open = () => {
      source = new EventSource(`/api/v1/live?${query}`);
      source.onopen = heard;
      source.addEventListener('overview', (e) => {
        heard();
        const key = overviewKey(asked);
        client.setQueryData(key, JSON.parse((e as MessageEvent<string>).data) as Overview);
        if (Date.now() - refetched < refetchMs) return;
        refetched = Date.now();
        const told = JSON.stringify(key);
        void client.invalidateQueries({ queryKey: [liveKey], predicate: (q) => JSON.stringify(q.queryKey) !== told });
      });
      // The server ends the stream after it, and the browser asks again.
      source.addEventListener('problem', () => setLive((l) => ({ ...l, state: 'reconnecting' })));
      source.onerror = () => {
        if (source?.readyState !== EventSource.CLOSED) {
          setLive((l) => ({ ...l, state: 'reconnecting' }));
          return;
        }
        // The server refused: there is no stream here, or not for us.
        setLive((l) => ({ ...l, state: 'polling' }));
        timer = setTimeout(() => {
          refetch();
          open();
        }, pollMs);
      };
    };
    setLive({ state: 'connecting', at: null });
    open();
    return () => {
      source?.close();
      clearTimeout(timer);
    };
  }, [client, fixed, question]);

  return <LiveContext.Provider value={live}>{children}</LiveContext.Provider>;
}
