// Images: a contact sheet, and one image with what its stages said. What is flagged is blurred until somebody looks.

import { changed, quietly, read, write } from "/static/api.js";
import { element, empty, loading, page } from "/static/dom.js";
import { count, percent, plural } from "/static/words.js";

const LOADED_MAX = 1000;
const VERDICTS = { fine: ["fine", "chip good"], flagged: ["flagged", "chip bad"], unsure: ["unsure", "chip warn"], unknown: ["not judged: unreadable for the model", "chip warn"] };
const CHOICES = [["", "All verdicts"], ["flagged", "Flagged"], ["unsure", "Unsure"], ["fine", "Fine"], ["unknown", "Could not be judged"], ["unjudged", "Not judged yet"]];
const STAGES = { thumbnails: "Thumbnails", policy: "Policy", text: "Text", alt: "Alternative text" };

export default class Images {
  constructor(view, session, tell) {
    this.view = view;
    this.session = session;
    this.tell = tell;
    this.filters = { verdict: "", q: "" };
    this.items = [];
    this.next = null;
    this.generation = -1;
    this.open = null;
    this.shown = new Set();
    this.asked = 0;
    this.grid = element("ul", { class: "sheet", id: "sheet", "aria-label": "Images" });
    this.head = element("p", { class: "small muted", id: "sheet-head", role: "status" }, "Loading …");
    this.foot = element("div", { class: "sheet-foot" });
    this.detail = element("dialog", { class: "image-detail", id: "image-detail", "aria-label": "Image", onclose: () => this.closed(), onkeydown: (event) => this.keyInside(event) });
    view.replaceChildren(page("Images", "What lies below raw/, with what each stage made of it.",
      element("div", { class: "bar-row" },
        element("select", { id: "images-verdict", "aria-label": "Verdict", onchange: (event) => this.filter("verdict", event.target.value) },
          CHOICES.map(([value, text]) => element("option", { value }, text))),
        element("input", { type: "search", id: "images-search", maxlength: 200, placeholder: "Part of a key or a description  ( / )", "aria-label": "Search images",
          oninput: (event) => { clearTimeout(this.typing); this.typing = setTimeout(() => this.filter("q", event.target.value.trim()), 200); } })),
      this.head, this.grid, this.foot), this.detail);
  }

  leave() {
    clearTimeout(this.typing);
    if (this.detail.open) this.detail.close();
  }

  filter(name, value) {
    this.filters[name] = value;
    this.generation = -1;
    quietly(this.update());
  }

  async update() {
    const asked = ++this.asked;
    const wanted = Math.max(60, Math.min(200, this.items.length));
    const found = await read("/api/images/sheet", { ...this.filters, limit: wanted });
    if (asked !== this.asked) return;
    this.tell.count((found.verdicts.flagged ?? 0) + (found.verdicts.unsure ?? 0));
    if (found.generation === this.generation) return;
    this.generation = found.generation;
    this.items = found.items;
    this.next = found.next;
    this.found = found;
    this.draw();
    if (this.open && this.detail.open) await this.load(this.open);
  }

  async more() {
    const found = await quietly(read("/api/images/sheet", { ...this.filters, after: this.next, limit: 60 }));
    if (!found) return;
    const first = this.items.length;
    this.items = [...this.items, ...found.items];
    this.next = found.next;
    this.draw();
    this.grid.children[first]?.querySelector("button").focus();
  }

  draw() {
    const { total, matching, verdicts } = this.found;
    const all = matching === total;
    const more = [verdicts.flagged ? `${count(verdicts.flagged)} flagged` : "", verdicts.unsure ? `${count(verdicts.unsure)} unsure` : "", verdicts.unjudged ? `${count(verdicts.unjudged)} not judged yet` : ""].filter(Boolean);
    this.head.textContent = [all ? plural(total, "image") : `${count(matching)} of ${plural(total, "image")}`, ...more].join(" · ");
    const focused = document.activeElement?.dataset?.key;
    this.grid.replaceChildren(...this.items.map((item) => this.tile(item)));
    if (focused) this.grid.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    this.foot.replaceChildren();
    if (!this.items.length) this.foot.append(total ? empty("Nothing matches", "Other images are there: change the filters to see them.", "∅") : empty("No images yet", "Put some below raw/ while the application runs.", "…"));
    else if (this.next && this.items.length < LOADED_MAX) this.foot.append(element("button", { class: "button", type: "button", id: "images-more", onclick: () => this.more() }, "Show more"));
    else if (this.next) this.foot.append(element("p", { class: "small muted" }, "More images are there: use the filters to find them."));
  }

  tile(item) {
    return element("li", {}, element("button", { class: "tile card", type: "button", "data-key": item.key, onclick: () => this.show(item.key) },
      this.picture(item, 256),
      element("span", { class: "tile-name small", title: item.key }, item.key.slice(4)),
      element("span", { class: "tile-foot" }, verdict(item), item.complete ? null : element("span", { class: "chip", title: "A stage has not finished with this version, or could not read it." }, "in progress"),
        item.animated ? element("span", { class: "chip" }, "moves") : null)));
  }

  picture(item, size) {
    if (!item.thumbnails_version) return element("span", { class: "frame none" }, element("span", { class: "small muted" }, "no thumbnail yet"));
    const hidden = item.blurred && !this.shown.has(item.key);
    const source = new URLSearchParams({ key: item.key, size, v: item.thumbnails_version });
    return element("span", { class: hidden ? "frame blurred" : "frame" },
      element("img", { src: `/api/images/thumb?${source}`, alt: item.alt ?? "An image", loading: "lazy", decoding: "async" }));
  }

  async show(key) {
    this.open = key;
    this.detail.replaceChildren(element("p", { class: "muted" }, "Loading …"));
    if (!this.detail.open) this.detail.showModal();
    await this.load(key);
  }

  async load(key) {
    const row = await quietly(read("/api/images/image", { key }));
    if (this.open !== key) return;
    if (!row) {
      this.detail.close();
      return;
    }
    this.row = row;
    const focused = document.activeElement?.id;
    this.drawDetail();
    (this.detail.querySelector(`#${CSS.escape(focused || "image-close")}`) ?? this.detail.querySelector("#image-close")).focus();
  }

  drawDetail() {
    const row = this.row;
    const hidden = row.blurred && !this.shown.has(row.key);
    const sizes = (row.thumbs ?? []).map((each) => `${each.width} × ${each.height}`);
    const facts = [["Size", row.width ? `${count(row.width)} × ${count(row.height)}, ${row.format}${row.frames > 1 ? `, ${plural(row.frames, row.format === "tiff" ? "page" : "frame")}` : ""}` : "not known yet"],
      ["Thumbnails", sizes.length ? [...new Set(sizes)].join(" · ") : "none yet"],
      ["Kind", row.kind ?? "not known yet"], ["Colours", (row.colours ?? []).join(", ") || "–"],
      ["Verdict", row.verdict ? `${row.verdict}${row.score === null ? "" : ` (${percent(row.score)})`}${row.reason ? `: ${row.reason}` : ""}` : "not judged yet"],
      ["Judged by", row.policy_model ?? "–"]];
    this.detail.replaceChildren(element("div", { class: "detail-head" }, element("h2", {}, row.key), verdict(row),
      element("button", { class: "button quiet push", type: "button", id: "image-close", onclick: () => this.detail.close() }, "Close")),
      element("button", { class: hidden ? "detail-picture veiled" : "detail-picture", type: "button", id: "image-reveal", disabled: !row.blurred, "aria-label": row.blurred ? (hidden ? "Show the image" : "Blur the image") : "The image", onclick: () => this.reveal() },
        this.picture(row, 800), hidden ? element("span", { class: "veil" }, element("span", {}, `${row.verdict === "fine" ? "another version was judged" : (row.verdict ?? "not judged yet")} – click to show`)) : null),
      element("section", {}, element("h3", {}, "Alternative text"), element("p", { id: "image-alt" }, row.alt ?? "not written yet"),
        row.alt ? element("p", { class: "small muted" }, row.alt_source === "claude" ? `a sentence of ${row.alt_model}` : row.kind === "unknown" ? "what kind of image it is could not be told for sure" : `composed from what was measured · confidence ${percent(row.confidence)}`) : null),
      element("section", {}, element("h3", {}, "Text in it"), row.text ? element("pre", { id: "image-text", tabindex: 0 }, row.text) : element("p", { class: "muted" }, row.text === null ? "not read yet" : "none"),
        row.text_unsure ? element("p", { class: "small muted" }, "There is more that could not be read for sure.") : null),
      element("section", {}, element("h3", {}, "About it"), element("dl", { class: "facts small" }, facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]))),
      element("section", {}, element("h3", {}, "Stages"),
        element("ul", { class: "stages" }, row.stages.map((each) => element("li", {}, element("span", {}, STAGES[each.stage]),
          element("span", { class: each.current ? "chip good" : "chip warn" }, each.current ? "of this version" : each.version ? "of an older version" : "not yet"),
          this.session.can("operate") ? element("button", { class: "button push", type: "button", "data-again": each.stage, onclick: () => this.again(each.stage) }, "Run again") : null))),
        this.session.can("operate") ? element("button", { class: "button", type: "button", "data-again": "", onclick: () => this.again("") }, "Run all stages again") : null));
  }

  reveal() {
    if (!this.row?.blurred) return;
    if (!this.shown.delete(this.row.key)) this.shown.add(this.row.key);
    this.drawDetail();
    this.detail.querySelector("#image-reveal").focus();
    const tile = this.grid.querySelector(`[data-key="${CSS.escape(this.row.key)}"] .frame`);
    tile?.classList.toggle("blurred", !this.shown.has(this.row.key));
  }

  async again(stage) {
    await changed("Run again", write("/api/images/rerun", { key: this.open, stage }), ({ told }) =>
      told ? `Told ${plural(told, "stage")} again; results appear when they are done.` : "Nothing was told: the image is gone.");
  }

  closed() {
    const key = this.open;
    this.open = null;
    this.grid.querySelector(`[data-key="${CSS.escape(key ?? "")}"]`)?.focus();
  }

  key(event) {
    if (event.key === "/") this.view.querySelector("#images-search").focus();
    else if (event.key === "j" || event.key === "k") this.step(event.key === "j" ? 1 : -1);
    else return false;
    return true;
  }

  // The page leaves keys alone while a dialog is open.
  keyInside(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "b") this.reveal();
    else if (event.key === "j" || event.key === "k") this.step(event.key === "j" ? 1 : -1);
    else return;
    event.preventDefault();
  }

  step(by) {
    const tiles = [...this.grid.querySelectorAll("[data-key]")];
    const at = tiles.findIndex((each) => each.dataset.key === (this.open ?? document.activeElement?.dataset?.key));
    const tile = tiles[Math.max(0, Math.min(tiles.length - 1, at + by))];
    if (!tile) return;
    if (this.detail.open) this.show(tile.dataset.key);
    else tile.focus();
  }
}

function verdict(item) {
  const [text, kind] = VERDICTS[item.verdict] ?? ["not judged yet", "chip"];
  return element("span", { class: kind }, text);
}
