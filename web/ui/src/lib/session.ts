import { useQuery } from '@tanstack/react-query';
import type { Session } from '../api/board';
import { api, must, Problem } from '../api/client';

export const sessionKey = ['session'] as const;

/** useSession says who is asking; null where the server knows no sessions. */
export function useSession() {
  return useQuery<Session | null, Error>({
    queryKey: sessionKey,
    staleTime: 60_000,
    queryFn: async ({ signal }) => {
      try {
        return await must(api.GET('/api/v1/session', { signal }));
      } catch (e) {
        if (e instanceof Problem && e.status === 404) return null;
        throw e;
      }
    },
  });
}
