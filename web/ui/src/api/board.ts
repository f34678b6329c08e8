// Names for the types of the OpenAPI document that pages use. Amounts are exact decimal
// strings; null is unknown, never zero. Times are RFC 3339, *_ms integers.
import type { components, operations } from './schema';

type Schemas = components['schemas'];

export type Figures = Schemas['FiguresDoc'];
export type Overview = Schemas['Overview'];
/** One of several spans or groups; the key of a group is empty for "without one". */
export type Part = Schemas['KeyFigures'];
export type InstancePage = Schemas['InstanceList'];
export type InstanceItem = Schemas['InstanceItem'];
export type InstanceDetail = Schemas['InstanceDetail'];
export type StateSpan = Schemas['InstanceState'];
export type Timeline = Schemas['Timeline'];
export type TimelinePoint = Schemas['TimelinePoint'];
export type Session = Schemas['Session'];
export type InstanceQuery = NonNullable<operations['instances']['parameters']['query']>;
