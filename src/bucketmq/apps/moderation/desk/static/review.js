// The review desk: the posts that wait for a person, and deciding about them.
//
// A decision is shown at once as being saved, and the next post comes; the row goes when the server has confirmed it.
// If it could not be saved the row comes back and says so. What was decided last can be taken back for a while.

import { Refused, quietly, read, write } from "/static/api.js";
import { asked, element, empty, toast } from "/static/dom.js";
import { age, count, moment, percent, plural } from "/static/words.js";
import Blur, { warning } from "./blur.js";
import { historyOf } from "./history.js";
import { each } from "./many.js";
import { DONE, OUTCOMES, categoryName, spoken } from "./names.js";

const LOADED_MAX = 500;
const AHEAD = 10;
const OPEN_MILLISECONDS = 150; // who runs through the list does not open every post on the way
const KEPT_MAX = 20; // decisions that can be taken back with a key, one after the other
const DOING = { approve: "Approve", uphold: "Uphold", escalate: "Escalate" };
const KINDS = { approve: "good", uphold: "bad", escalate: "warn" };
const FILTERS = { outcome: "", category: "", q: "", min: "0", max: "1", escalated: "false", sort: "oldest" };

export default class Review {
  constructor(view, session, tell) {
    this.session = session;
    this.tell = tell;
    this.filters = { ...FILTERS };
    this.items = [];
    this.saving = new Map();
    this.settled = 0;
    this.selected = null;
    this.next = null;
    this.generation = -1;
    this.loading = null;
    this.opened = null;
    this.categories = [];
    this.blur = new Blur(session.name);
    this.chosen = new Map(); // id to revision, for deciding about several
    this.said = []; // what was decided here, the last at the end: it can be taken back
    this.root = element("div", { class: "review" }, this.side(), element("section", { class: "review-main", id: "post", "aria-label": "Post" }),
      element("div", { class: "said-bar", id: "said", role: "status" }));
    view.replaceChildren(this.root);
    this.showPost();
  }

  // Inside this part only: an answer that comes when the page shows another part finds its own place still.
  find(id) {
    return this.root.querySelector(`#${CSS.escape(id)}`);
  }

  leave() {
    clearTimeout(this.fading);
    clearTimeout(this.typing);
    clearTimeout(this.opening);
  }

  side() {
    const choose = (name, label, options) => element("select", { id: `filter-${name}`, "aria-label": label,
      onchange: (event) => this.filter(name, event.target.value) },
      options.map(([value, text]) => element("option", { value }, text)));
    const range = (name, label, value) => {
      const shown = element("output", { for: `filter-${name}`, class: "small numbers" }, percent(value));
      return element("label", { class: "range" }, label,
        element("input", { id: `filter-${name}`, type: "range", min: 0, max: 1, step: 0.05, value,
          oninput: (event) => { shown.textContent = percent(Number(event.target.value)); },
          onchange: (event) => this.filter(name, event.target.value) }), shown);
    };
    return element("section", { class: "review-side", "aria-label": "Waiting posts" },
      element("div", { class: "filters" },
        element("input", { id: "search", type: "search", placeholder: "Search text or id  ( / )", "aria-label": "Search text or id", maxlength: 200,
          oninput: (event) => {
            clearTimeout(this.typing);
            this.typing = setTimeout(() => this.filter("q", event.target.value.trim()), 200);
          } }),
        element("div", { class: "filters-row" },
          choose("outcome", "Where it waits", [["", "All waiting"], ["flagged/", "Flagged"], ["needs-review/", "Needs review"]]),
          choose("category", "Category", [["", "Any category"]]),
          choose("sort", "Order", [["oldest", "Oldest first"], ["newest", "Newest first"], ["surest", "Surest first"], ["least-sure", "Least sure first"]])),
        element("div", { class: "filters-row small" }, range("min", "At least", 0), range("max", "At most", 1)),
        element("div", { class: "filters-row small" },
          element("label", { class: "check" },
            element("input", { id: "filter-escalated", type: "checkbox", onchange: (event) => this.filter("escalated", String(event.target.checked)) }), "Escalated"),
          element("label", { class: "check" },
            element("input", { id: "blur", type: "checkbox", checked: this.blur.on, onchange: (event) => this.setBlur(event.target.checked) }), "Blur what may upset"))),
      element("div", { class: "list-head small muted", id: "list-head" }, "Loading …"),
      element("div", { class: "chosen-bar", id: "chosen", role: "group", "aria-label": "Chosen posts", hidden: true }),
      element("ul", { class: "list", id: "list", role: "listbox", "aria-label": "Waiting posts", tabindex: 0 }));
  }

  setBlur(wanted) {
    this.blur.on = wanted;
    this.opened = null;
    this.draw();
    this.showPost();
  }

  filter(name, value) {
    const other = { min: "max", max: "min" }[name];
    // Moving one end past the other moves both.
    if (other && (name === "min") === Number(value) > Number(this.filters[other]) && value !== this.filters[other]) {
      this.filters[other] = value;
      this.find(`filter-${other}`).value = value;
      this.find(`filter-${other}`).nextSibling.textContent = percent(Number(value));
    }
    this.chosen.clear();
    this.filters[name] = value;
    this.selected = null;
    this.root.classList.remove("reading");
    this.reload();
  }

  async reload() {
    const asked = JSON.stringify(this.filters);
    const found = await quietly(read("/api/review/posts", this.filters));
    if (found && asked === JSON.stringify(this.filters)) this.take(found, { replace: true });
  }

  async update() {
    const asked = JSON.stringify(this.filters);
    const settled = this.settled;
    const found = await read("/api/review/posts", this.filters);
    // A list from before a decision would bring back what was decided; the next one comes soon.
    if (asked !== JSON.stringify(this.filters) || settled !== this.settled) return;
    const first = this.generation < 0;
    const changed = found.generation !== this.generation;
    // A list that was loaded further is not pulled away from under its reader.
    if (changed || first) this.take(found, { replace: this.items.length <= found.items.length || this.items.length <= 50 });
    else this.head(found);
  }

  take(found, { replace }) {
    const chosen = this.find("filter-category");
    if (chosen.options.length === 1) chosen.append(...found.categories.map((name) => element("option", { value: name }, categoryName(name))));
    this.categories = found.categories;
    this.now = found.now;
    this.generation = found.generation;
    if (replace) {
      const at = Math.max(0, this.items.findIndex((item) => item.id === this.selected));
      this.items = found.items;
      this.next = found.next;
      if (!this.items.some((item) => item.id === this.selected)) {
        const left = this.items.filter((item) => !this.saving.has(item.id));
        this.select(left[Math.min(at, left.length - 1)]?.id ?? null, { quiet: true });
      }
    }
    this.head(found);
    this.draw();
    this.showPost();
  }

  head(found) {
    for (const name of ["waiting", "matching", "reviewed", "complete", "unread", "left_off", "escalated"]) this[name] = found[name];
    this.drawHead();
  }

  drawHead() {
    this.tell.count(this.waiting);
    const all = this.matching === this.waiting;
    const text = all ? `${plural(this.waiting, "post")} waiting` : `${count(this.matching)} of ${plural(this.waiting, "post")}`;
    const more = [
      this.unread ? `${count(this.unread)} more are being read` : "",
      this.left_off ? `${count(this.left_off)} more come later` : "",
      this.escalated ? `${count(this.escalated)} escalated` : "",
    ].filter(Boolean);
    this.find("list-head").replaceChildren(element("span", {}, [text, ...more].join(" · ")),
      this.session.can("review") && this.matching > 1 && !this.chosen.size
        ? element("button", { class: "button quiet", type: "button", id: "choose-all", onclick: () => this.chooseAll() }, `Choose all ${count(this.matching)}`) : "");
    this.drawChosen();
  }

  // Those that were chosen, and what can be done with all of them.
  drawChosen() {
    const bar = this.find("chosen");
    const many = this.chosen.size;
    bar.hidden = many === 0;
    if (!many) { bar.replaceChildren(); return; }
    const button = (action) => element("button", { class: `button ${KINDS[action]}`, type: "button", "data-many": action, onclick: () => this.decideMany(action) }, DOING[action]);
    bar.replaceChildren(element("span", { class: "small", role: "status" }, `${plural(many, "post")} chosen`),
      button("approve"), button("uphold"), button("escalate"),
      element("button", { class: "button quiet", type: "button", id: "choose-none", onclick: () => this.choose() }, "Clear"));
  }

  // Without a post: none any more.
  choose(item = null) {
    if (!item) this.chosen.clear();
    else if (!this.chosen.delete(item.id)) this.chosen.set(item.id, item.revision);
    this.draw();
    this.drawHead();
  }

  async chooseAll() {
    const found = await quietly(read("/api/review/matching", this.filters));
    if (!found) return;
    this.chosen = new Map(found.posts.map(({ id, revision }) => [id, revision]));
    if (found.matching > found.posts.length) toast(`${count(found.matching)} match; the first ${count(found.posts.length)} are chosen.`);
    this.draw();
    this.drawHead();
  }

  async decideMany(action) {
    const posts = [...this.chosen].map(([id, revision]) => ({ id, revision }));
    if (!posts.length || !this.session.can("review")) return;
    const title = `${DOING[action]} ${plural(posts.length, "post")}?`;
    const unread = posts.filter(({ id }) => !this.items.some((item) => item.id === id)).length;
    const note = await asked(title, [
      element("p", { class: "muted" }, `Each is decided under your name${unread ? `; ${plural(unread, "of them is", "of them are")} not in the list that you see` : ""}.`),
      element("label", { class: "field" }, "Note for all of them", element("textarea", { id: "many-note", maxlength: 4000, rows: 2 })),
    ], `${DOING[action]} ${count(posts.length)}`, { value: (dialog) => dialog.querySelector("#many-note").value.trim(), bad: action === "uphold" });
    if (note === null) return;
    const results = await each(`${DOING[action]}: ${plural(posts.length, "post")}`, posts,
      async (batch) => (await write("/api/review/bulk", { posts: batch, action, note })).results);
    const revisions = new Map(posts.map(({ id, revision }) => [id, revision]));
    const done = results.filter((result) => result.done);
    for (const { id } of done) this.chosen.delete(id);
    this.settled += 1;
    this.remember(done.map(({ id, turn }) => ({ id, revision: revisions.get(id), action, turn })));
    await this.reload();
  }

  // What was just decided, to be taken back; for as long as the server allows it.
  remember(said, seconds = null) {
    if (said.length) this.said = [...this.said, { said, seconds: seconds ?? this.undoSeconds ?? 600, at: Date.now() }].slice(-KEPT_MAX);
    this.drawSaid();
  }

  drawSaid() {
    clearTimeout(this.fading);
    this.said = this.said.filter(({ at, seconds }) => Date.now() - at < seconds * 1000);
    const last = this.said.at(-1);
    if (!last) { this.find("said").replaceChildren(); return; }
    const [{ id, action }] = last.said;
    const what = last.said.length === 1 ? id : plural(last.said.length, "post");
    this.find("said").replaceChildren(element("span", { class: "small said-what" }, `${DONE[action]}: ${what}`),
      element("button", { class: "button quiet", type: "button", id: "undo", onclick: () => this.undo() }, "Undo", element("kbd", { "aria-hidden": "true" }, "z")));
    this.fading = setTimeout(() => this.drawSaid(), Math.min(2 ** 30, last.seconds * 1000 - (Date.now() - last.at) + 50));
  }

  async undo() {
    const last = this.said.pop();
    if (!last) return;
    this.drawSaid();
    const back = async (batch) => {
      const results = [];
      for (const said of batch) {
        try {
          await write("/api/review/undo", said);
          results.push({ id: said.id, done: true });
        } catch (error) {
          results.push({ id: said.id, done: false, sure: error instanceof Refused, error: error.message });
        }
      }
      return results;
    };
    if (last.said.length > 1) {
      await each(`Taking back: ${plural(last.said.length, "post")}`, last.said, back, { some: 5 });
    } else {
      const [result] = await back(last.said);
      if (result.done) toast(`Taken back: ${result.id}`);
      else toast(result.sure ? `${result.id} was not taken back: ${result.error}` : `It is not sure that ${result.id} was taken back: ${result.error}. Try again when the server is back.`, { bad: true });
      if (!result.done && !result.sure) { this.said.push(last); this.drawSaid(); return; }
    }
    this.settled += 1;
    await this.reload();
    if (this.items.some((item) => item.id === last.said[0].id)) this.select(last.said[0].id);
  }

  async more() {
    if (!this.next || this.loading || this.items.length >= LOADED_MAX) return;
    this.loading = quietly(read("/api/review/posts", { ...this.filters, after: this.next }));
    const asked = JSON.stringify(this.filters);
    const found = await this.loading;
    this.loading = null;
    if (!found || asked !== JSON.stringify(this.filters)) return;
    const have = new Set(this.items.map((item) => item.id));
    this.items.push(...found.items.filter((item) => !have.has(item.id)));
    this.next = found.next;
    this.draw();
  }

  draw() {
    const list = this.find("list");
    const top = list.scrollTop;
    const rows = this.items.map((item) => this.row(item));
    if (!rows.length) {
      const filtered = JSON.stringify({ ...this.filters, sort: "" }) !== JSON.stringify({ ...FILTERS, sort: "" });
      rows.push(element("li", {}, filtered
        ? empty("Nothing matches", "Other posts may wait: change the filters to see them.", "∅")
        : this.unread || !this.complete ? empty("Reading …", this.unread ? `${plural(this.unread, "post")} to go.` : "The bucket is being listed.", "…")
        : empty("Nothing waits", this.reviewed ? `People decided about ${plural(this.reviewed, "post")} so far.` : "Posts that a person should look at appear here.")));
    } else if (this.next && this.items.length < LOADED_MAX) {
      rows.push(element("li", { class: "more" }, element("button", { class: "button quiet", type: "button", id: "more", onclick: () => this.more() }, "Show more")));
    } else if (this.next) {
      rows.push(element("li", { class: "more small muted" }, "More wait. They come as you decide about these; or use the filters."));
    }
    list.replaceChildren(...rows);
    list.scrollTop = top;
    list.setAttribute("aria-activedescendant", this.selected === null ? "" : rowId(this.selected));
  }

  row(item) {
    const saving = this.saving.get(item.id);
    const top = [...item.categories].sort((a, b) => b.flagged - a.flagged || b.confidence - a.confidence)[0];
    const covered = this.blur.covers(item);
    const chosen = this.chosen.has(item.id);
    return element("li", { class: ["row", saving && "saving", chosen && "chosen"].filter(Boolean).join(" "), role: "option", id: rowId(item.id), "data-id": item.id,
      "aria-selected": String(item.id === this.selected), "aria-checked": this.session.can("review") ? String(chosen) : null,
      onclick: () => this.select(item.id, { reading: true }) },
      covered ? element("span", { class: "spoken-only" }, warning(item)) : null,
      element("div", { class: covered ? "row-text blurred" : "row-text", "aria-hidden": covered ? "true" : null }, item.text.slice(0, 300) || "(no text)"),
      element("div", { class: "row-foot" },
        this.session.can("review") ? element("span", { class: "pick", "aria-hidden": "true", title: "Choose (x)", onclick: (event) => { event.stopPropagation(); this.choose(item); } }) : null,
        element("span", { class: item.outcome === "flagged/" ? "chip bad" : "chip warn" }, OUTCOMES[item.outcome]),
        top ? element("span", { class: "chip" }, `${categoryName(top.name)} ${percent(top.confidence)}`) : null,
        item.escalated ? element("span", { class: "chip accent" }, "escalated") : null,
        item.has_media ? element("span", { class: "chip" }, "image") : null,
        element("span", { class: "row-age" }, saving ? "saving …" : age(this.now - item.stored_at))));
  }

  select(id, { quiet = false, reading = false } = {}) {
    this.selected = id;
    if (id === null) this.root?.classList.remove("reading");
    if (reading) this.root.classList.add("reading");
    if (quiet) return;
    for (const row of this.find("list").querySelectorAll("[role=option]")) row.setAttribute("aria-selected", String(row.dataset.id === id));
    this.find("list").setAttribute("aria-activedescendant", id === null ? "" : rowId(id));
    this.find(id === null ? "list" : rowId(id))?.scrollIntoView({ block: "nearest" });
    this.showPost();
    const at = this.items.findIndex((item) => item.id === id);
    if (at >= this.items.length - AHEAD) this.more();
  }

  step(by) {
    const open = this.items.filter((item) => !this.saving.has(item.id));
    if (!open.length) return;
    const at = open.findIndex((item) => item.id === this.selected);
    const next = open[Math.max(0, Math.min(open.length - 1, at < 0 ? 0 : at + by))];
    this.select(next.id);
  }

  item() {
    return this.items.find((item) => item.id === this.selected && !this.saving.has(item.id)) ?? null;
  }

  showPost() {
    const main = this.root.querySelector("#post");
    const item = this.item();
    if (!item) {
      this.opened = null;
      main.replaceChildren(this.generation < 0 ? "" : this.waiting === 0 ? element("p", { class: "empty" }, "When a post waits for a person it appears here by itself.") : empty("No post is open", "Choose one from the list, or press j.", "…"));
      return;
    }
    // What is open is not drawn again under the reader's eyes unless it changed.
    const mark = JSON.stringify([item.id, item.revision, item.outcome, item.escalated]);
    if (this.opened === mark) return;
    this.opened = mark;
    main.replaceChildren(this.post(item), ...(this.session.can("review") ? [this.decision()] : []));
    clearTimeout(this.opening);
    this.opening = setTimeout(() => this.readWhole(item, mark), OPEN_MILLISECONDS);
  }

  async readWhole(item, mark) {
    const whole = await quietly(read("/api/review/post", { id: item.id }));
    if (!whole || this.opened !== mark) return;
    this.whole = whole;
    this.find("post-text").textContent = whole.text;
    this.find("why").textContent = spoken(whole.decision?.reason ?? "", this.categories) || "nothing is noted";
    if (whole.escalation && this.find("escalation")) {
      const { reviewer, at, note } = whole.escalation;
      this.find("escalation").textContent = `${reviewer} escalated it on ${moment(at)}${note ? `: ${note}` : ""}`;
    }
  }

  post(item) {
    const facts = [["Model", item.model || "unknown"], ["Version", item.revision], ["Accepted", moment(item.created_at)],
      ["Waiting for", age(this.now - item.stored_at)]];
    return element("div", { class: "post-scroll" }, element("article", { class: "post" },
      element("div", { class: "post-head" },
        element("button", { class: "button quiet back", type: "button", onclick: () => this.root.classList.remove("reading") }, "← List"),
        element("h1", {}, item.id),
        element("span", { class: item.outcome === "flagged/" ? "chip bad" : "chip warn" }, OUTCOMES[item.outcome]),
        item.escalated ? element("span", { class: "chip accent" }, "escalated") : null),
      item.doubt ? element("p", { class: "doubt" }, element("strong", {}, "Why a person should look: "), spoken(item.doubt, this.categories)) : null,
      item.escalated ? element("p", { class: "doubt", id: "escalation" }, "Somebody asked for another pair of eyes.") : null,
      this.text(item),
      item.has_media ? this.image(item) : null,
      element("div", { class: "post-columns" },
        element("section", { class: "card post-card" }, element("h3", {}, "What the classifier says"), this.bars(item),
          item.rationale ? element("p", { class: "small" }, spoken(item.rationale, this.categories)) : null),
        element("section", { class: "card post-card" }, element("h3", {}, "About it"),
          element("dl", { class: "facts small" }, facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
            element("dt", {}, "Waits because"), element("dd", { id: "why" }, "…")))),
      element("details", { class: "card post-card", id: "history", ontoggle: (event) => { if (event.target.open) this.readHistory(item); } },
        element("summary", {}, "History", element("kbd", { "aria-hidden": "true" }, "h")), element("div", { id: "history-place" }, "Loading …"))));
  }

  async readHistory(item) {
    const place = this.find("history-place");
    place.replaceChildren(await historyOf(item.id, this.categories));
  }

  // The text, or first a warning: who listens to the page hears that, and not the text.
  text(item) {
    const covered = this.blur.covers(item);
    const warned = this.blur.on && warning(item) !== null;
    return element("section", { class: "card post-card", "aria-label": "Text" }, element("h3", {}, "Text"),
      warned ? element("div", { class: "cover" }, element("p", { class: "small", id: "warning" }, `${warning(item)}.`),
        element("button", { class: "button", type: "button", id: "show-text", "aria-pressed": String(!covered), "aria-describedby": "warning",
          onclick: () => this.reveal(item) }, covered ? "Show the text" : "Blur the text", element("kbd", { "aria-hidden": "true" }, "b"))) : null,
      element("div", { class: covered ? "post-text blurred" : "post-text", id: "post-text", "aria-hidden": covered ? "true" : null, inert: covered }, this.whole?.id === item.id && this.whole.revision === item.revision ? this.whole.text : item.text));
  }

  reveal(item) {
    if (!this.blur.on || warning(item) === null) return;
    this.blur.toggle(item);
    const focused = document.activeElement?.id === "show-text";
    this.find("post-text").closest("section").replaceWith(this.text(item));
    if (focused) this.find("show-text").focus();
    this.draw();
  }

  bars(item) {
    if (!item.categories.length) return element("p", { class: "muted" }, "Nothing: it could not judge this post.");
    return element("div", { class: "bars" }, item.categories.flatMap((each) => {
      const inner = element("i");
      inner.style.width = `${Math.max(0, Math.min(1, each.confidence)) * 100}%`;
      const flagged = each.flagged ? " flagged" : "";
      return [element("span", { class: `bar-name small${flagged}` }, categoryName(each.name)),
        element("div", { class: `bar${flagged}`, role: "img", "aria-label": `${percent(each.confidence)}${each.flagged ? ", a violation" : ""}` }, inner),
        element("span", { class: "bar-value small numbers" }, percent(each.confidence))];
    }));
  }

  image(item) {
    const picture = element("img", { alt: "The image of the post", hidden: true });
    const veil = element("span", {}, this.blur.on ? "Load the image, blurred" : "Load the image");
    const hint = element("small", { class: "muted" }, "It is fetched by the server, not by your browser.");
    const box = element("button", { class: "image-box", id: "image", type: "button", "aria-label": "Image: load, show or blur", onclick: () => {
      if (!picture.hidden) { box.classList.toggle("shown"); return; }
      if (box.dataset.asked) return;
      box.dataset.asked = "yes";
      veil.textContent = "Fetching …";
      loadImage(picture, item).then(() => {
        picture.hidden = false;
        box.classList.toggle("shown", !this.blur.on);
        veil.textContent = "Click to show";
        hint.remove();
      }, (error) => {
        delete box.dataset.asked;
        veil.textContent = "There is no image to show";
        hint.textContent = `${error.message}. Click to try again.`;
      });
    } }, picture, element("div", { class: "veil" }, veil, hint));
    return element("section", { class: "card post-card" }, element("h3", {}, "Image"), box);
  }

  decision() {
    const button = (action, kind, text, key) => element("button", { class: `button ${kind}`, type: "button", id: `do-${action}`, onclick: () => this.decide(action) }, text, element("kbd", { "aria-hidden": "true" }, key));
    return element("div", { class: "decide" }, element("div", { class: "decide-in" },
      element("textarea", { id: "note", placeholder: "Note for this decision  ( n )", "aria-label": "Note for this decision", maxlength: 4000, rows: 1 }),
      button("approve", "good", "Approve", "a"), button("uphold", "bad", "Uphold", "u"), button("escalate", "warn", "Escalate", "e")));
  }

  async decide(action) {
    const item = this.item();
    if (!item || !this.session.can("review")) return;
    const note = this.find("note")?.value.trim() ?? "";
    this.saving.set(item.id, action);
    const open = this.items.filter((each) => !this.saving.has(each.id));
    const at = this.items.indexOf(item);
    const next = open.find((each) => this.items.indexOf(each) > at) ?? open[open.length - 1] ?? null;
    this.draw();
    this.select(next?.id ?? null);
    try {
      const said = await write("/api/review/decide", { id: item.id, revision: item.revision, action, note });
      this.undoSeconds = said.undo_seconds;
      this.remember([{ id: item.id, revision: item.revision, action, turn: said.turn }]);
      this.settle(item, action === "escalate" ? { ...item, escalated: true } : null);
    } catch (error) {
      const refused = error instanceof Refused;
      if (refused && error.status === 409) {
        const { why, reviewer, at: when, action: did } = error.body;
        toast(why === "superseded" ? error.body.text : `Too late for ${item.id}: ${reviewer} ${(DONE[did] ?? did).toLowerCase()} it on ${moment(when)}. Your decision was not saved.`, { bad: true });
        this.settle(item, why === "decided" ? null : item);
      } else {
        // Without an answer nobody knows; saying the same again finds out and does no harm.
        toast(refused ? `${item.id} was not saved: ${error.message}.`
          : `It is not sure that ${item.id} was saved: ${error.message}. It is in the list again; decide again when the server is back.`, { bad: true });
        this.settle(item, item);
        this.select(item.id);
        if (this.find("note") && note) this.find("note").value = note;
      }
    }
  }

  settle(item, after) {
    this.saving.delete(item.id);
    this.chosen.delete(item.id);
    this.settled += 1;
    if (!after) {
      this.waiting -= 1;
      this.reviewed += 1;
      this.matching -= 1;
      this.drawHead();
    }
    const at = this.items.findIndex((each) => each.id === item.id);
    if (at >= 0) this.items.splice(at, 1, ...(after ? [after] : []));
    if (this.selected === null || !this.items.some((each) => each.id === this.selected)) this.selected = this.items.find((each) => !this.saving.has(each.id))?.id ?? null;
    this.draw();
    this.showPost();
    if (this.items.length < AHEAD) this.more();
  }

  key(event) {
    const keys = {
      j: () => this.step(1), ArrowDown: () => this.step(1), k: () => this.step(-1), ArrowUp: () => this.step(-1),
      a: () => this.decide("approve"), u: () => this.decide("uphold"), e: () => this.decide("escalate"), z: () => this.undo(),
      x: () => { if (this.item() && this.session.can("review")) this.choose(this.item()); },
      b: () => { if (this.item()) this.reveal(this.item()); },
      h: () => { const found = this.find("history"); if (found) { found.open = !found.open; found.scrollIntoView({ block: "nearest" }); } },
      n: () => this.find("note")?.focus(), i: () => this.find("image")?.click(), "/": () => { this.root.classList.remove("reading"); this.find("search").focus(); },
      Enter: () => this.root.classList.add("reading"), Escape: () => this.root.classList.remove("reading"),
    };
    if (event.key === "Enter" && event.target.closest("button, a, summary")) return false;
    if (!(event.key in keys) || (event.repeat && "auezx".includes(event.key))) return false;
    keys[event.key]();
    return true;
  }
}

function rowId(id) {
  return `post-${encodeURIComponent(id)}`;
}

// The image by way of our own server. Why it cannot be shown is in the answer's body, which an <img> does not tell.
async function loadImage(picture, item) {
  const source = `/api/review/image?${new URLSearchParams({ id: item.id, revision: item.revision })}`;
  const loaded = new Promise((resolve, reject) => { picture.onload = resolve; picture.onerror = () => reject(new Error("the image could not be loaded")); });
  const answer = await read("/api/review/image/state", { id: item.id });
  if (!answer.there) throw new Error(answer.why);
  picture.src = source;
  await loaded;
}
