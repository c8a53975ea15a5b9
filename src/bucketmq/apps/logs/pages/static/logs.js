// Logs: the timeline, open alerts, new patterns, and the lines behind them.

import { changed, quietly, read, write } from "/static/api.js";
import { asked, drawing, element, empty, loading, number, page, redraw, table } from "/static/dom.js";
import { age, count, moment, plural } from "/static/words.js";

const RANGES = [[1, "Hour"], [6, "6 hours"], [24, "Day"], [168, "Week"]];
const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [150, 48, 8, 8, 22];
const NARROW = 700;

export default class Logs {
  constructor(view, session, tell) {
    this.view = view;
    this.session = session;
    this.service = tell.rest || "";
    this.hours = 6;
    this.lines = null;
    this.chosen = 0;
    this.drawn = "";
    view.replaceChildren(loading("Logs"));
  }

  async update() {
    const wanted = `${this.service}|${this.hours}`;
    const found = await read("/api/logs/overview", { service: this.service, hours: this.hours });
    if (wanted !== `${this.service}|${this.hours}`) return;
    this.found = found;
    this.draw();
  }

  draw() {
    const { found } = this;
    const mark = JSON.stringify([found.services, found.open, found.muted, found.resolved, found.timeline, found.patterns, found.new, this.service, this.hours, this.lines, this.chosen, window.innerWidth < NARROW]);
    if (mark === this.drawn) return;
    this.drawn = mark;
    if (!found.services.length) {
      redraw(this.view, page("Logs", "", empty("No logs yet", "Put objects below logs/SERVICE/DATE/: JSON lines, syslog, OTLP or text, also packed.", "∅")));
      return;
    }
    redraw(this.view, page("Logs", this.head(), this.bar(), this.timeline(), this.alerts(), this.lines ? this.shown() : null, this.service ? this.patterns() : this.services()));
  }

  head() {
    const { open, muted } = this.found;
    return `${open.length ? plural(open.length, "open alert") : "No open alerts"}${muted.length ? `, ${plural(muted.length, "muted alert")}` : ""}`;
  }

  bar() {
    const choose = element("select", { id: "logs-service", "aria-label": "Service", onchange: (event) => this.choose(event.target.value) },
      element("option", { value: "", selected: !this.service }, "All services"),
      this.found.services.map(({ service }) => element("option", { value: service, selected: service === this.service }, service)));
    const range = element("div", { class: "segmented", role: "group", "aria-label": "Range" }, RANGES.map(([hours, title]) =>
      element("button", { class: "button quiet", type: "button", id: `logs-range-${hours}`, "aria-pressed": String(this.hours === hours), onclick: () => { this.hours = hours; quietly(this.update()); } }, title)));
    return element("div", { class: "logs-bar" }, choose, range);
  }

  choose(service) {
    this.service = service;
    this.lines = null;
    quietly(this.update());
  }

  timeline() {
    const { timeline: { lines, errors }, since, until } = this.found;
    const width = window.innerWidth < NARROW ? 360 : 960;
    const top = Math.max(1, ...lines);
    const step = (width - LEFT - RIGHT) / lines.length;
    const y = (value) => HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value / top);
    const bar = (kind, values) => values.map((value, at) => value ? drawing("rect", { class: kind, x: (LEFT + at * step).toFixed(1), y: y(value).toFixed(1), width: Math.max(1, step - 1).toFixed(1), height: (HEIGHT - BOTTOM - y(value)).toFixed(1) }) : null);
    const total = lines.reduce((sum, each) => sum + each, 0);
    const bad = errors.reduce((sum, each) => sum + each, 0);
    const spoken = `${plural(total, "line")}, ${plural(bad, "error")} in ${age(until - since)}`;
    return element("section", { class: "card", "aria-label": "Timeline" },
      element("div", { class: "letter-head" }, element("h2", {}, "Timeline"), element("span", { class: "muted small" }, spoken)),
      drawing("svg", { class: "logs-svg", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": spoken },
        [0, top].map((value) => [drawing("line", { x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }), drawing("text", { class: "end", x: LEFT - 6, y: y(value) + 4 }, count(value))]),
        bar("lines", lines), bar("errors", errors),
        drawing("text", { x: LEFT, y: HEIGHT - 6 }, `${age(until - since)} ago`), drawing("text", { class: "end", x: width - RIGHT, y: HEIGHT - 6 }, "now")));
  }

  listed() {
    return this.found.open.filter((alert) => !this.service || alert.service === this.service);
  }

  alerts() {
    const open = this.listed();
    const muted = this.found.muted.filter((alert) => !this.service || alert.service === this.service);
    const over = this.found.resolved.filter((alert) => !this.service || alert.service === this.service);
    return element("section", { class: "alert-list", "aria-label": "Alerts" },
      element("h2", {}, "Open alerts"),
      open.length ? open.map((alert, at) => this.alert(alert, at)) : element("p", { class: "muted", id: "no-alerts" }, "Nothing is out of the ordinary."),
      muted.length ? element("details", { "data-keep": "muted" }, element("summary", {}, plural(muted.length, "muted alert")), muted.map((alert) => this.alert(alert, -1, true))) : null,
      over.length ? element("details", { "data-keep": "over" }, element("summary", {}, "Lately resolved"),
        table([["What"], ["Why"], ["Resolved"]], over.map((alert) => element("tr", {}, element("td", { class: "pattern" }, alert.summary), element("td", { "data-label": "Why" }, alert.why), element("td", { class: "nowrap", "data-label": "Resolved" }, moment(alert.resolved_at)))), { label: "Resolved alerts" })) : null);
  }

  alert(alert, at, muted = false) {
    const can = this.session.can("operate");
    return element("article", { class: `card alert-card ${alert.severity}${at === this.chosen && at >= 0 ? " chosen" : ""}`, "data-alert": alert.id },
      element("div", { class: "letter-head" }, element("h3", {}, alert.summary),
        element("span", { class: `chip ${alert.severity === "warning" ? "warn" : alert.severity === "info" ? "" : "bad"}` }, alert.severity),
        element("span", { class: "push" },
          alert.template_id ? element("button", { class: "button", type: "button", "data-lines": alert.id, onclick: () => this.show(alert.service, alert.template_id, alert.summary) }, "Lines") : null,
          can ? element("button", { class: "button", type: "button", "data-mute": alert.id, onclick: () => this.mute(alert, muted) }, muted ? "Unmute" : "Mute …") : null)),
      element("p", {}, alert.why),
      element("p", { class: "small muted" }, `opened ${moment(alert.opened_at)}`, alert.link ? [" · ", element("a", { href: alert.link, rel: "noopener noreferrer", target: "_blank" }, "Runbook")] : null),
      alert.examples.length ? element("pre", { class: "small" }, alert.examples.join("\n")) : null);
  }

  async mute(alert, muted) {
    if (muted) {
      await changed("unmuting", write("/api/logs/mute", { id: alert.id, seconds: 0 }), () => "Notifications are on again.");
    } else {
      const choice = await asked("Mute this alert", [
        element("p", { class: "muted" }, alert.summary),
        element("label", { class: "field" }, "For", element("select", { id: "mute-for" }, [[3600, "an hour"], [28800, "8 hours"], [604800, "a week"]].map(([seconds, title]) => element("option", { value: seconds, selected: seconds === 28800 }, title)))),
        element("label", { class: "field" }, "Why, for the audit log", element("input", { id: "mute-note", maxlength: 500, autocomplete: "off" }))],
      "Mute", { value: (dialog) => ({ seconds: Number(dialog.querySelector("#mute-for").value), note: dialog.querySelector("#mute-note").value }) });
      if (!choice) return;
      await changed("muting", write("/api/logs/mute", { id: alert.id, ...choice }), () => "Muted.");
    }
    await quietly(this.update());
  }

  async show(service, template, title) {
    const found = await quietly(read("/api/logs/lines", { service, template }));
    if (!found) return;
    this.lines = { title, lines: found.lines };
    this.draw();
    document.getElementById("logs-lines")?.scrollIntoView({ block: "nearest" });
  }

  shown() {
    const { title, lines } = this.lines;
    return element("section", { class: "card logs-lines", id: "logs-lines", "aria-label": "Lines" },
      element("div", { class: "letter-head" }, element("h2", {}, plural(lines.length, "line")), element("span", { class: "muted small pattern" }, title),
        element("span", { class: "push" }, element("button", { class: "button", type: "button", id: "close-lines", onclick: () => this.hide() }, "Close"))),
      element("pre", { class: "small", tabindex: "0" }, lines.map((line) => `${line.at ? new Date(line.at * 1000).toISOString() : "-"}  ${line.level || "-"}  ${line.text}`).join("\n")));
  }

  hide() {
    this.lines = null;
    this.draw();
  }

  services() {
    return element("section", {}, element("h2", {}, "Services"),
      table([["Service"], ["Lines", 1], ["Late", 1], ["From the future", 1], ["Newest line"]], this.found.services.map((each) => element("tr", {},
        element("td", {}, element("button", { class: "button quiet", type: "button", "data-service": each.service, onclick: () => this.choose(each.service) }, each.service)),
        number("Lines", count(each.lines)), number("Late", count(each.late)), number("From the future", count(each.skewed)),
        element("td", { "data-label": "Newest line", class: "nowrap" }, moment(new Date(each.newest_at * 1000).toISOString())))), { label: "Services" }));
  }

  patterns() {
    const fresh = new Set(this.found.new.map((each) => each.id));
    const row = (each) => element("tr", { "data-pattern": each.id },
      element("td", { class: "pattern" }, element("button", { class: "button quiet mono small", type: "button", onclick: () => this.show(this.service, each.id, each.template) }, each.template), fresh.has(each.id) ? element("span", { class: "chip" }, "new") : null),
      element("td", { "data-label": "Level" }, each.level || "–"), number("Lines", count(each.lines)),
      element("td", { "data-label": "Over time" }, spark(each.minutes)));
    const part = (title, list) => element("section", {}, element("h2", {}, title), table([["Pattern"], ["Level"], ["Lines", 1], ["Over time"]], list.map(row), { label: title }));
    return element("div", { class: "alert-list" }, this.found.new.length ? part("New patterns of the last day", this.found.new) : null,
      part(`Patterns (${count(this.found.all ?? 0)})`, this.found.patterns));
  }

  key(event) {
    const open = this.listed();
    if (event.key === "Escape" && this.lines) this.hide();
    else if ((event.key === "j" || event.key === "k") && open.length) {
      this.chosen = Math.min(open.length - 1, Math.max(0, this.chosen + (event.key === "j" ? 1 : -1)));
      this.draw();
      this.view.querySelector(".alert-card.chosen")?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "m" && open[this.chosen] && this.session.can("operate")) this.mute(open[this.chosen], false);
    else return false;
    return true;
  }
}

function spark(minutes) {
  const top = Math.max(1, ...minutes);
  return drawing("svg", { class: "pattern-spark", viewBox: `0 0 ${minutes.length} 20`, preserveAspectRatio: "none", "aria-hidden": "true" },
    minutes.map((value, at) => value ? drawing("rect", { x: at, y: (20 - 20 * value / top).toFixed(1), width: 0.9, height: (20 * value / top).toFixed(1) }) : null));
}
