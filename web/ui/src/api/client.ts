// The HTTP API: typed by the OpenAPI document, errors as problems of RFC 9457.
import createClient from 'openapi-fetch';
import type { components, paths } from './schema';

export const api = createClient<paths>({ baseUrl: '/' });

export type Schemas = components['schemas'];

interface Detail {
  message?: string;
  location?: string;
}

/** What the server, or the way to it, said is wrong. */
export class Problem extends Error {
  readonly status: number; // 0 when there was no answer
  readonly details: Detail[];

  constructor(status: number, message: string, details: Detail[] = []) {
    super(message);
    this.name = 'Problem';
    this.status = status;
    this.details = details;
  }
}

/** problemOf reads the body of an answer that is not a success. */
export function problemOf(status: number, statusText: string, body: unknown): Problem {
  if (body !== null && typeof body === 'object') {
    const { detail, title, errors } = body as { detail?: unknown; title?: unknown; errors?: unknown };
    const text = [detail, title].find((s) => typeof s === 'string' && s !== '') as string | undefined;
    if (text !== undefined) return new Problem(status, text, Array.isArray(errors) ? (errors as Detail[]) : []);
  }
  const text = typeof body === 'string' && body.length < 300 ? body.trim() : '';
  return new Problem(status, text || statusText || `HTTP ${status}`);
}

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/**
 * must returns the data of an answer, or throws its Problem. The text forms of a report
 * (CSV, table) are never asked for by the page.
 */
export async function must<T>(pending: Promise<Answer<T>>): Promise<Exclude<T, string>> {
  let answer: Answer<T>;
  try {
    answer = await pending;
  } catch (cause) {
    // AbortError belongs to whoever aborted; everything else is a network that
    // gave no answer, or an answer that is not JSON.
    if (cause instanceof DOMException && cause.name === 'AbortError') throw cause;
    throw new Problem(0, cause instanceof Error ? cause.message : String(cause));
  }
  if (!answer.response.ok) throw problemOf(answer.response.status, answer.response.statusText, answer.error);
  return answer.data as Exclude<T, string>; // undefined only where the answer has no content
}

/** mustText is must for an answer that is asked for with parseAs: 'text'. */
export const mustText = async (pending: Promise<Answer<string>>): Promise<string> => (await must<unknown>(pending)) as string;
