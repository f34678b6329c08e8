// The few symbols of the page, drawn on a grid of 20 with lines of 1.6.
const shapes = {
  overview: 'M3 11.5 10 4l7 7.5M5 10v6h10v-6',
  instances: 'M4 4h12v5H4zM4 11h12v5H4zM7 6.5h.01M7 13.5h.01',
  projects: 'M3 6.5V15a1 1 0 0 0 1 1h12a1 1 0 0 0 1-1V7.5a1 1 0 0 0-1-1h-5.5L8.5 4.5H4a1 1 0 0 0-1 1z',
  plans: 'M4 5h12v11H4zM4 8.5h12M7 3v3.5M13 3v3.5',
  quality: 'M10 3l6 2.2v4.3c0 3.6-2.5 6.2-6 7.5-3.5-1.3-6-3.9-6-7.5V5.200zM7.5 10l1.8 1.800L12.8 8.2',
  prices: 'M10.5 3H16.500V9L9.5 16.2 3.5 10.200zM13.5 6.200h.01',
  statements: 'M5 3h7l3.5 3.500V17H5zM8 9h5M8 12h5M8 6h2',
  why: 'M7.6 7.700a2.5 2.5 0 1 1 3.7 2.200c-.900.5-1.3 1-1.3 1.900M10 14.400h.01',
  filter: 'M3.5 5h13M6 10h8M8.5 15h3',
  globe: 'M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM3.2 10h13.600M10 3c2 2 2.9 4.3 2.9 7S12 15 10 17c-2-2-2.9-4.3-2.9-7S8 5 10 3z',
  sun: 'M10 7a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM10 2.500v1.800M10 15.700v1.800M2.5 10h1.800M15.7 10h1.800M4.7 4.700l1.3 1.300M14 14l1.3 1.300M15.3 4.7 14 6M6 14l-1.3 1.3',
  moon: 'M16 11.800A6.5 6.5 0 0 1 8.2 4a6.5 6.5 0 1 0 7.8 7.800z',
  auto: 'M3.5 4.500h13v8.500h-13zM7.5 16.500h5M10 13v3.5',
  user: 'M10 10a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM4 16.500c.600-2.8 3-4.5 6-4.500s5.4 1.7 6 4.5',
  clock: 'M10 3.500a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM10 6.500V10l2.5 1.5',
  calendar: 'M4 5h12v11H4zM4 8.500h12M7 3v3.500M13 3v3.5',
  close: 'M5.5 5.500l9 9M14.5 5.500l-9 9',
  search: 'M9 4a5 5 0 1 0 0 10A5 5 0 0 0 9 4zM12.7 12.7 16.5 16.5',
  up: 'M10 15.500v-11M5.5 9 10 4.5 14.5 9',
  down: 'M10 4.500v11M5.5 11 10 15.5 14.5 11',
  right: 'M7.5 5l5 5-5 5',
  left: 'M12.5 5l-5 5 5 5',
  alert: 'M10 3.5 17.5 16h-15zM10 8.200v3.600M10 13.900h.01',
  copy: 'M7.5 7.500h8.500v8.500H7.500zM12.5 7.500V4H4v8.500h3.5',
  check: 'M4.5 10.5 8 14l7.5-8',
  empty: 'M3.5 12.5 6 5h8l2.5 7.500V16h-13zM3.5 12.500h4l1 1.500h3l1-1.500h4',
  download: 'M10 3.500v9M6 9l4 4 4-4M4 16h12',
  table: 'M3.5 4.500h13v11h-13zM3.5 8.200h13M8 8.200v7.3',
} as const;

export type IconName = keyof typeof shapes;

export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 20 20" fill="none" stroke="currentColor" strokeWidth={1.6} strokeLinecap="round" strokeLinejoin="round" aria-hidden="true" focusable="false">
      <path d={shapes[name]} />
    </svg>
  );
}
