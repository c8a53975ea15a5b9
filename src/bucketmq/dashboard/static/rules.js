// Rules: where events go, what became of them, when the next try is; pause, resume, replay.

import { changed, quietly, read, write } from "/static/api.js";
import { asked, element, empty, loading, number, page, redraw, table } from "/static/dom.js";
import { age, count, dueIn, moment, plural, time, took, unbroken } from "/static/words.js";

const OUTCOMES = { done: ["good", "delivered"], retry: ["warn", "will be tried again"], bury: ["bad", "dead"], pause: ["warn", "paused the rule"] };

export default class Rules {
  constructor(view, session, tell) {
    this.view = view;
    this.session = session;
    this.open = tell.rest;
    this.attempts = null;
    this.drawn = "";
    view.replaceChildren(loading("Rules"));
  }

  async update() {
    const found = await read("/api/rules");
    if (this.open) this.attempts = (await read("/api/rules/attempts", { name: this.open })).attempts;
    const mark = JSON.stringify([found.rules, found.unreadable, found.since, this.open, this.attempts]);
    if (mark === this.drawn) return;
    this.drawn = mark;
    const text = `Delivered, failed tries and dead are counted since ${time(found.since)}. A failure that is tried again counts each time.`;
    const broken = found.unreadable.map((name) => element("section", { class: "card trouble bad", "data-unreadable": name }, element("strong", {}, `Rule ${name} cannot be read`),
      element("p", { class: "small" }, "Nothing is delivered for it."), element("p", { class: "small muted" }, `What to do: restore rules/${name}.json from a copy; or delete that object, and add the rule again`)));
    redraw(this.view, page("Rules", found.rules.length ? text : "", broken, found.rules.length
      ? found.rules.map((rule) => this.rule(rule))
      : broken.length ? null : empty("No rules yet", "A rule says which changes of objects go where:", "∅", "bucketmq rules add NAME --to queue:jobs")));
  }

  rule(rule) {
    const can = this.session.can("operate");
    const open = this.open === rule.name;
    const figure = (title, value, note) => element("div", { class: "figure" }, element("dt", {}, title), element("dd", {}, value, note ? element("div", { class: "small muted" }, note) : null));
    return element("section", { class: "card sub-card", "data-rule": rule.name, "aria-label": `Rule ${rule.name}` },
      element("div", { class: "letter-head" }, element("h2", {}, rule.name),
        rule.paused !== null ? element("span", { class: "chip warn" }, "paused") : null,
        rule.breaker_open ? element("span", { class: "chip bad" }, `breaker open: ${plural(rule.failures_in_a_row, "failure")} in a row`) : null,
        element("span", { class: "push" },
          element("button", { class: "button", type: "button", "aria-expanded": String(open), "data-attempts": rule.name, onclick: () => this.toggle(rule.name) }, open ? "Hide attempts" : "Attempts"),
          can ? element("button", { class: "button", type: "button", "data-replay": rule.name, onclick: () => this.replay(rule) }, "Replay …") : null,
          can ? element("button", { class: "button", type: "button", "data-pause": rule.name, onclick: () => this.pause(rule) }, rule.paused === null ? "Pause …" : "Resume") : null)),
      element("p", { class: "small" }, "to ", rule.to, element("span", { class: "mono filter" }, ` ${rule.filter || "every event"}`)),
      rule.paused ? element("p", { class: "small error-text" }, rule.paused) : null,
      element("dl", { class: "figures" },
        figure("Delivered", count(rule.done)), figure("Failed tries", count(rule.failed)), figure("Dead", count(rule.buried)),
        figure("Ready", count(rule.ready), rule.oldest_ready_seconds === null ? "" : `the oldest for ${age(rule.oldest_ready_seconds)}`),
        figure("In flight", count(rule.in_flight)), figure("Delayed", count(rule.delayed), dueIn(rule.next_due_seconds))),
      rule.last_error ? element("div", { class: "small why" }, element("p", { class: "error-text" }, unbroken(rule.last_error)), element("p", { class: "muted" }, `last failed ${moment(rule.last_error_at)}`)) : null,
      open ? this.history() : null);
  }

  history() {
    if (this.attempts === null) return element("p", { class: "muted" }, "Loading …");
    if (!this.attempts.length) return element("p", { class: "muted" }, "Nothing was tried lately.");
    return table([["Tried"], ["Object"], ["Attempt", 1], ["Outcome"], ["Took", 1]], this.attempts.map((each) => {
      const [kind, text] = OUTCOMES[each.outcome] ?? ["", each.outcome];
      return element("tr", {}, element("td", { class: "nowrap" }, moment(each.at)), element("td", { class: "mono" }, each.key), number("Attempt", count(each.attempt)),
        element("td", {}, element("span", { class: `chip ${kind}` }, text), each.status && !each.reason.includes(String(each.status)) ? ` status ${each.status}` : "", each.reason ? element("div", { class: "small error-text" }, unbroken(each.reason)) : null),
        number("Took", each.seconds ? took(each.seconds) : "–"));
    }), { label: "Attempts" });
  }

  async toggle(name) {
    this.open = this.open === name ? "" : name;
    this.attempts = null;
    await quietly(this.update());
  }

  async pause(rule) {
    if (rule.paused !== null) {
      await this.change("Resume", { name: rule.name, do: "resume" }, `Rule ${rule.name} delivers again, beginning with what was kept.`);
      return;
    }
    const why = await asked(`Pause ${rule.name}?`, [
      element("p", { class: "muted" }, "Nothing is delivered until it is resumed. Events that happen meanwhile are kept."),
      element("label", { class: "field" }, "Why", element("input", { id: "pause-why", maxlength: 200, autocomplete: "off" })),
    ], "Pause", { value: (dialog) => dialog.querySelector("#pause-why").value.trim() });
    if (why === null) return;
    await this.change("Pause", { name: rule.name, do: "pause", why: why || `paused by ${this.session.name}` }, `Rule ${rule.name} is paused.`);
  }

  async change(what, body, said) {
    if (await changed(what, write("/api/rules/change", body), () => said)) await quietly(this.update());
  }

  async replay(rule) {
    const given = await asked(`Replay for ${rule.name}`, [
      element("p", { class: "muted" }, "Deliver events again to this rule alone, under the same ids. What its filter refuses stays out."),
      element("label", { class: "field" }, "Which", element("select", { id: "replay-which", onchange: ({ target }) => { target.form.querySelector("#replay-below").hidden = target.value !== "prefix"; } },
        [["3600", "what happened in the last hour"], ["86400", "what happened in the last day"], ["604800", "what happened in the last week"], ["prefix", "objects that are there now, below a prefix"]]
          .map(([value, text]) => element("option", { value }, text)))),
      element("label", { class: "field", id: "replay-below", hidden: true }, "Prefix; empty is every object", element("input", { id: "replay-prefix", autocomplete: "off", spellcheck: "false" })),
    ], "Replay", { value: (dialog) => {
      const which = dialog.querySelector("#replay-which").value;
      return which === "prefix" ? { prefix: dialog.querySelector("#replay-prefix").value } : { since_seconds: Number(which) };
    } });
    if (given === null) return;
    await changed("Replay", write("/api/rules/replay", { name: rule.name, ...given }), (done) =>
      done.goes_on ? "The replay is under way and goes on by itself." : `${plural(done.events, "event")} will be delivered again.`);
    await quietly(this.update());
  }
}
