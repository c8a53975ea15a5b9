// Numbers and times as people read them.

export function count(number) {
  return number.toLocaleString("en-US");
}

export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

export function percent(part) {
  return `${Math.round(part * 100)} %`;
}

export function age(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

export function took(seconds) {
  if (seconds < 0.95) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 100) return `${seconds.toFixed(1)} s`;
  return age(seconds);
}

export function moment(text) {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? text : at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

export function categoryName(name) {
  return name.replaceAll("_", " ");
}

export function sentence(text) {
  return text ? `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}` : "";
}

export const OUTCOMES = { "flagged/": "flagged", "needs-review/": "needs review", "approved/": "approved" };
