// "Why?": every figure opens a drawer with where it comes from.
import { Drawer, Loader } from '@mantine/core';
import { createContext, lazy, Suspense, useCallback, useContext, useMemo, useState, type ReactNode } from 'react';
import { useTranslation } from 'react-i18next';
import { useView } from '../lib/hooks';
import type { View } from '../lib/view';
import { Icon } from './icons';

const Explanation = lazy(() => import('./explanation'));

/** Which figure: the span as the answer said it, and filters beside those of the view. */
export interface Question {
  what: string;
  from: string;
  to: string;
  filters?: View['filters'];
}

/** A question as it was asked: moving on in the page does not change it. */
export type Asked = { span: Question; view: View } | { line: string };

const WhyContext = createContext<(asked: Asked) => void>(() => {});
export const useWhy = () => useContext(WhyContext);

export function WhyProvider({ children }: { children: ReactNode }) {
  const { t } = useTranslation();
  const [asked, setAsked] = useState<Asked | null>(null);
  const [open, setOpen] = useState(false);
  const ask = useCallback((a: Asked) => {
    setAsked(a);
    setOpen(true);
  }, []);
  return (
    <WhyContext.Provider value={ask}>
      {children}
      <Drawer opened={open} onClose={() => setOpen(false)} position="right" size="xl" title={t('why.title')} closeButtonProps={{ 'aria-label': t('why.close') }} classNames={{ title: 'gm-drawer-title' }}>
        <Suspense fallback={<Loader size="sm" />}>{asked ? <Explanation key={JSON.stringify(asked)} asked={asked} /> : null}</Suspense>
      </Drawer>
    </WhyContext.Provider>
  );
}

export function Why({ what, from, to, filters }: Question) {
  const { t } = useTranslation();
  const ask = useWhy();
  const [view] = useView();
  const asked = useMemo(() => ({ span: { what, from, to }, view: { ...view, filters: { ...view.filters, ...filters } } }), [what, from, to, view, filters]);
  return (
    <button type="button" className="gm-why" aria-label={t('why.button', { what })} title={t('why.button', { what })} onClick={() => ask(asked)}>
      <Icon name="why" size={16} />
    </button>
  );
}
