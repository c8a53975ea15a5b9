// Dead letters: what could not be handled, why, and sending it again.

import { Refused, Unreachable, read, write } from "/static/api.js";
import { confirmed, element, empty, toast } from "/static/dom.js";
import { count, moment, plural } from "/static/words.js";

export class DeadLetters {
  constructor(view, session, tell) {
    this.view = view;
    this.session = session;
    this.tell = tell;
    this.open = new Set();
    this.drawn = "";
    view.replaceChildren(element("div", { class: "page" }, element("h1", {}, "Dead letters"), element("p", { class: "muted" }, "Loading …")));
  }

  async update() {
    const { dead } = await read("/api/figures/dead");
    this.tell.dead(dead.reduce((sum, each) => sum + each.dead, 0));
    const drawn = JSON.stringify(dead);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    this.view.replaceChildren(element("div", { class: "page" },
      element("div", { class: "page-head" }, element("h1", {}, "Dead letters"),
        element("p", { class: "muted" }, "Messages that ran out of attempts. Cure what was wrong, then redrive them.")),
      dead.length ? dead.map((each) => this.queue(each)) : empty("No dead letters", "Everything that was tried has worked, or is still being tried.")));
  }

  queue({ queue, dead, letters }) {
    const title = letters.length < dead ? `the oldest ${count(letters.length)} of ${count(dead)}` : plural(dead, "letter");
    return element("section", { class: "letters", "aria-label": `Dead letters of ${queue}` },
      element("div", { class: "letter-head" }, element("h2", {}, queue), element("span", { class: "chip bad" }, title),
        this.session.may_decide ? element("button", { class: "button", type: "button", "data-redrive-all": queue,
          onclick: () => this.redrive(queue, null, `all ${plural(dead, "dead letter")}`) }, "Redrive all") : null),
      letters.map((letter) => this.letter(queue, letter)));
  }

  letter(queue, letter) {
    const made = element("details", { class: "letter", "data-letter": letter.id, ontoggle: () => { if (made.open) this.open.add(letter.id); else this.open.delete(letter.id); } },
      element("summary", {}, element("span", { class: "mono" }, letter.key ?? letter.id), element("span", { class: "why small" }, letter.reason || "no reason was given"),
        element("span", { class: "small muted" }, `${letter.subscription || "main"} · ${moment(letter.sent_at)}`)),
      element("div", { class: "letter-body" },
        element("div", {}, element("h3", {}, "Body"), element("pre", {}, letter.body)),
        element("div", {}, element("h3", {}, plural(letter.failures.length, "failure")), letter.failures.map((each) =>
          element("div", {}, element("p", { class: "small muted" }, `attempt ${each.attempt} · ${moment(each.at)} · ${each.holder}`), element("pre", {}, each.error)))),
        this.session.may_decide ? element("div", {}, element("button", { class: "button", type: "button", "data-redrive": letter.id,
          onclick: () => this.redrive(queue, [letter.id], "this dead letter") }, "Redrive this one")) : null));
    made.open = this.open.has(letter.id);
    return made;
  }

  async redrive(queue, ids, what) {
    if (!await confirmed("Redrive?", `Send ${what} of the queue ${queue} again. What fails again comes back here.`, "Redrive")) return;
    try {
      const done = await write("/api/redrive", { queue, ids });
      toast(done.redriven ? `${plural(done.redriven, "message")} sent again.` : "Nothing was left to send: somebody else redrove it.");
      await this.update();
    } catch (error) {
      if (!(error instanceof Refused) && !(error instanceof Unreachable)) throw error;
      toast(`Redrive did not work: ${error.message}`, { bad: true });
    }
  }
}
