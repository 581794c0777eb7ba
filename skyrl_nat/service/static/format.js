// Numbers and times for people.

/** A number with as many digits as help. */
export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(digits)));
}

/** A share as a percentage. */
export function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`;
}

/** Seconds in the unit that fits. */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  if (value < 1) return `${(1000 * value).toFixed(0)} ms`;
  if (value < 120) return `${value.toFixed(1)} s`;
  if (value < 7200) return `${(value / 60).toFixed(1)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

/** A time of the past, roughly. */
export function ago(text) {
  if (!text) return "–";
  const passed = (Date.now() - Date.parse(text)) / 1000;
  if (Number.isNaN(passed)) return text;
  if (passed < 60) return "just now";
  if (passed < 3600) return `${Math.round(passed / 60)} min ago`;
  if (passed < 86400) return `${Math.round(passed / 3600)} h ago`;
  return new Date(text).toISOString().slice(0, 10);
}

/** Any value of JSON as short text. */
export function plain(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return number(value, 6);
  return typeof value === "string" ? value : JSON.stringify(value);
}

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu;

/** Text in which signs that cannot be seen, or that turn the order of others round, are written as escapes. */
export function plainSigns(text) {
  return text.replace(UNSEEN, (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`);
}
