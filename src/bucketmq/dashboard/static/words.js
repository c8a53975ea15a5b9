// Numbers and times as people read them.

export function count(number) {
  return number.toLocaleString("en-US");
}

export function plural(number, noun, many = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : many}`;
}

export function percent(part) {
  return `${Math.round(part * 100)} %`;
}

export function age(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return "< 1 s";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

// How long something goes on already, or is still to come.
export function since(seconds) {
  return seconds === null || seconds === undefined ? "" : `for ${age(seconds)}`;
}

export function dueIn(seconds) {
  return seconds === null || seconds === undefined ? "" : seconds < 1 ? "due now" : `next in ${age(seconds)}`;
}

export function dollars(amount) {
  return amount >= 1 ? `$${amount.toFixed(2)}` : `$${amount.toFixed(4)}`;
}

export function took(seconds) {
  if (seconds < 0.95) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 100) return `${seconds.toFixed(1)} s`;
  return age(seconds);
}

// How many a second: enough digits to tell a trickle from nothing.
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "–";
  if (perSecond === 0) return "0/s";
  if (perSecond < 0.1) return `${Math.max(1, Math.round(perSecond * 3600)).toLocaleString("en-US")}/h`;
  return `${perSecond >= 10 ? Math.round(perSecond).toLocaleString("en-US") : perSecond.toFixed(1)}/s`;
}

// Seconds since 1970 as people read them.
export function time(seconds) {
  return moment(new Date(seconds * 1000).toISOString());
}

// The clock is the reader's own, which may not be that of the logs beside it: so its zone is said.
const MOMENT = { year: "numeric", month: "short", day: "numeric", hour: "numeric", minute: "2-digit", second: "2-digit", timeZoneName: "short" };

export function moment(text) {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? text : at.toLocaleString(undefined, MOMENT);
}

// A number stays with its unit: "after 0.01 s" is not broken before the s.
export function unbroken(text) {
  return text.replace(/(\d) (ms|s|min|h|d|%|B|kB|KB|MB|GB)\b/g, "$1\u00a0$2");
}

export function capital(text) {
  return text ? `${text[0].toUpperCase()}${text.slice(1)}` : "";
}

export function sentence(text) {
  return text ? `${capital(text)}${/[.!?]$/.test(text) ? "" : "."}` : "";
}
