// Charts over an hour, a day or a week: how many messages were in each state, and how many went in and out.

import { read } from "/static/api.js";
import { drawing, element } from "/static/dom.js";
import { age, count } from "/static/words.js";

const RANGES = [["hour", "Hour", 3600], ["day", "Day", 86400], ["week", "Week", 604800]];
const LINES = [["ready", "Ready", "accent"], ["in_flight", "In flight", "good"], ["delayed", "Delayed", "warn"], ["dead", "Dead", "bad"]];
const FLOW = [["in", "In per second", "accent"], ["out", "Out per second", "good"]];
const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [220, 56, 12, 12, 26];
const NARROW = 700;

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
    if (points.length < 2) return element("p", { class: "muted", id: "no-figures" }, "There are no figures of this time. They are taken each minute while a dashboard runs with figures, and kept for a week.");
    const seconds = RANGES.find(([name]) => name === span)[2];
    const rows = points.map((point) => Object.fromEntries(fields.map((name, at) => [name, point[at]])));
    const perSecond = (row, before, name) => Math.max(0, (row[name] - before[name]) / (row.at - before.at));
    // A sample of an earlier release has no count of what went out: there is no rate from it to the next.
    const flow = rows.slice(1).map((row, at) => ({ at: row.at, in: perSecond(row, rows[at], "sent"), out: row.settled && rows[at].settled ? perSecond(row, rows[at], "settled") : 0 }));
    return element("div", { class: "plots" },
      element("div", {}, element("div", { class: "legend small" }, LINES.map(([, title, kind]) => element("span", { class: `key ${kind}` }, title))),
        plot("Messages", rows, LINES.map(([name, title, kind]) => ({ name, title, kind })), now, seconds)),
      element("div", {}, element("div", { class: "legend small" }, FLOW.map(([, title, kind]) => element("span", { class: `key ${kind}` }, title))),
        plot("Messages per second", flow, FLOW.map(([name, title, kind]) => ({ name, title, kind })), now, seconds)));
  }
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
    (narrow ? [1, 0.5, 0] : [1, 0.75, 0.5, 0.25, 0]).map((part) => drawing("text", { class: `tick ${part === 1 ? "" : part ? "middle" : "end"}`, x: x(now - seconds * part), y: HEIGHT - 6 }, part ? `${age(seconds * part)} ago` : "now")),
    lines.map(({ name, kind }) => drawing("path", { class: `line ${kind}`, d: rows.map((row, at) => `${at ? "L" : "M"}${x(row.at).toFixed(1)} ${y(row[name]).toFixed(1)}`).join("") })));
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
