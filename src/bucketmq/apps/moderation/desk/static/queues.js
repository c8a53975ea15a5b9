// Queues: how deep, how old, who reads them and how far behind they are.

import { read } from "/static/api.js";
import { element, empty } from "/static/dom.js";
import { age, count } from "/static/words.js";

const ABOUT = {
  submissions: "posts that were accepted, to be judged",
  "moderation-audit": "what was done to posts, and by whom",
  "moderation-chores": "reviews to be finished by a router",
  events: "changes of objects, for rules",
  deliveries: "what became of each delivery",
};

export class Queues {
  constructor(view) {
    this.view = view;
    view.replaceChildren(element("div", { class: "page" }, element("h1", {}, "Queues"), element("p", { class: "muted" }, "Loading …")));
  }

  async update() {
    const { queues } = await read("/api/figures/queues");
    const body = queues.length ? this.table(queues) : empty("No queues yet", "They are made by the first post.", "∅");
    this.view.replaceChildren(element("div", { class: "page" },
      element("div", { class: "page-head" }, element("h1", {}, "Queues"), element("p", { class: "muted" }, "What is ready in each of them, and which reader is behind.")), body));
  }

  table(queues) {
    const head = ["", "Ready", "In flight", "Delayed", "Oldest ready", "Dead", "Sent"];
    const rows = queues.flatMap((queue) => [
      element("tr", { class: "group" },
        element("td", {}, queue.name, ABOUT[queue.name] ? element("div", { class: "small muted" }, ABOUT[queue.name]) : null),
        number("", ""), number("", ""), number("Delayed", queue.delayed ? `${queue.delayed_is_at_least ? "≥ " : ""}${count(queue.delayed)}` : ""), number("", ""),
        number("Dead", queue.dead ? element("span", { class: "chip bad" }, count(queue.dead)) : "0"), number("Sent", count(queue.sent))),
      ...queue.subscriptions.map((each) => element("tr", {},
        element("td", { class: "sub" }, each.name, element("span", { class: "muted small" }, each.name.startsWith("rule-") ? " · a rule" : " · subscription"),
          each.advice ? element("div", { class: "small error-text" }, each.advice) : null),
        number("Ready", count(each.ready)), number("In flight", count(each.in_flight)), number("Delayed", count(each.delayed)),
        number("Oldest ready", age(each.oldest_ready_seconds)), number("", ""), number("", ""))),
      ...queue.readers.map((each) => element("tr", {},
        element("td", { class: "sub" }, each.name, element("span", { class: "muted small" }, ` · Spark reader, moved ${age(each.idle_seconds)} ago`)),
        number("Lag", each.lag ? element("span", { class: "chip warn" }, `lag ${count(each.lag)}`) : "0"),
        number("", ""), number("", ""), number("", ""), number("", ""), number("", ""))),
    ]);
    return element("div", { class: "card flush scroll" }, element("table", { class: "stack" },
      element("thead", {}, element("tr", {}, head.map((name, at) => element("th", { scope: "col", class: at ? "number" : "" }, name)))),
      element("tbody", {}, rows)));
  }
}

function number(label, value) {
  return element("td", { class: "number", "data-label": label || null }, value === "" ? null : value);
}
