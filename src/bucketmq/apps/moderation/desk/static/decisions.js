// What people decided, the latest first: who, when and about what; how often they agreed with the model; and taking it back.

import { changed, read, write } from "/static/api.js";
import { asked, element, empty, loading, page, redraw, table } from "/static/dom.js";
import { age, count, moment, percent, plural } from "/static/words.js";
import { historyOf } from "./history.js";
import { DONE, OUTCOMES } from "./names.js";

const CATEGORIES = ["hate_speech", "spam", "nsfw", "harassment", "violence", "self_harm"];
const KINDS = { approve: "chip good decided", uphold: "chip bad decided", escalate: "chip warn decided" };
const SAID = { "flagged/": "flagged it", "needs-review/": "was not sure", "approved/": "approved it" };
const FILTERS = { by: "", did: "", q: "", taken_back: "", agreed: "", after: "" };

export default class Decisions {
  constructor(view, session, tell) {
    this.view = view;
    this.session = session;
    this.filters = { ...FILTERS, q: tell.rest ?? "" };
    this.before = []; // cursors of the pages before
    view.replaceChildren(loading("Decisions"));
  }

  leave() {
    clearTimeout(this.typing);
  }

  async update() {
    const wanted = JSON.stringify(this.filters);
    const found = await read("/api/decisions/list", this.filters);
    if (wanted !== JSON.stringify(this.filters)) return;
    this.found = found;
    this.draw();
  }

  filter(name, value) {
    this.filters = { ...this.filters, [name]: value, after: "" };
    this.before = [];
    this.update();
  }

  draw() {
    const { found } = this;
    const kept = found.full ? ` The last ${count(found.kept)} are shown; the others are in the audit log.` : "";
    redraw(this.view, page("Decisions", `Who decided what, and when.${kept}`, agreement(found.agreement), this.bar(), this.table(), this.pages()));
  }

  bar() {
    const choose = (name, label, options) => element("select", { id: `decisions-${name}`, "aria-label": label, onchange: (event) => this.filter(name, event.target.value) },
      options.map(([value, text]) => element("option", { value, selected: value === this.filters[name] }, text)));
    return element("div", { class: "bar-row" },
      element("input", { id: "decisions-q", type: "search", placeholder: "Search post or note  ( / )", "aria-label": "Search post or note", maxlength: 200, value: this.filters.q,
        oninput: (event) => {
          clearTimeout(this.typing);
          this.typing = setTimeout(() => this.filter("q", event.target.value.trim()), 200);
        } }),
      choose("by", "Who", [["", "Everybody"], ...this.found.people.map((name) => [name, name])]),
      choose("did", "What", [["", "All decisions"], ["approve", "Approved"], ["uphold", "Upheld"], ["escalate", "Escalated"]]),
      choose("agreed", "Agreed with the model", [["", "Agreed or not"], ["yes", "Agreed with the model"], ["no", "Disagreed"]]),
      choose("taken_back", "Taken back", [["", "Standing or not"], ["no", "Standing"], ["yes", "Taken back"]]));
  }

  table() {
    const { found } = this;
    if (!found.decisions.length) {
      return found.kept ? empty("Nothing matches", "Change the filters to see other decisions.", "∅")
        : empty("Nobody has decided yet", "What people decide in the tab Review appears here.", "…");
    }
    return table([["When"], ["Who"], ["Post"], ["Decision"], ["The model"], ["Note"], [""]], found.decisions.map((row) => this.row(row)), { label: "Decisions" });
  }

  row(row) {
    const left = row.undo_seconds;
    const undo = row.undone_by ? element("span", { class: "small" }, `taken back by ${row.undone_by} on ${moment(row.undone_at)}${row.undone_note ? `: ${row.undone_note}` : ""}`)
      : row.may_undo ? element("button", { class: "button quiet", type: "button", "data-undo": row.id, "aria-label": `Take back: ${row.id}`, title: left === null ? "You administer: any time" : `For ${age(left)} yet`, onclick: () => this.undo(row) }, "Undo") : "";
    const cell = (label, value, kind = "") => element("td", { class: kind, "data-label": label }, value);
    return element("tr", { class: row.undone_by ? "taken-back" : "", "data-decision": row.id },
      element("td", { "data-label": "When" }, element("time", { datetime: row.at }, moment(row.at))), cell("Who", row.by),
      element("td", { "data-label": "Post", class: "post-id" }, element("button", { class: "button quiet link", type: "button", "data-history": row.id, title: "History", onclick: () => this.history(row) }, row.id)),
      element("td", { "data-label": "Decision" }, element("span", { class: KINDS[row.action] }, DONE[row.action])),
      cell("The model", SAID[row.before] ?? "–"), cell("Note", row.note || "–", "decision-note"), element("td", { class: "number" }, undo));
  }

  pages() {
    const { found } = this;
    if (!this.before.length && !found.next) return null;
    return element("div", { class: "bar-row" }, element("span", { class: "small muted" }, plural(found.matching, "decision")),
      element("span", { class: "push" },
        element("button", { class: "button", type: "button", id: "newer", disabled: !this.before.length, onclick: () => { this.filters.after = this.before.pop(); this.update(); } }, "Newer"),
        element("button", { class: "button", type: "button", id: "older", disabled: !found.next, onclick: () => { this.before.push(this.filters.after); this.filters.after = found.next; this.update(); } }, "Older")));
  }

  async undo(row) {
    const who = row.by === this.session.name ? "your" : `${row.by}'s`;
    const note = await asked(`Take back ${who} decision?`, [
      element("p", { class: "muted" }, `${row.id} was ${DONE[row.action].toLowerCase()} on ${moment(row.at)}. It then waits for a person again.`),
      element("label", { class: "field" }, "Why", element("textarea", { id: "undo-note", maxlength: 4000, rows: 2 })),
    ], "Take back", { value: (dialog) => dialog.querySelector("#undo-note").value.trim(), bad: true });
    if (note === null) return;
    const { id, revision, action, turn } = row;
    await changed(`taking back ${id}`, write("/api/review/undo", { id, revision, action, turn, note }), () => `Taken back: ${id}`);
    await this.update();
  }

  async history(row) {
    const place = element("div", {}, "Loading …");
    const dialog = element("dialog", { class: "wide", id: "history-dialog", "aria-labelledby": "history-title" },
      element("form", { method: "dialog" }, element("h2", { id: "history-title" }, `History of ${row.id}`), place,
        element("div", { class: "dialog-buttons" }, element("button", { class: "button primary", type: "submit" }, "Close"))));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    place.replaceChildren(await historyOf(row.id, CATEGORIES));
  }
}

// What was taken back does not count.
function agreement({ upheld, approved, unsure_upheld: unsureUpheld, unsure_approved: unsureApproved }) {
  const flagged = upheld + approved;
  const unsure = unsureUpheld + unsureApproved;
  const tile = (title, big, text) => element("div", { class: "card" }, element("h3", {}, title), element("div", { class: "big" }, big), element("p", { class: "small muted" }, text));
  return element("section", { class: "agreement", "aria-label": "Agreement with the model" },
    tile("People agreed with the model", flagged ? percent(upheld / flagged) : "–",
      flagged ? `Of ${plural(flagged, "post")} that it flagged, people upheld ${count(upheld)} and approved ${count(approved)}.` : "Nobody has decided about a post that it flagged."),
    tile("The model was not sure", count(unsure),
      unsure ? `Of these posts people upheld ${count(unsureUpheld)} and approved ${count(unsureApproved)}.` : "Nobody has decided about a post that it was not sure about."));
}
