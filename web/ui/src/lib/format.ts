// Numbers, money and times as a reader of one locale and zone sees them. Amounts are
// decimal strings and stay strings: Intl formats those exactly. Milliseconds are
// integers and are divided as integers.

type Exact = Intl.StringNumericLiteral;

const decimal = /^-?\d+(\.\d+)?$/;

/** isZero says whether a decimal string is zero, however it is written. */
export const isZero = (text: string) => !/[1-9]/.test(text);

/** toNumber is for the geometry of charts only; what is printed comes from the text. */
export const toNumber = (text: string | null | undefined) => (text == null ? null : Number(text));

/** compareDecimals orders two decimal strings exactly. */
export function compareDecimals(a: string, b: string): number {
  const [x, y] = scaled(a, b);
  return x < y ? -1 : x > y ? 1 : 0;
}

/** divide divides integers and returns a decimal string, rounded half up. */
export function divide(numerator: bigint, denominator: bigint, digits: number): string {
  const scaled = numerator * 10n ** BigInt(digits);
  const half = denominator / 2n;
  const n = (scaled >= 0n ? scaled + half : scaled - half) / denominator;
  const text = (n < 0n ? -n : n).toString().padStart(digits + 1, '0');
  const at = text.length - digits;
  return (n < 0n ? '-' : '') + (digits === 0 ? text : `${text.slice(0, at)}.${text.slice(at)}`);
}

function scaled(a: string, b: string): [bigint, bigint] {
  const scale = Math.max(...[a, b].map((s) => s.split('.')[1]?.length ?? 0));
  const whole = (s: string) => {
    const [i = '0', f = ''] = s.split('.');
    return BigInt(i + f.padEnd(scale, '0'));
  };
  return [whole(a), whole(b)];
}

/** quotient returns a / b of two amounts as a decimal string; null when one is unknown or b is not positive. */
export function quotient(a: string | null | undefined, b: string | null | undefined): string | null {
  if (a == null || b == null) return null;
  const [x, y] = scaled(a, b);
  return y > 0n ? divide(x, y, 6) : null;
}

/** growth returns a / b - 1 as quotient does. */
export function growth(a: string | null | undefined, b: string | null | undefined): string | null {
  if (a == null || b == null) return null;
  const [x, y] = scaled(a, b);
  return y > 0n ? divide(x - y, y, 6) : null;
}

/** ratio returns part of whole (integers) as a decimal string; null when whole is 0. */
export const ratio = (part: number, whole: number) => (whole === 0 ? null : divide(BigInt(part), BigInt(whole), 6));

export class Formats {
  readonly locale: string;
  readonly zone: string;
  private readonly cache = new Map<string, Intl.NumberFormat | Intl.DateTimeFormat>();

  constructor(locale: string, zone: string) {
    this.locale = locale;
    this.zone = knownZone(zone) ? zone : 'UTC';
  }

  private numbers(options: Intl.NumberFormatOptions): Intl.NumberFormat {
    const key = `n${JSON.stringify(options)}`;
    let f = this.cache.get(key) as Intl.NumberFormat | undefined;
    if (!f) this.cache.set(key, (f = new Intl.NumberFormat(this.locale, options)));
    return f;
  }

  private dates(options: Intl.DateTimeFormatOptions, zone = this.zone): Intl.DateTimeFormat {
    const key = `d${zone}${JSON.stringify(options)}`;
    let f = this.cache.get(key) as Intl.DateTimeFormat | undefined;
    if (!f) this.cache.set(key, (f = new Intl.DateTimeFormat(this.locale, { timeZone: zone, ...options })));
    return f;
  }

  /**
   * money shows an exact amount with two digits. One that would look like zero and is
   * not gets as many digits as it takes to see it.
   */
  money(text: string, currency: string | null): string {
    if (!decimal.test(text)) return text;
    const small = !isZero(text) && /^-?0\.00[0-4]/.test(text);
    const digits: Intl.NumberFormatOptions = small ? { maximumSignificantDigits: 2 } : { minimumFractionDigits: 2, maximumFractionDigits: 2 };
    const unit: Intl.NumberFormatOptions = currency && /^[A-Z]{3}$/.test(currency) ? { style: 'currency', currency, currencyDisplay: 'narrowSymbol' } : {};
    return this.numbers({ ...unit, ...digits }).format(text as Exact);
  }

  /** moneyShort is for axes: few digits, compact. */
  moneyShort(value: number, currency: string | null): string {
    const unit: Intl.NumberFormatOptions = currency && /^[A-Z]{3}$/.test(currency) ? { style: 'currency', currency, currencyDisplay: 'narrowSymbol' } : {};
    return this.numbers({ ...unit, notation: 'compact', minimumFractionDigits: 0, maximumFractionDigits: value !== 0 && Math.abs(value) < 10 ? 2 : 1 }).format(value);
  }

  /** percent shows a ratio, 0 to 1, as a decimal string. */
  percent(text: string): string {
    if (!decimal.test(text)) return text;
    return this.numbers({ style: 'percent', minimumFractionDigits: 0, maximumFractionDigits: 1 }).format(text as Exact);
  }

  /** change shows a growth with its sign. */
  change(text: string): string {
    return this.numbers({ style: 'percent', minimumFractionDigits: 0, maximumFractionDigits: 1, signDisplay: 'exceptZero' }).format(text as Exact);
  }

  number(value: number | bigint | string, most = 2): string {
    if (typeof value === 'string' && !decimal.test(value)) return value;
    return this.numbers({ maximumFractionDigits: most }).format(value as Exact);
  }

  /** hours shows integer milliseconds as hours. */
  hours(ms: number): string {
    const digits = Math.abs(ms) < 36_000_000 ? 2 : 1;
    const h = divide(BigInt(ms), 3_600_000n, digits); // rounded once
    if (ms !== 0 && isZero(h)) return this.duration(ms);
    return this.numbers({ style: 'unit', unit: 'hour', unitDisplay: 'short', maximumFractionDigits: digits }).format(h as Exact);
  }

  /** duration shows the two largest units of integer milliseconds. */
  duration(ms: number): string {
    const seconds = Math.floor(Math.abs(ms) / 1000);
    const units: [Intl.NumberFormatOptions['unit'] & string, number][] = [['day', 86400], ['hour', 3600], ['minute', 60], ['second', 1]];
    if (seconds === 0 && ms !== 0) return this.numbers({ style: 'unit', unit: 'millisecond', unitDisplay: 'short' }).format(Math.abs(ms));
    const first = Math.max(0, units.findIndex(([, s]) => seconds >= s));
    const parts: string[] = [];
    let rest = seconds;
    for (const [unit, s] of units.slice(seconds === 0 ? 3 : first).slice(0, 2)) {
      const n = Math.floor(rest / s);
      rest -= n * s;
      if (n > 0 || parts.length === 0) parts.push(this.numbers({ style: 'unit', unit, unitDisplay: 'short' }).format(n));
    }
    return parts.join(' ');
  }

  /** bytes shows an integer string in binary units. */
  bytes(text: string): string {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
    let power = 0;
    const n = BigInt(text.split('.')[0] || '0');
    while (power < units.length - 1 && n >= 1024n ** BigInt(power + 1)) power++;
    return `${this.numbers({ maximumFractionDigits: 1 }).format(divide(n, 1024n ** BigInt(power), 2) as Exact)} ${units[power]}`;
  }

  instant(text: string, seconds = false): string {
    return this.at(text, { year: 'numeric', month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', ...(seconds ? { second: '2-digit' } : {}), hourCycle: 'h23' });
  }

  /** exact shows an instant to the millisecond with its offset. */
  exact(text: string): string {
    return this.at(text, { year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3, hourCycle: 'h23', timeZoneName: 'shortOffset' });
  }

  day(text: string): string {
    return this.at(text, { month: 'short', day: 'numeric' });
  }

  dayLong(text: string): string {
    return this.at(text, { weekday: 'short', year: 'numeric', month: 'short', day: 'numeric' });
  }

  month(text: string): string {
    return this.at(text, { year: 'numeric', month: 'long' });
  }

  time(text: string, seconds = false): string {
    return this.at(text, { hour: '2-digit', minute: '2-digit', ...(seconds ? { second: '2-digit' } : {}), hourCycle: 'h23' });
  }

  /** span shows a half-open interval; whole days without their midnights. */
  span(from: string, to: string): string {
    const midnight = (s: string) => Date.parse(s) % 1000 === 0 && /^00:00:00$/.test(this.dates({ hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' }).format(new Date(s)));
    if (Number.isNaN(Date.parse(from)) || Number.isNaN(Date.parse(to))) return `${from} – ${to}`;
    if (midnight(from) && midnight(to)) {
      const last = new Date(Date.parse(to) - 1).toISOString();
      const [a, b] = [this.dayLong(from), this.dayLong(last)];
      return a === b ? a : `${a} – ${b}`;
    }
    return `${this.instant(from)} – ${this.instant(to)}`;
  }

  private at(text: string, options: Intl.DateTimeFormatOptions): string {
    const ms = Date.parse(text);
    return Number.isNaN(ms) ? text : this.dates(options).format(new Date(ms));
  }
}

export function knownZone(zone: string): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone: zone });
    return zone !== '';
  } catch {
    return false;
  }
}
