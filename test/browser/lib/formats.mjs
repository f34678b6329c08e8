// How a reader of one language sees a figure, worked out from decimal strings with
// integers only. The page uses Intl; that is not asked here, so that a wrong option of
// it, or a digit that a float lost on the way, is seen.

const symbols = { CNY: '¥', USD: '$', EUR: '€' };
const hourUnits = { en: ' hr', 'zh-CN': '小时' };
const unknown = { en: 'unknown', 'zh-CN': '未知' };

/** scaled reads a decimal string as an integer of 10^-digits, rounded half away from zero. */
function scaled(text, digits) {
  const match = /^(-?)(\d+)(?:\.(\d+))?$/.exec(text);
  if (!match) throw new Error(`${text} is no decimal string`);
  const [, sign, whole, fraction = ''] = match;
  const kept = BigInt(whole + fraction.slice(0, digits).padEnd(digits, '0'));
  const n = (fraction[digits] ?? '0') >= '5' ? kept + 1n : kept;
  return sign ? -n : n;
}

/** written is a decimal with its thousands apart; zeros at the end go down to least digits. */
function written(n, digits, least) {
  const text = (n < 0n ? -n : n).toString().padStart(digits + 1, '0');
  const whole = text.slice(0, text.length - digits).replace(/\B(?=(\d{3})+$)/g, ',');
  let fraction = text.slice(text.length - digits);
  while (fraction.length > least && fraction.endsWith('0')) fraction = fraction.slice(0, -1);
  return whole + (fraction ? `.${fraction}` : '');
}

/** money shows two digits, and of an amount that would look like zero the first two that are not. */
export function money(text, currency, language) {
  if (text === null) return unknown[language];
  const [whole, fraction = ''] = text.replace('-', '').split('.');
  const zeros = /^0*/.exec(fraction)[0].length;
  const tiny = BigInt(whole) === 0n && /[1-9]/.test(fraction) && scaled(text.replace('-', ''), 2) === 0n;
  const digits = tiny ? zeros + 2 : 2;
  const n = scaled(text, digits);
  return (n < 0n ? '-' : '') + (symbols[currency] ?? '') + written(n, digits, tiny ? 0 : 2);
}

/** percent shows a ratio with at most one digit. */
export function percent(text, language) {
  if (text === null) return unknown[language];
  const n = scaled(text, 3);
  return `${n < 0n ? '-' : ''}${written(n, 1, 0)}%`;
}

/** hours shows milliseconds: two digits below ten hours, else one. */
export function hours(ms, language) {
  const digits = ms < 36_000_000 ? 2 : 1;
  const n = (BigInt(ms) * 10n ** BigInt(digits) * 2n + 3_600_000n) / 7_200_000n;
  return written(n, digits, 0) + hourUnits[language];
}

export const count = (n) => written(BigInt(n), 0, 0);
