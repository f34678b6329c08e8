// Links that leave the page: downloads of what is shown.
import { Button } from '@mantine/core';
import { Icon } from './icons';

/** address writes a path of the API with a question; a value may be there several times. */
export function address(path: string, query: Record<string, string | string[] | undefined>): string {
  const pairs = Object.entries(query).flatMap(([k, v]) => (v === undefined ? [] : [v].flat().map((x): [string, string] => [k, x])));
  return `${path}?${new URLSearchParams(pairs)}`;
}

export function Download({ href, name, label }: { href: string; name: string; label: string }) {
  return (
    <Button component="a" href={href} download={name} size="xs" variant="default" leftSection={<Icon name="download" size={14} />}>
      {label}
    </Button>
  );
}
