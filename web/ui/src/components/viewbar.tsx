// The bar above every page: which time, as known when, and which usage.
import { Badge, Button, CloseButton, Group, Popover, SegmentedControl, Select, Stack, Text, TextInput } from '@mantine/core';
import { useMediaQuery } from '@mantine/hooks';
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { useFormats, useView } from '../lib/hooks';
import { browserZone, dimensions, presets, spanOf, type Dimension, type Preset, type View } from '../lib/view';
import { Icon } from './icons';

/** ViewBar is hidden in parts where a page has no use for them. */
export function ViewBar({ range = true, filters = true }: { range?: boolean; filters?: boolean }) {
  const { t } = useTranslation();
  const format = useFormats();
  const [view, change] = useView();
  return (
    <div className="gm-viewbar" role="region" aria-label={t('view.label')}>
      <Group gap="xs">
        {range ? <RangePicker view={view} change={change} /> : null}
        <ZonePicker view={view} change={change} />
        {filters ? <FilterAdder view={view} change={change} /> : null}
        {filters ? <FilterPills view={view} change={change} /> : null}
      </Group>
      {view.asOf ? (
        <div className="gm-asof" role="status">
          <Icon name="clock" size={16} />
          <span>{t('view.asOfBanner', { at: format.exact(view.asOf) })}</span>
          <Button size="compact-xs" variant="default" onClick={() => change({ asOf: '' })}>
            {t('view.asOfClear')}
          </Button>
        </div>
      ) : null}
    </div>
  );
}

interface Part {
  view: View;
  change: (part: Partial<View>) => void;
}

function RangePicker({ view, change }: Part) {
  const { t } = useTranslation();
  const format = useFormats();
  const wide = useMediaQuery('(min-width: 75em)', true, { getInitialValueInEffect: false });
  const [open, setOpen] = useState(false);
  const label = (p: Preset | 'custom') => (p === 'custom' && (view.from || view.to) ? `${day(view.from)} – ${view.to ? day(view.to) : t('view.asOfNow')}` : t(`view.${p}`));
  const day = (s: string) => (/^\d{4}-\d\d-\d\d$/.test(s) ? s : format.instant(s));
  const pick = (value: string) => (value === 'custom' ? setOpen(true) : change({ range: value as Preset, from: '', to: '' }));
  return (
    <Popover opened={open} onChange={setOpen} trapFocus position="bottom-start" shadow="md" withinPortal>
      <Popover.Target>
        {wide ? (
          <SegmentedControl size="xs" aria-label={t('view.range')} value={view.range} onChange={pick} data={[...presets.map((p) => ({ value: p, label: t(`view.${p}`) })), { value: 'custom', label: <span onClick={() => view.range === 'custom' && setOpen(true)}>{label('custom')}</span> }]} />
        ) : (
          <Select size="xs" aria-label={t('view.range')} value={view.range} onChange={(v) => v && pick(v)} allowDeselect={false} w={170} leftSection={<Icon name="calendar" size={15} />} data={[...presets, 'custom' as const].map((p) => ({ value: p, label: view.range === 'custom' || p !== 'custom' ? label(p) : t('view.custom') }))} />
        )}
      </Popover.Target>
      <Popover.Dropdown>
        <CustomRange
          view={view}
          apply={(from, to) => {
            change({ range: 'custom', from, to });
            setOpen(false);
          }}
        />
      </Popover.Dropdown>
    </Popover>
  );
}

function CustomRange({ view, apply }: { view: View; apply: (from: string, to: string) => void }) {
  const { t } = useTranslation();
  const span = spanOf(view, new Date());
  const [from, setFrom] = useState(span.from ?? '');
  const [to, setTo] = useState(span.to ?? '');
  return (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        apply(from.trim(), to.trim());
      }}
    >
      <Stack gap="sm" w={260}>
        <TextInput label={t('view.from')} description={t('view.fromHint')} value={from} onChange={(e) => setFrom(e.currentTarget.value)} required size="sm" data-autofocus />
        <TextInput label={t('view.to')} description={t('view.toHint')} value={to} onChange={(e) => setTo(e.currentTarget.value)} size="sm" />
        <Button type="submit" size="sm">
          {t('view.apply')}
        </Button>
      </Stack>
    </form>
  );
}

function zones(current: string): string[] {
  const known = typeof Intl.supportedValuesOf === 'function' ? Intl.supportedValuesOf('timeZone') : [];
  return [...new Set([current, browserZone(), 'UTC', ...known])];
}

function ZonePicker({ view, change }: Part) {
  const { t } = useTranslation();
  const [open, setOpen] = useState(false);
  const [zone, setZone] = useState(view.zone);
  const [asOf, setAsOf] = useState(view.asOf);
  const toggle = (value: boolean) => {
    setZone(view.zone);
    setAsOf(view.asOf);
    setOpen(value);
  };
  return (
    <Popover opened={open} onChange={toggle} trapFocus position="bottom-start" shadow="md">
      <Popover.Target>
        <Button size="xs" variant="default" leftSection={<Icon name="clock" size={15} />} onClick={() => toggle(!open)} title={t('view.more')}>
          {view.zone}
        </Button>
      </Popover.Target>
      <Popover.Dropdown>
        <form
          onSubmit={(e) => {
            e.preventDefault();
            change({ zone: zone.trim() || browserZone(), asOf: asOf.trim() });
            setOpen(false);
          }}
        >
          <Stack gap="sm" w={280}>
            <Select label={t('view.zone')} description={t('view.zoneHint')} searchable value={zone} onChange={(v) => setZone(v ?? zone)} data={zones(view.zone)} limit={60} size="sm" comboboxProps={{ withinPortal: false }} />
            <TextInput label={t('view.asOf')} description={t('view.asOfHint')} placeholder={t('view.asOfNow')} value={asOf} onChange={(e) => setAsOf(e.currentTarget.value)} size="sm" />
            <Button type="submit" size="sm">
              {t('view.apply')}
            </Button>
          </Stack>
        </form>
      </Popover.Dropdown>
    </Popover>
  );
}

function FilterAdder({ view, change }: Part) {
  const { t } = useTranslation();
  const [open, setOpen] = useState(false);
  const [key, setKey] = useState<Dimension | 'label'>('project');
  const [value, setValue] = useState('');
  const add = () => {
    if (key === 'label') change({ labels: [...view.labels, value] });
    else change({ filters: { ...view.filters, [key]: value } });
    setValue('');
    setOpen(false);
  };
  return (
    <Popover opened={open} onChange={setOpen} trapFocus position="bottom-start" shadow="md">
      <Popover.Target>
        <Button size="xs" variant="default" leftSection={<Icon name="filter" size={15} />} onClick={() => setOpen(!open)}>
          {t('view.addFilter')}
        </Button>
      </Popover.Target>
      <Popover.Dropdown>
        <form
          onSubmit={(e) => {
            e.preventDefault();
            add();
          }}
        >
          <Stack gap="sm" w={260}>
            <Select label={t('view.filterKey')} value={key} onChange={(v) => v && setKey(v as Dimension)} allowDeselect={false} data={[...dimensions, 'label' as const].map((d) => ({ value: d, label: t(`key.${d}`) }))} size="sm" comboboxProps={{ withinPortal: false }} />
            <TextInput label={t('view.filterValue')} description={key === 'label' ? t('view.labelHint') : t('view.filterEmpty')} value={value} onChange={(e) => setValue(e.currentTarget.value)} size="sm" data-autofocus />
            <Button type="submit" size="sm" disabled={key === 'label' && !value.includes('=')}>
              {t('view.apply')}
            </Button>
          </Stack>
        </form>
      </Popover.Dropdown>
    </Popover>
  );
}

function FilterPills({ view, change }: Part) {
  const { t } = useTranslation();
  const pills = [
    ...dimensions.flatMap((d) => {
      const value = view.filters[d];
      if (value === undefined) return [];
      const { [d]: _, ...filters } = view.filters;
      return [{ key: d as string, text: value === '' ? t('view.without', { key: t(`key.${d}`) }) : `${t(`key.${d}`)}: ${value}`, drop: () => change({ filters }) }];
    }),
    ...view.labels.map((l, i) => ({ key: `label${i}`, text: l, drop: () => change({ labels: view.labels.filter((_, n) => n !== i) }) })),
  ];
  return (
    <>
      {pills.map((p) => (
        <Badge key={p.key} variant="light" tt="none" size="lg" fw={500} pr={4} rightSection={<CloseButton size="xs" aria-label={t('view.remove', { filter: p.text })} onClick={p.drop} />}>
          {p.text}
        </Badge>
      ))}
      {pills.length > 1 ? (
        <Button size="compact-xs" variant="subtle" color="gray" onClick={() => change({ filters: {}, labels: [] })}>
          <Text size="xs">{t('view.clear')}</Text>
        </Button>
      ) : null}
    </>
  );
}
