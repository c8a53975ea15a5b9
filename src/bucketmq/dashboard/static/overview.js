// Overview: what is stuck, why, since when, and where to mend it; and who changed what lately.

import { Refused, quietly, read } from "/static/api.js";
import { Charts } from "/static/charts.js";
import { element, empty, loading, page, redraw, table } from "/static/dom.js";
import { count, dollars, moment, plural, since } from "/static/words.js";

const STATES = [["ready", "Ready"], ["in_flight", "In flight"], ["delayed", "Delayed"], ["dead", "Dead"]];

export default class Overview {
  constructor(view) {
    this.view = view;
    this.charts = new Charts("*", () => quietly(this.update()));
    view.replaceChildren(loading("Overview"));
  }

  async update() {
    const found = await read("/api/overview");
    const actions = await lately();
    await this.charts.update();
    const unseen = found.queues - found.seen;
    const head = `${plural(found.queues, "queue")}, ${plural(found.rules, "rule")}${unseen ? `; ${plural(unseen, "queue")} not looked at yet` : ""}`;
    redraw(this.view, page("Overview", head,
      element("section", { class: "tiles", "aria-label": "Messages by state" }, STATES.map(([name, title]) =>
        element("div", { class: "card tile" }, element("h3", {}, title),
          element("div", { class: name === "dead" && found[name] ? "big error-text" : "big", "data-sum": name }, count(found[name]))))),
      this.troubles(found),
      this.charts.draw(),
      actions.length ? this.actions(actions) : null,
      element("p", { class: "small muted" }, this.cost(found.cost))));
  }

  troubles({ troubles, troubles_total: total, queues, seen }) {
    if (!troubles.length) {
      return element("section", { class: "card" }, queues === 0
        ? empty("An empty bucket", "There are no queues yet. The first send makes one: bucketmq send jobs '{\"n\": 1}'", "∅")
        : seen < queues ? empty("Looking", "Nothing is stuck in the queues that were looked at so far.", "…")
        : empty("Nothing is stuck", "Nothing died, nothing is damaged, and no message has been ready for more than five minutes."));
    }
    return element("section", { class: "troubles", "aria-label": "What is stuck" },
      element("h2", {}, total > troubles.length ? `The worst ${count(troubles.length)} of ${plural(total, "trouble")}` : "What is stuck"),
      troubles.map((each) => element("a", { class: `card trouble ${each.level}`, href: `#${each.tab}/${encodeURIComponent(each.name)}` },
        element("strong", {}, each.what),
        each.since_seconds === null ? null : element("span", { class: each.level === "bad" ? "chip bad" : "chip warn" }, since(each.since_seconds)),
        element("p", { class: "small" }, each.why),
        element("p", { class: "small muted" }, "What to do: ", each.cure))));
  }

  actions(actions) {
    return element("section", { class: "changes", "aria-label": "Changes" }, element("h2", {}, "Who changed what"),
      table([["When"], ["Who"], ["What"]], actions.slice(0, 15).map((each) => element("tr", {},
        element("td", { class: "nowrap" }, moment(each.at)), element("td", {}, each.by),
        element("td", {}, `${each.did} ${each.to}`, each.how ? element("span", { class: "small muted" }, ` · ${each.how}`) : null,
          each.denied ? element("div", { class: "small error-text" }, `refused: ${each.denied}`) : null))), { label: "Changes" }));
  }

  cost({ requests, usd, prices }) {
    const made = `This server has made ${plural(requests, "request")} to the bucket since it started`;
    return usd === null ? `${made}.` : `${made}: ${dollars(usd)} at the list prices of ${prices}.`;
  }
}

// Whose scope leaves the log of actions out sees the rest.
async function lately() {
  try {
    return (await read("/api/actions")).actions;
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return [];
    throw error;
  }
}
