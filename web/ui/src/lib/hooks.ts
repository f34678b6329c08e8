import { useQueryClient } from '@tanstack/react-query';
import { useCallback, useEffect, useMemo, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { useLocation, useSearch } from 'wouter';
import { Formats } from './format';
import { parseView, writeView, type View } from './view';

/** useView returns the question in the query string, and how to change it. */
export function useView(): [View, (change: Partial<View>) => void] {
  const search = useSearch();
  const [path, navigate] = useLocation();
  const view = useMemo(() => parseView(search), [search]);
  const change = useCallback(
    (part: Partial<View>) => {
      const q = new URLSearchParams(search);
      q.delete('after'); // another question has other pages
      navigate(path + writeView({ ...view, ...part }, q.toString()));
    },
    [navigate, path, search, view],
  );
  return [view, change];
}

/** useParams are the names in the query string that belong to a page. */
export function useParams(): [URLSearchParams, (change: Record<string, string | null>, replace?: boolean) => void] {
  const search = useSearch();
  const [path, navigate] = useLocation();
  const params = useMemo(() => new URLSearchParams(search), [search]);
  const change = useCallback(
    (values: Record<string, string | null>, replace = false) => {
      const q = new URLSearchParams(search);
      for (const [name, value] of Object.entries(values)) {
        if (value === null || value === '') q.delete(name);
        else q.set(name, value);
      }
      const text = q.toString();
      navigate(path + (text ? `?${text}` : ''), { replace });
    },
    [navigate, path, search],
  );
  return [params, change];
}

/** useFormats formats for the language of the page and the zone of the view. */
export function useFormats(): Formats {
  const { i18n } = useTranslation();
  const [view] = useView();
  const locale = i18n.language;
  return useMemo(() => new Formats(locale, view.zone), [locale, view.zone]);
}

/** useNow is a clock that ticks. */
export function useNow(everyMs: number): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

/** useRefresh asks for everything on the page anew. */
export function useRefresh(): () => void {
  const client = useQueryClient();
  return useCallback(() => void client.invalidateQueries(), [client]);
}
