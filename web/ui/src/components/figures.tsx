// Single figures. What is not known is never shown as a number.
import { Text, Tooltip } from '@mantine/core';
import type { ReactNode } from 'react';
import { useTranslation } from 'react-i18next';
import { useFormats } from '../lib/hooks';
import { Icon } from './icons';

/** Unknown stands where a number would be, and says that it is none. */
export function Unknown({ hint }: { hint: string }) {
  const { t } = useTranslation();
  return (
    <Tooltip label={hint} multiline maw={280} events={{ hover: true, focus: true, touch: true }}>
      <span className="gm-unknown" tabIndex={0} aria-label={`${t('unknown.text')}: ${hint}`}>
        {t('unknown.text')}
      </span>
    </Tooltip>
  );
}

export function Money({ value, currency, hint }: { value: string | null | undefined; currency: string | null | undefined; hint?: string }) {
  const { t } = useTranslation();
  const format = useFormats();
  if (value == null) return <Unknown hint={hint ?? t('unknown.amount')} />;
  return (
    <span className="gm-number" title={`${value}${currency ? ` ${currency}` : ''}`}>
      {format.money(value, currency ?? null)}
    </span>
  );
}

export function Percent({ value, hint }: { value: string | null | undefined; hint?: string }) {
  const { t } = useTranslation();
  const format = useFormats();
  if (value == null) return <Unknown hint={hint ?? t('unknown.utilization')} />;
  return (
    <span className="gm-number" title={value}>
      {format.percent(value)}
    </span>
  );
}

/** Unpriced stands beside a total that leaves time out. */
export function Unpriced({ ms }: { ms: number }) {
  const { t } = useTranslation();
  const format = useFormats();
  if (ms === 0) return null;
  return (
    <Tooltip label={t('unknown.unpricedHint')} multiline maw={280} events={{ hover: true, focus: true, touch: true }}>
      <span className="gm-unpriced" tabIndex={0}>
        <Icon name="alert" size={13} /> {t('unknown.unpriced', { time: format.hours(ms) })}
      </span>
    </Tooltip>
  );
}

/** Panel is a part of a page with a heading of its own. */
export function Panel({ title, hint, actions, children, className }: { title: string; hint?: ReactNode; actions?: ReactNode; children: ReactNode; className?: string }) {
  return (
    <section className={`gm-panel ${className ?? ''}`} aria-label={title}>
      <div className="gm-panel-head">
        <div>
          <h2>{title}</h2>
          {hint ? (
            <Text size="xs" c="dimmed" component="div">
              {hint}
            </Text>
          ) : null}
        </div>
        {actions}
      </div>
      {children}
    </section>
  );
}

/** Tile is one large figure with what belongs to it. */
export function Tile({ label, value, why, children, accent }: { label: string; value: ReactNode; why?: ReactNode; children?: ReactNode; accent?: boolean }) {
  return (
    <div className={accent ? 'gm-tile gm-tile-accent' : 'gm-tile'}>
      <div className="gm-tile-label">
        <span>{label}</span>
        {why}
      </div>
      <div className="gm-tile-value">{value}</div>
      {children ? <div className="gm-tile-more">{children}</div> : null}
    </div>
  );
}
