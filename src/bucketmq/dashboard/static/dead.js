// Dead letters: what could not be handled and why, page by page; redriving or deleting all that match.

import { Refused, changed, quietly, read, write } from "/static/api.js";
import { confirmed, element, empty, loading, page, redraw } from "/static/dom.js";
import { count, moment, plural, unbroken } from "/static/words.js";

export default class DeadLetters {
  constructor(view, session, tell) {
    this.view = view;
    this.session = session;
    this.tell = tell;
    this.queue = tell.rest;
    this.q = "";
    this.letters = null;
    this.next = null;
    this.searched = 0;
    this.broken = ""; // why the letters cannot be read
    this.drawn = "";
    view.replaceChildren(loading("Dead letters"));
  }

  async update() {
    const found = await read("/api/dead");
    if (!this.queue || !found.dead.some((each) => each.queue === this.queue)) {
      if (!this.queue || this.letters?.length === 0) this.choose(found.dead[0]?.queue ?? "");
    }
    const dead = found.dead.find((each) => each.queue === this.queue)?.dead ?? 0;
    if (this.queue && (this.letters === null || dead !== this.dead)) {
      this.dead = dead;
      await this.load();
    }
    this.tell.count(found.dead.reduce((sum, each) => sum + each.dead, 0));
    this.found = found;
    this.draw();
  }

  leave() {
    clearTimeout(this.typing);
  }

  choose(queue) {
    this.queue = queue;
    this.letters = null;
    this.dead = null;
    this.q = "";
  }

  // The first page; with a search, of the first thousand letters those that match.
  async load() {
    const asked = [this.queue, this.q].join("\n");
    this.broken = "";
    try {
      const found = await read("/api/dead/letters", { queue: this.queue, q: this.q });
      if (asked === [this.queue, this.q].join("\n")) this.take(found, []);
    } catch (error) {
      if (!(error instanceof Refused) || error.status === 401) throw error;
      this.letters = [];
      this.next = null;
      this.broken = error.message;
    }
  }

  take(found, before) {
    this.letters = [...before, ...found.letters];
    this.searched = (before.length ? this.searched : 0) + found.searched;
    this.next = found.next;
  }

  async further() {
    const found = await quietly(read("/api/dead/letters", { queue: this.queue, q: this.q, after: this.next }));
    if (!found) return;
    const searched = this.searched;
    this.take(found, this.letters);
    this.searched = searched + found.searched;
    this.draw();
  }

  search(text) {
    this.q = text;
    this.letters = null;
    quietly(this.load().then(() => this.draw()));
  }

  draw() {
    const mark = JSON.stringify([this.found, this.queue, this.q, this.letters, this.next, this.searched, this.broken]);
    if (mark === this.drawn) return;
    this.drawn = mark;
    const { dead, more, unseen, unreadable } = this.found;
    const broken = unreadable.map((name) => element("a", { class: "card trouble bad", href: `#queues/${encodeURIComponent(name)}`, "data-unreadable": name },
      element("strong", {}, `Queue ${name} cannot be read`), element("p", { class: "small" }, "Whether it has dead letters is not known.")));
    const notes = [more ? `${plural(more, "queue")} more have dead letters` : "", unseen ? `${plural(unseen, "queue")} not looked at yet` : ""].filter(Boolean).join(" · ");
    redraw(this.view, page("Dead letters", "Messages that ran out of attempts, or were buried. Cure what was wrong, then redrive them.", broken,
      dead.length ? [
        element("div", { class: "bar-row" }, element("label", { class: "field-row" }, "Queue", element("select", { id: "dead-queue", onchange: (event) => { location.hash = `dead/${encodeURIComponent(event.target.value)}`; } },
          dead.map((each) => element("option", { value: each.queue, selected: each.queue === this.queue }, `${each.queue} (${count(each.dead)})`)))),
          element("input", { type: "search", id: "dead-search", maxlength: 200, placeholder: "Text in a body, key, id or error  ( / )", "aria-label": "Search the dead letters", value: this.q,
            oninput: (event) => { clearTimeout(this.typing); this.typing = setTimeout(() => this.search(event.target.value.trim()), 250); } })),
        notes ? element("p", { class: "small muted" }, notes) : null,
        this.list(dead.find((each) => each.queue === this.queue)?.dead ?? 0)]
        : broken.length ? null : empty("No dead letters", unseen ? notes : "Everything that was tried has worked, or is still being tried.")));
  }

  list(dead) {
    if (this.letters === null) return element("p", { class: "muted" }, "Loading …");
    if (this.broken) return element("section", { class: "card trouble bad", id: "dead-broken" }, element("strong", {}, `The dead letters of ${this.queue} cannot be read`), element("p", { class: "small" }, this.broken));
    const can = this.session.can;
    const all = this.q === "";
    const what = all ? `all ${plural(dead, "dead letter")}` : `all that match “${this.q}”`;
    const said = all ? `${count(this.letters.length)} of ${plural(dead, "dead letter")}` : `${count(this.letters.length)} match, of ${count(this.searched)} searched${this.next ? `; ${count(Math.max(0, dead - this.searched))} to go` : ""}`;
    return element("section", { class: "letters", "aria-label": `Dead letters of ${this.queue}` },
      element("div", { class: "letter-head" }, element("h2", {}, this.queue), element("span", { class: "chip bad", id: "dead-said" }, said),
        element("span", { class: "push" },
          can("operate") ? element("button", { class: "button", type: "button", "data-redrive-all": this.queue, onclick: () => this.redrive({ q: this.q }, what) }, all ? "Redrive all …" : "Redrive all that match …") : null,
          can("administer") ? element("button", { class: "button bad", type: "button", "data-delete-all": this.queue, onclick: () => this.remove({ q: this.q }, what) }, all ? "Delete all …" : "Delete all that match …") : null)),
      this.letters.length ? this.letters.map((letter) => this.letter(letter)) : element("p", { class: "muted" }, "Nothing that was searched so far matches."),
      this.next ? element("button", { class: "button", type: "button", id: "more-letters", onclick: () => this.further() }, all ? "Show more" : "Search further") : null);
  }

  letter(letter) {
    const can = this.session.can;
    return element("details", { class: "letter", "data-letter": letter.id, "data-keep": letter.id },
      element("summary", {}, element("span", { class: "mono" }, letter.key ?? letter.id), element("span", { class: "why small" }, unbroken(letter.reason || "no reason was given")),
        element("span", { class: "small muted" }, `${letter.died_at ? `died ${moment(letter.died_at)}` : "when it died is not known"}${letter.subscription && letter.subscription !== "main" ? ` · ${letter.subscription}` : ""}`)),
      element("div", { class: "letter-body" },
        element("p", { class: "small muted" }, `Sent ${moment(letter.sent_at)} · id ${letter.id} · ${plural(letter.attempts, "attempt")}`),
        element("div", {}, element("h3", {}, "Body"), element("pre", {}, letter.body)),
        element("div", {}, element("h3", {}, plural(letter.failures.length, "failure")), letter.failures.map((each) =>
          element("div", {}, element("p", { class: "small muted" }, `attempt ${each.attempt} failed ${moment(each.at)}, at ${each.holder}`), element("pre", {}, each.error)))),
        element("div", { class: "bar-row" },
          can("operate") ? element("button", { class: "button", type: "button", "data-redrive": letter.id, onclick: () => this.redrive({ ids: [letter.id] }, "this dead letter") }, "Redrive this one") : null,
          can("administer") ? element("button", { class: "button bad", type: "button", "data-delete": letter.id, onclick: () => this.remove({ ids: [letter.id] }, "this dead letter") }, "Delete this one") : null)));
  }

  async redrive(chosen, what) {
    if (await confirmed("Redrive?", `Send ${what} of the queue ${this.queue} again. What fails again comes back here.`, "Redrive") === null) return;
    await this.change("Redrive", write("/api/dead/redrive", { queue: this.queue, ...chosen }), ({ redriven, goes_on: goesOn }) =>
      goesOn ? "The redrive is under way and goes on by itself." : redriven ? `${plural(redriven, "message")} sent again.` : "Nothing was left to send: somebody else was faster.");
  }

  async remove(chosen, what) {
    const typed = chosen.ids ? null : this.queue;
    if (await confirmed("Delete?", `Forget ${what} of the queue ${this.queue}. There is no way back.`, "Delete", { typed, bad: true }) === null) return;
    await this.change("Delete", write("/api/dead/delete", { queue: this.queue, ...chosen }), ({ deleted, goes_on: goesOn }) =>
      goesOn ? "The delete is under way and goes on by itself." : deleted ? `${plural(deleted, "dead letter")} deleted.` : "Nothing was left to delete: somebody else was faster.");
  }

  async change(what, answer, said) {
    if (!await changed(what, answer, said)) return;
    this.letters = null;
    this.dead = null;
    await quietly(this.update());
  }
}
