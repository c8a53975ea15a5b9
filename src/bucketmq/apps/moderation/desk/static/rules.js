// Rules: which events go where, and what became of the deliveries.

import { read } from "/static/api.js";
import { element, empty } from "/static/dom.js";
import { age, count, moment } from "/static/words.js";

export class Rules {
  constructor(view) {
    this.view = view;
    view.replaceChildren(element("div", { class: "page" }, element("h1", {}, "Rules"), element("p", { class: "muted" }, "Loading …")));
  }

  async update() {
    const { rules } = await read("/api/figures/rules");
    const head = ["Rule", "Delivered", "Failed", "Ready", "In flight", "Delayed", "Oldest ready", "Last error"];
    const body = rules.length
      ? element("div", { class: "card flush scroll" }, element("table", { class: "stack" },
          element("thead", {}, element("tr", {}, head.map((name, at) => element("th", { scope: "col", class: at && at < 7 ? "number" : "" }, name)))),
          element("tbody", {}, rules.map(row))))
      : empty("No rules yet", "The router makes its rules when it starts.", "∅");
    this.view.replaceChildren(element("div", { class: "page" },
      element("div", { class: "page-head" }, element("h1", {}, "Rules"),
        element("p", { class: "muted" }, "Deliveries are counted from a quarter of an hour before this server was first asked.")), body));
  }
}

function row(rule) {
  const number = (label, value) => element("td", { class: "number", "data-label": label }, value);
  return element("tr", {},
    element("td", {}, element("strong", {}, rule.name), " ", rule.paused !== null ? element("span", { class: "chip warn" }, "paused") : null,
      element("div", { class: "small" }, "to ", rule.to),
      element("div", { class: "small mono filter" }, rule.filter || "every event"),
      rule.paused ? element("div", { class: "small error-text" }, rule.paused) : null),
    number("Delivered", count(rule.done)),
    number("Failed", rule.failed ? element("span", { class: "chip bad" }, count(rule.failed)) : "0"),
    number("Ready", count(rule.ready)), number("In flight", count(rule.in_flight)), number("Delayed", count(rule.delayed)), number("Oldest ready", age(rule.oldest_ready_seconds)),
    element("td", {}, rule.last_error ? [element("div", { class: "small error-text" }, rule.last_error), element("div", { class: "small muted" }, moment(rule.last_error_at))] : element("span", { class: "small muted" }, "none")));
}
