import { createTheme, type CSSVariablesResolver, type MantineColorsTuple } from '@mantine/core';

const fonts = '"Inter", system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", "Noto Sans SC", sans-serif';

const accent: MantineColorsTuple = ['#eef2ff', '#dfe5fd', '#bcc8f8', '#97a9f3', '#7890ee', '#6380ec', '#5878ec', '#4966d2', '#3f5abc', '#324ea6'];
const dark: MantineColorsTuple = ['#e4e6eb', '#b4b9c4', '#9aa1af', '#6b7280', '#363b47', '#2b303b', '#1d212a', '#15181f', '#111319', '#0c0e12'];

export const theme = createTheme({
  primaryColor: 'accent',
  primaryShade: { light: 7, dark: 5 },
  colors: { accent, dark },
  fontFamily: fonts,
  fontFamilyMonospace: 'ui-monospace, SFMono-Regular, Menlo, Consolas, "Noto Sans Mono CJK SC", monospace',
  headings: { fontFamily: fonts, fontWeight: '600' },
  defaultRadius: 'md',
  cursorType: 'pointer',
  focusRing: 'auto',
});

/**
 * Colours of what time and money went to. Told apart by lightness as well as by hue, so
 * that they differ for the colour-blind; unknown has a hatch besides (components/bars).
 */
export const cssVariables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    '--gm-bg': '#f7f8fa', '--gm-surface': '#ffffff', '--gm-line': '#e3e6ec', '--gm-muted': '#596273', '--gm-text': '#1a1f2b', '--gm-hover': '#f1f3f8',
    '--gm-useful': '#2f6fde', '--gm-waste': '#e8822a', '--gm-unknown': '#8a93a3', '--gm-free': '#b9c3d3', '--gm-stopped': '#8459c9', '--gm-minimum': '#c7a008', '--gm-commitment': '#c2417f', '--gm-rework': '#b3261e', '--gm-meter': '#1f9a8a', '--gm-credit': '#2f9e44',
    '--gm-warn': '#8a4b00', '--gm-warn-bg': '#fff4e3', '--gm-bad': '#b3261e', '--gm-good': '#1f7a35',
    '--mantine-color-green-light-color': '#1f6b31', '--mantine-color-orange-light-color': '#8a4b00', '--mantine-color-red-light-color': '#a61e1e',
    '--mantine-color-body': '#f7f8fa', '--mantine-color-dimmed': '#596273', '--mantine-color-text': '#1a1f2b', '--mantine-color-placeholder': '#6b7382',
  },
  dark: {
    '--gm-bg': '#0f1116', '--gm-surface': '#16191f', '--gm-line': '#282d37', '--gm-muted': '#9aa3b2', '--gm-text': '#e7e9ee', '--gm-hover': '#1d212a',
    '--gm-useful': '#5b93f5', '--gm-waste': '#f0974a', '--gm-unknown': '#7d8696', '--gm-free': '#4a5365', '--gm-stopped': '#a583e3', '--gm-minimum': '#d8b63a', '--gm-commitment': '#dd6ba0', '--gm-rework': '#e8665d', '--gm-meter': '#3dbcab', '--gm-credit': '#51b866',
    '--gm-warn': '#f2b66b', '--gm-warn-bg': '#2c2213', '--gm-bad': '#f28b82', '--gm-good': '#6fcf86',
    '--mantine-color-body': '#0f1116', '--mantine-color-dimmed': '#9aa3b2', '--mantine-color-text': '#e7e9ee', '--mantine-color-placeholder': '#8a93a3',
  },
});
