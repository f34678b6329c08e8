// How the tables of the page name rows and columns.

/** nameOf is the name of a row of what has this key. */
export const nameOf = (by, key) => key || (by === 'plan' ? 'On demand, or without a lease' : '(none)');

/** cell is the one below the head that begins with this; two columns may share a head. */
export function cell(row, head) {
  const [, text] = Object.entries(row).find(([h]) => h.startsWith(head)) ?? [];
  return text?.split('\n').join(' ');
}

/** figuresOf is what the list of instances shows in one row. */
export const figuresOf = (row) => ['Utilization', 'Idle waste', 'Effective cost'].map((head) => cell(row, head));
