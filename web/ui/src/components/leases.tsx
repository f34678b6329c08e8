// The state of an instance, by name and colour.
import { useTranslation } from 'react-i18next';
import { en } from '../i18n/en';

export type StateName = keyof (typeof en)['states'];
export const stateNames = Object.keys(en.states) as StateName[];

const colors: Record<StateName, string> = {
  provisioning: 'var(--gm-meter)', running: 'var(--gm-useful)', running_no_gpu: 'var(--gm-free)', stopping: 'var(--gm-minimum)', stopped_keep: 'var(--gm-stopped)', stopped_free: 'var(--gm-unknown)', interrupted: 'var(--gm-rework)', released: 'var(--gm-unknown)', expired: 'var(--gm-unknown)', frozen: 'var(--gm-commitment)',
};

export const stateColor = (state: string) => colors[state as StateName] ?? 'var(--gm-unknown)';

/** useStateName names a state; one that this page does not know is shown as it is. */
export function useStateName() {
  const { t } = useTranslation();
  return (state: string) => (state === '' ? t('instances.noLease') : stateNames.includes(state as StateName) ? t(`states.${state as StateName}`) : state);
}

export function StateBadge({ state }: { state: string }) {
  const name = useStateName();
  return (
    <span className="gm-state" style={{ '--gm-state': stateColor(state) } as React.CSSProperties}>
      {name(state)}
    </span>
  );
}
