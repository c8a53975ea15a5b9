// Queues: a page of them by name; and one of them with its subscriptions, shards and messages.

import { Refused, changed, quietly, read, write } from "/static/api.js";
import { Charts } from "/static/charts.js";
import { asked, confirmed, element, empty, loading, number, page, redraw, table } from "/static/dom.js";
import { age, count, dueIn, moment, percent, plural, rate } from "/static/words.js";

const STATES = { ready: "ready", in_flight: "in flight", delayed: "delayed", dead: "dead" };

export default class Queues {
  constructor(view, session, tell) {
    this.view = view;
    this.session = session;
    this.name = tell.rest;
    this.query = { q: "", after: "" };
    this.pages = [];
    this.drawn = "";
    this.looked = { subscription: null, messages: null, next: null };
    this.charts = new Charts(this.name, () => quietly(this.update()));
    view.replaceChildren(loading("Queues"));
  }

  async update() {
    if (this.name) await this.updateOne();
    else await this.updateAll();
  }

  // Drawn again only if something changed: typing into the search and reading are not disturbed.
  draw(mark, made) {
    if (this.drawn === mark) return;
    this.drawn = mark;
    redraw(this.view, made());
  }

  async updateAll() {
    const wanted = JSON.stringify(this.query);
    const found = await read("/api/queues", this.query);
    if (wanted !== JSON.stringify(this.query)) return;
    this.draw(JSON.stringify([this.query, found.queues, found.total]), () => this.all(found));
  }

  all({ queues, total, next }) {
    const search = element("input", { type: "search", id: "queue-search", placeholder: "Part of a name  ( / )", "aria-label": "Part of a queue's name", value: this.query.q,
      oninput: (event) => { clearTimeout(this.typing); this.typing = setTimeout(() => this.go({ q: event.target.value.trim(), after: "" }, []), 200); } });
    const from = this.pages.length * 50;
    const where = total > queues.length ? `${count(from + 1)} to ${count(from + queues.length)} of ${plural(total, "queue")}` : plural(total, "queue");
    const body = queues.length ? this.table(queues)
      : this.query.q ? empty("Nothing matches", "No queue has this in its name.", "∅")
      : empty("No queues yet", "The first send makes one:", "∅", "bucketmq send jobs '{\"n\": 1}'");
    return page("Queues", queues.length ? "A message counts once for each subscription. In and out are over the last minute, or since this page first looked." : "", element("div", { class: "bar-row" }, search, element("span", { class: "muted small", id: "queues-where" }, where),
      element("span", { class: "push" },
        this.pages.length ? element("button", { class: "button", type: "button", id: "before", onclick: () => this.go({ ...this.query, after: this.pages.pop() }, this.pages) }, "← Before") : null,
        next ? element("button", { class: "button", type: "button", id: "next", onclick: () => { this.pages.push(this.query.after); this.go({ ...this.query, after: next }, this.pages); } }, "Next →") : null)), body);
  }

  go(query, pages) {
    this.query = query;
    this.pages = pages;
    quietly(this.update());
  }

  leave() {
    clearTimeout(this.typing);
  }

  table(queues) {
    return table([["Queue"], ["Ready", 1], ["In flight", 1], ["Delayed", 1], ["Dead", 1], ["Oldest ready", 1], ["In", 1], ["Out", 1], ["Ever sent", 1]],
      queues.map((queue) => element("tr", { "data-queue": queue.name },
        element("td", {}, element("a", { href: `#queues/${encodeURIComponent(queue.name)}` }, element("strong", {}, queue.name)),
          Object.keys(queue.paused ?? {}).length ? element("span", { class: "chip warn" }, "paused") : null,
          queue.trouble ? element("div", { class: "small error-text" }, queue.trouble) : null,
          (queue.damaged ?? []).length ? element("div", { class: "small error-text" }, `damaged: ${queue.damaged[0]}`) : null,
          (queue.readers ?? []).filter((each) => each.lag).map((each) => element("div", { class: "small muted" }, `reader ${each.name} is ${count(each.lag)} behind`))),
        ...(queue.trouble ? [element("td", { colspan: 8 }, element("span", { class: "chip bad" }, "cannot be read"))] : numbers(queue)),
      )), { label: "Queues" });
  }

  async updateOne() {
    let queue;
    try {
      queue = await read("/api/queue", { name: this.name });
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 404) throw error;
      this.draw("gone", () => page(this.name, "", this.back(), empty("No such queue", "It may have a name that is spelt otherwise.", "∅")));
      return;
    }
    const { now, seen_at: _, ...shown } = queue;
    this.queue = queue;
    this.charts.subscriptions = (queue.subscriptions ?? []).map((each) => [each.series, each.rule ? `rule ${each.rule}` : each.name]);
    if (!queue.trouble) await this.charts.update();
    this.draw(JSON.stringify([shown, this.looked, this.charts.mark()]), () => this.one(queue));
  }

  back() {
    return element("p", {}, element("a", { href: "#queues" }, "← All queues"));
  }

  one(queue) {
    if (queue.trouble) return page(queue.name, "", this.back(), element("section", { class: "card trouble bad" }, element("strong", {}, "It cannot be read"), element("p", {}, queue.trouble), element("p", { class: "small muted" }, `See what is damaged: bucketmq doctor --deep ${queue.name}`)));
    const can = this.session.can;
    const flow = queue.rate_in === null ? "" : ` · in: ${rate(queue.rate_in)} over the last ${age(queue.rate_seconds)}`;
    const later = queue.delayed - queue.subscriptions.reduce((sum, each) => sum + each.delayed, 0);
    return page(queue.name, `${plural(queue.shards, "shard")} · ${plural(queue.sent, "message")} ever sent${flow}`, this.back(),
      queue.damaged.map((each) => element("p", { class: "card trouble bad" }, each)),
      element("div", { class: "bar-row" },
        can("operate") && !queue.own ? element("button", { class: "button", type: "button", id: "send", onclick: () => this.send(queue) }, "Send a message …") : null,
        can("operate") ? element("button", { class: "button", type: "button", "data-pause": "*", onclick: () => this.pause(queue, null, "*" in queue.paused) }, "*" in queue.paused ? "Resume" : "Pause …") : null,
        queue.dead ? element("a", { class: "button", href: `#dead/${encodeURIComponent(queue.name)}` }, plural(queue.dead, "dead letter")) : null),
      later > 0 ? element("p", { class: "muted", id: "later" }, `${queue.delayed_is_at_least ? "At least " : ""}${plural(later, "send")} with a delay that is not over: not in the log yet, so no shard counts ${later === 1 ? "it" : "them"}.`) : null,
      queue.subscriptions.length ? queue.subscriptions.map((each) => this.subscription(queue, each))
        : element("p", { class: "muted" }, "Nobody subscribes to this queue; it is kept for readers and for the record."),
      this.charts.draw(),
      queue.readers.length ? table([["Reader"], ["Behind", 1], ["Last progress", 1]], queue.readers.map((each) => element("tr", {},
        element("td", {}, each.name, element("span", { class: "small muted" }, each.holds ? " · what it has not read is kept" : "")),
        number("Behind", count(each.lag)), number("Last progress", `${age(each.idle_seconds)} ago`))), { label: "Readers" }) : null,
      element("details", { class: "card", "data-keep": "settings" }, element("summary", {}, "Settings"),
        element("dl", { class: "facts small" }, Object.entries(queue.settings).flatMap(([name, value]) => [element("dt", {}, name), element("dd", { class: "mono" }, JSON.stringify(value))]))));
  }

  subscription(queue, sub) {
    const title = sub.rule ? `rule ${sub.rule}` : sub.name;
    const work = sub.holders ? `${plural(sub.holders, "process", "processes")} received in the last ten minutes` : sub.idle_seconds === null ? "nobody has received yet" : `no progress for ${age(sub.idle_seconds)}`;
    const open = this.looked.subscription === sub.name;
    const can = this.session.can;
    return element("section", { class: "card sub-card", "data-subscription": sub.name, "aria-label": `Subscription ${title}` },
      element("div", { class: "letter-head" }, element("h2", {}, title), sub.paused ? element("span", { class: "chip warn" }, "paused") : null,
        element("span", { class: "small muted" }, sub.rate_out === null ? work : `out: ${rate(sub.rate_out)} · ${work}`),
        element("span", { class: "push" },
          element("button", { class: "button", type: "button", "data-look": sub.name, "aria-expanded": String(open), onclick: () => this.look(sub.name) }, open ? "Hide messages" : "Look into messages"),
          can("operate") && !sub.rule && queue.subscriptions.length > 1 && !("*" in queue.paused) ? element("button", { class: "button", type: "button", "data-pause": sub.name, onclick: () => this.pause(queue, sub.name, sub.name in queue.paused) }, sub.name in queue.paused ? "Resume" : "Pause …") : null,
          can("administer") && !sub.rule ? element("button", { class: "button bad", type: "button", "data-purge": sub.name, onclick: () => this.purge(queue, sub) }, "Purge …") : null)),
      sub.paused ? element("p", { class: "small error-text" }, sub.paused) : null,
      sub.advice ? element("p", { class: "small error-text" }, sub.advice) : null,
      sub.conflict_rate >= 0.01 ? element("p", { class: "small muted" }, `${percent(sub.conflict_rate)} of head writes were refused because another process was faster`) : null,
      table([["Shard"], ["Ready", 1], ["In flight", 1], ["Delayed", 1], ["Oldest ready", 1]],
        [...(sub.shards.length > 1 ? [{ ...sub, shard: "all" }] : []), ...sub.shards].map((each) => element("tr", {}, element("td", { "data-label": "Shard" }, `shard ${each.shard}`.replace("shard all", "all shards")),
          number("Ready", count(each.ready)), number("In flight", count(each.in_flight)),
          number("Delayed", [count(each.delayed), each.next_due_seconds !== null && each.next_due_seconds !== undefined ? element("div", { class: "small muted" }, dueIn(each.next_due_seconds)) : null]),
          number("Oldest ready", age(each.oldest_ready_seconds)))), { label: `Shards of ${title}` }),
      open ? this.messages(sub) : null);
  }

  messages() {
    const { messages, next } = this.looked;
    if (messages === null) return element("p", { class: "muted" }, "Loading …");
    if (!messages.length) return element("p", { class: "muted" }, "Nothing is unsettled here.");
    return element("div", { class: "letters" }, messages.map((each) => element("details", { class: "letter", "data-message": each.id, "data-keep": each.id },
      element("summary", {}, element("span", { class: "mono" }, each.key ?? each.id), element("span", { class: "chip" }, STATES[each.state]),
        element("span", { class: "small muted" }, `sent ${moment(each.sent_at)}${each.attempts ? ` · ${plural(each.attempts, "attempt")}` : ""} · shard ${each.shard}, offset ${count(each.offset)}`)),
      element("div", { class: "letter-body" }, element("pre", {}, each.body),
        Object.keys(each.headers).length ? element("pre", {}, Object.entries(each.headers).map(([name, value]) => `${name}: ${value}`).join("\n")) : null))),
      next ? element("button", { class: "button", type: "button", id: "more-messages", onclick: () => this.lookFurther() }, "Show more") : null);
  }

  async look(subscription) {
    const closing = this.looked.subscription === subscription;
    this.looked = { subscription: closing ? null : subscription, messages: null, next: "" };
    if (!closing) await this.lookFurther();
    else await quietly(this.update());
  }

  async lookFurther() {
    const { subscription, next } = this.looked;
    const found = await quietly(read("/api/messages", { queue: this.name, subscription, after: next ?? "" }));
    if (this.looked.subscription !== subscription) return;
    if (!found) { // why was said; nothing is shown rather than "nothing there"
      if (this.looked.messages === null) this.looked = { subscription: null, messages: null, next: null };
      await quietly(this.update());
      return;
    }
    this.looked = { subscription, messages: [...(this.looked.messages ?? []), ...found.messages], next: found.next };
    await quietly(this.update());
  }

  async send(queue) {
    const given = await asked(`Send to ${queue.name}`, [
      element("label", { class: "field" }, "Body", element("textarea", { id: "send-body", rows: 5, required: true, spellcheck: "false" }, "{}")),
      element("label", { class: "check" }, element("input", { id: "send-json", type: "checkbox", checked: true }), "The body is JSON"),
      element("p", { class: "small error-text", id: "send-wrong", role: "status" }),
      element("label", { class: "field" }, "Key, if order or a shard matters", element("input", { id: "send-key", autocomplete: "off" })),
      element("label", { class: "field" }, "Delay in seconds", element("input", { id: "send-delay", type: "number", min: 0, step: "any" })),
    ], "Send", { ready: sendable, value: (dialog) => ({
      body: dialog.querySelector("#send-body").value, json: dialog.querySelector("#send-json").checked,
      key: dialog.querySelector("#send-key").value || null, delay_seconds: Number(dialog.querySelector("#send-delay").value) || null }) });
    if (given === null) return;
    await this.change("Send", write("/api/send", { queue: queue.name, ...given }), ({ id }) => `Sent as ${id}.`);
  }

  async pause(queue, subscription, paused) {
    const what = subscription === null ? `queue ${queue.name}` : `${subscription} of queue ${queue.name}`;
    const body = { queue: queue.name, subscription, do: paused ? "resume" : "pause" };
    if (!paused) {
      const why = await asked(`Pause ${what}?`, [
        element("p", { class: "muted" }, "Nothing more is handed out until it is resumed. Sends go on, and so does what is in flight. Workers notice within 30 seconds."),
        element("label", { class: "field" }, "Why", element("input", { id: "pause-why", maxlength: 200, autocomplete: "off" })),
      ], "Pause", { value: (dialog) => dialog.querySelector("#pause-why").value.trim() });
      if (why === null) return;
      body.why = why || `paused by ${this.session.name}`;
    }
    await this.change(paused ? "Resume" : "Pause", write("/api/queues/change", body), () => `${what} is ${paused ? "handed out again; workers notice within 30 seconds" : "paused"}.`);
  }

  async purge(queue, sub) {
    const waiting = sub.ready + sub.in_flight + sub.delayed;
    const sure = await confirmed("Purge?", `Forget ${plural(waiting, "message")} that ${sub.name} of queue ${queue.name} has not settled. There is no way back.`, "Purge", { typed: queue.name, bad: true });
    if (sure === null) return;
    await this.change("Purge", write("/api/purge", { queue: queue.name, subscription: sub.name, confirm: queue.name }), ({ purged }) => `${plural(purged, "message")} forgotten.`);
  }

  async change(what, answer, said) {
    if (!await changed(what, answer, said)) return;
    this.looked = { subscription: null, messages: null, next: null };
    await quietly(this.update());
  }
}

// What is not JSON is said while it is still there to be corrected.
function sendable(dialog) {
  let wrong = "";
  try {
    if (dialog.querySelector("#send-json").checked) JSON.parse(dialog.querySelector("#send-body").value);
  } catch (error) {
    wrong = `Not JSON: ${error.message}`;
  }
  dialog.querySelector("#send-wrong").textContent = wrong;
  return !wrong;
}

function numbers(queue) {
  return [number("Ready", count(queue.ready)), number("In flight", count(queue.in_flight)),
    number("Delayed", `${queue.delayed_is_at_least ? "≥ " : ""}${count(queue.delayed)}`),
    number("Dead", queue.dead ? element("a", { class: "chip bad", href: `#dead/${encodeURIComponent(queue.name)}`, "aria-label": `${plural(queue.dead, "dead letter")} of ${queue.name}` }, count(queue.dead)) : "0"),
    number("Oldest ready", age(queue.oldest_ready_seconds)), number("In", rate(queue.rate_in)), number("Out", rate(queue.rate_out)),
    number("Ever sent", count(queue.sent))];
}
