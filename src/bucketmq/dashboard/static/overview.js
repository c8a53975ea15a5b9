// Overview: what is stuck, why, since when, and where to mend it; and who changed what lately.

import { Refused, quietly, read } from "/static/api.js";
import { Charts } from "/static/charts.js";
import { element, empty, loading, number as cell, page, redraw, table } from "/static/dom.js";
import { age, capital, count, dollars, moment, plural, since, time, unbroken } from "/static/words.js";

const STATES = [["ready", "Ready"], ["in_flight", "In flight"], ["delayed", "Delayed"], ["dead", "Dead"]];

export default class Overview {
  constructor(view) {
    this.view = view;
    this.drawn = "";
    this.charts = new Charts("*", () => quietly(this.update()));
    view.replaceChildren(loading("Overview"));
  }

  async update() {
    const found = await read("/api/overview");
    const actions = await lately();
    await this.charts.update();
    const { now, troubles, ...rest } = found;
    const mark = JSON.stringify([rest, troubles.map(({ since_seconds: seconds, ...each }) => [each, age(seconds)]), actions, this.charts.mark()]);
    if (mark === this.drawn) return;
    this.drawn = mark;
    const unseen = found.queues - found.seen;
    const head = `${plural(found.queues, "queue")}, ${plural(found.rules, "rule")}, ${plural(found.pipelines, "pipeline")}${unseen ? `; ${plural(unseen, "queue")} not looked at yet` : ""}${found.unreadable ? `; ${plural(found.unreadable, "queue")} cannot be read and ${found.unreadable === 1 ? "is" : "are"} not in these sums` : ""}`;
    redraw(this.view, page("Overview", head,
      element("section", { class: "tiles", "aria-label": "Messages by state" }, STATES.map(([name, title]) =>
        element("div", { class: "card tile" }, element("h3", {}, title),
          element("div", { class: name === "dead" && found[name] ? "big error-text" : "big", "data-sum": name }, count(found[name]))))),
      this.troubles(found),
      this.charts.draw(),
      actions.length ? this.actions(actions) : null,
      found.cost ? this.cost(found.cost) : null));
  }

  troubles({ troubles, troubles_total: total, queues, seen }) {
    if (!troubles.length) {
      return element("section", { class: "card" }, queues === 0
        ? empty("An empty bucket", "There are no queues yet. The first send makes one:", "∅", "bucketmq send jobs '{\"n\": 1}'")
        : seen < queues ? empty("Looking", "Nothing is stuck in the queues that were looked at so far.", "…")
        : empty("Nothing is stuck", "Nothing died, nothing is damaged, and no message has been ready for more than five minutes."));
    }
    return element("section", { class: "troubles", "aria-label": "What is stuck" },
      element("h2", {}, total > troubles.length ? `The worst ${count(troubles.length)} of ${plural(total, "trouble")}` : "What is stuck"),
      troubles.map((each) => element("a", { class: `card trouble ${each.level}`, href: `#${each.tab}/${encodeURIComponent(each.name)}` },
        element("strong", {}, capital(each.what)),
        each.since_seconds === null ? null : element("span", { class: each.level === "bad" ? "chip bad" : "chip warn" }, since(each.since_seconds)),
        element("p", { class: "small" }, capital(unbroken(each.why))),
        element("p", { class: "small muted" }, "What to do: ", each.cure))));
  }

  actions(actions) {
    return element("section", { class: "changes", "aria-label": "Changes" }, element("h2", {}, "Who changed what"),
      table([["When"], ["Who"], ["What"]], actions.slice(0, 15).map((each) => element("tr", {},
        element("td", { class: "nowrap" }, moment(each.at)), element("td", {}, each.by),
        element("td", {}, `${each.did} ${each.to}`, each.how ? element("span", { class: "small muted" }, ` · ${each.how}`) : null,
          each.denied ? element("div", { class: "small error-text" }, `refused: ${each.denied}`) : null))), { label: "Changes" }));
  }

  // What it is made of is said: a program that reports nothing is not in it.
  cost({ requests, usd, prices, programs, all_requests: all, all_usd: allUsd, uncounted }) {
    const priced = (amount) => (amount === null ? "" : ` · ${dollars(amount)}`);
    const title = allUsd === null ? `${plural(all, "request")} to the bucket` : `${dollars(allUsd)} for ${plural(all, "request")} to the bucket, at the list prices of ${prices}`;
    const row = (who, what, number, amount, from) => element("tr", {}, element("td", {}, who, element("span", { class: "small muted" }, ` · ${what}`)),
      cell("Requests", count(number)), cell("Cost", amount === null ? "–" : dollars(amount)), cell("Since", from));
    return element("details", { class: "card cost spaced", "data-keep": "cost" },
      element("summary", {}, element("strong", {}, "Cost so far: "), title),
      element("p", { class: "small muted" }, `Requests only, counted by this server${priced(usd)} and by the programs that report to the bucket. Storage and transfer are not in it, nor are programs that report nothing${uncounted.length ? `, nor what Spark's executors ask for (${uncounted.join(", ")})` : ""}.`),
      table([["Who"], ["Requests", 1], ["Cost", 1], ["Since", 1]], [row("this dashboard", "server", requests, usd, "it started"),
        ...programs.map((each) => row(each.name, each.kind, each.requests, each.usd, time(each.since)))], { label: "Cost so far" }));
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
