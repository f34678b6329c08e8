// The pages that there are, in the order of the navigation. A page is loaded when it
// is opened. A path may hold parameters (":id"); nav names its entry in the navigation.
import { lazy, type ComponentType, type LazyExoticComponent } from 'react';
import type { en } from '../i18n/en';

export interface Page {
  path: string;
  nav?: keyof (typeof en)['nav'];
  component: LazyExoticComponent<ComponentType>;
}

export const pages: Page[] = [
  { path: '/', nav: 'overview', component: lazy(() => import('./overview')) },
  { path: '/instances', nav: 'instances', component: lazy(() => import('./instances')) },
  { path: '/instances/:id', component: lazy(() => import('./instance')) },
  { path: '/projects', nav: 'projects', component: lazy(() => import('./projects')) },
  { path: '/plans', nav: 'plans', component: lazy(() => import('./plans')) },
  { path: '/quality', nav: 'quality', component: lazy(() => import('./quality')) },
  { path: '/prices', nav: 'prices', component: lazy(() => import('./prices')) },
  { path: '/statements', nav: 'statements', component: lazy(() => import('./statements')) },
  { path: '/statements/:period', component: lazy(() => import('./statement')) },
];
