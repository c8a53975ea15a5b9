// Charts over an hour, a day or a week: how many messages were in each state, and how many went in and out.

import { read } from "/static/api.js";
import { drawing, element } from "/static/dom.js";
import { age, count } from "/static/words.js";

const RANGES = [["hour", "Hour", 3600], ["day", "Day", 86400], ["week", "Week", 604800]];
const LINES = [["ready", "Ready", "accent"], ["in_flight", "In flight", "good"], ["delayed", "Delayed", "warn"], ["dead", "Dead", "bad"]];
const FLOW = [["in", "In", "accent"], ["out", "Out", "good"]];
const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [220, 56, 12, 12, 26];
const NARROW = 700;
const GAP = 6; // where nobody took figures for a sixth of the time there is no line

let chosen = "hour"; // the same for all charts, and kept while the page is open

export class Charts {
  constructor(queue, changed) {
    this.queue = queue;
    this.changed = changed;
    this.found = null;
    this.subscriptions = []; // to choose from: [series, title]
    this.series = "";
  }

  async update() {
    const [span, series] = [chosen, this.series];
    const found = await read("/api/figures", { span, queue: this.queue, ...(series ? { subscription: series } : {}) });
    if (span === chosen && series === this.series) this.found = { ...found, span, series };
  }

  // For comparing what is drawn with what should be.
  mark() {
    return this.found ? [this.found.span, this.found.series, this.found.points] : null;
  }

  draw() {
    const pick = element("div", { class: "segmented", role: "group", "aria-label": "Range" }, RANGES.map(([name, title]) =>
      element("button", { class: "button quiet", type: "button", id: `range-${name}`, "aria-pressed": String(chosen === name),
        onclick: () => { chosen = name; this.changed(); } }, title)));
    const of = this.subscriptions.length > 1 ? element("label", { class: "field-row" }, "Of", element("select", { id: "chart-of", onchange: (event) => { this.series = event.target.value; this.changed(); } },
      [["", "all subscriptions"], ...this.subscriptions].map(([value, title]) => element("option", { value, selected: value === this.series }, title)))) : null;
    const head = element("div", { class: "letter-head" }, element("h2", {}, "Over time"), element("span", { class: "push" }, of, pick));
    return element("section", { class: "card charts", "aria-label": "Figures over time" }, head, this.body());
  }

  body() {
    if (!this.found) return element("p", { class: "muted" }, "Loading …");
    const { fields, points, now, span } = this.found;
    if (points.length < 2) return element("p", { class: "muted", id: "no-figures" }, "No figures of this time yet. They are taken each minute while a dashboard runs, unless it was started with --no-figures, and kept for a week.");
    const seconds = RANGES.find(([name]) => name === span)[2];
    const rows = points.map((point) => Object.fromEntries(fields.map((name, at) => [name, point[at]])));
    const perSecond = (row, before, name) => Math.max(0, (row[name] - before[name]) / (row.at - before.at));
    // A sample of an earlier release has no count of what went out: there is no rate from it to the next.
    const flow = rows.slice(1).map((row, at) => ({ at: row.at, in: perSecond(row, rows[at], "sent"), out: row.settled && rows[at].settled ? perSecond(row, rows[at], "settled") : 0 }));
    return element("div", { class: "plots" },
      chart("Messages", rows, LINES, now, seconds), chart("Messages per second", flow, FLOW, now, seconds));
  }
}

function chart(title, rows, lines, now, seconds) {
  const named = lines.map(([name, text, kind]) => ({ name, title: text, kind }));
  return element("figure", {}, element("figcaption", { class: "legend small" }, element("strong", {}, title), named.map((line) => element("span", { class: `key ${line.kind}` }, line.title))),
    plot(title, rows, named, now, seconds));
}

// Lines over time, with a scale at the left and the time below. Each row has `at` and a number for each line.
export function plot(title, rows, lines, now, seconds) {
  const narrow = window.innerWidth < NARROW;
  const width = narrow ? 360 : 620;
  const top = nice(Math.max(0.1, ...rows.flatMap((row) => lines.map(({ name }) => row[name]))));
  const x = (at) => LEFT + (width - LEFT - RIGHT) * (1 - (now - at) / seconds);
  const y = (value) => HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value / top);
  const last = rows[rows.length - 1];
  const spoken = `${title}: now ${lines.map((line) => `${line.title} ${label(last[line.name])}`).join(", ")}; at most ${label(top)} on this chart`;
  return drawing("svg", { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": spoken },
    [0, top / 2, top].map((value) => [
      drawing("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      drawing("text", { class: "tick end", x: LEFT - 8, y: y(value) + 4 }, label(value))]),
    parts(seconds, narrow).map((part) => drawing("text", { class: `tick ${part === 1 ? "" : part ? "middle" : "end"}`, x: x(now - seconds * part), y: HEIGHT - 6 }, part ? `${age(Math.round(seconds * part))} ago` : "now")),
    lines.map(({ name, kind }) => drawing("path", { class: `line ${kind}`, d: rows.map((row, at) =>
      `${at && row.at - rows[at - 1].at < seconds / GAP ? "L" : "M"}${x(row.at).toFixed(1)} ${y(row[name]).toFixed(1)}h1`).join("") })));
}

// Where the time is written below: at whole minutes, hours or days, so that "5 min ago" is not nearly six.
function parts(seconds, narrow) {
  const many = seconds === 900 ? 3 : seconds === 604800 ? 7 : narrow ? 2 : 4;
  const shown = narrow && many === 7 ? [0, 3, 7] : [...Array(many + 1).keys()];
  return shown.map((each) => each / many).reverse();
}

// The next round number: 1, 2 or 5 and zeros.
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((each) => each * power >= value) * power;
}

function label(value) {
  if (value >= 1e6) return `${value / 1e6} M`;
  if (value >= 1e4) return `${value / 1e3} k`;
  return value >= 10 || Number.isInteger(value) ? count(Math.round(value)) : String(Number(value.toPrecision(2)));
}
