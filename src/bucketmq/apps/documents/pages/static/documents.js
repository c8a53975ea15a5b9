// Documents: a search, its hits with their places, and the graph around a name. Texts of documents go in as text only.

import { read, quietly } from "/static/api.js";
import { drawing, element, empty } from "/static/dom.js";
import { count, moment } from "/static/words.js";

const WAIT = 250;
const NAME_MAX = 22;
const NARROW = 900;

export default class Documents {
  constructor(view, session, tell) {
    this.query = "";
    this.current = -1;
    this.hits = [];
    this.field = element("input", { id: "doc-query", type: "search", placeholder: "Search the documents", "aria-label": "Search the documents", autocomplete: "off", oninput: () => this.typed() });
    this.about = element("p", { class: "muted small", "aria-live": "polite" });
    this.list = element("ol", { class: "doc-hits", id: "doc-hits" });
    this.side = element("aside", { class: "doc-side card", id: "doc-side", "aria-label": "The graph", hidden: true });
    this.failures = element("div");
    view.replaceChildren(element("div", { class: "page" },
      element("div", { class: "page-head" }, element("h1", {}, "Documents"), this.about),
      element("form", { class: "doc-search", role: "search", onsubmit: (event) => { event.preventDefault(); this.search(); } }, this.field, element("button", { class: "button primary", type: "submit" }, "Search")),
      element("div", { class: "doc-grid" }, this.list, this.side), this.failures));
  }

  async update() {
    const found = await quietly(read("/api/documents/overview"));
    if (!found) return;
    this.about.textContent = found.chunks
      ? `${count(found.documents)} documents, ${count(found.chunks)} passages, by ${found.encoder === "none" ? "words alone" : `words and meaning (${found.encoder})`}.`
      : "Nothing is indexed yet: put documents below docs/.";
    this.failures.replaceChildren(failures(found.failures));
    if (this.version !== found.version) {
      this.version = found.version;
      if (this.query) await this.search();
      else this.begin(found);
    }
  }

  begin(found) {
    this.hits = [];
    this.current = -1;
    this.list.replaceChildren(element("li", {}, found.chunks
      ? element("div", { class: "card doc-hit" }, element("h3", {}, "Most is about"), this.names(found.entities))
      : empty("No documents yet", "PDF, HTML, Markdown, text, DOCX, PPTX and scans below docs/ appear here.", "∅")));
  }

  names(nodes) {
    return element("div", { class: "doc-names" }, nodes.map((each) =>
      element("button", { type: "button", title: each.aliases.join(", "), onclick: () => this.show(each.name) }, each.name)));
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.search(), WAIT);
  }

  async search() {
    clearTimeout(this.timer);
    const query = this.field.value.trim();
    this.query = query;
    if (!query) { this.version = undefined; await this.update(); return; }
    const found = await quietly(read("/api/documents/search", { q: query }));
    if (!found || this.query !== query) return;
    this.hits = found.hits;
    this.current = -1;
    this.list.replaceChildren(...(found.hits.length ? found.hits.map((hit, at) => this.hit(hit, at)) : [element("li", {}, empty("Nothing found", "No passage has these words.", "∅"))]));
  }

  hit({ place, marks, score, bm25, cosine, also }, at) {
    const where = [...new Set([place.page ? `page ${place.page}` : "", place.heading, place.title])].filter(Boolean).join(" · ");
    const scores = `words ${bm25.toFixed(2)}${cosine === null ? "" : `, meaning ${cosine.toFixed(2)}`}`;
    return element("li", { class: "card doc-hit", "data-at": at },
      element("div", { class: "source" },
        element("button", { type: "button", onclick: () => this.open(at) }, place.id),
        element("span", { class: "muted small numbers", title: scores }, score.toFixed(2))),
      where ? element("p", { class: "muted small" }, where) : null,
      element("div", { class: "text" }, marked(place.text, marks)),
      also.length ? element("p", { class: "muted small" }, `The same in ${also.join(", ")}`) : null,
      element("div", { class: "more" }));
  }

  async open(at) {
    this.choose(at);
    const shown = this.list.children[at];
    shown.classList.toggle("open");
    const more = shown.querySelector(".more");
    if (!shown.classList.contains("open")) { more.replaceChildren(); return; }
    const found = await quietly(read("/api/documents/why", { chunk: this.hits[at].place.id, q: this.query }));
    if (!found) return;
    this.hits[at].entities = found.entities;
    more.replaceChildren(
      element("p", { class: "muted small" }, `Characters ${count(found.place.start)} to ${count(found.place.stop)} of the text, written ${moment(found.place.at)}.`),
      this.names(found.entities));
  }

  choose(at) {
    this.current = at;
    for (const each of this.list.children) each.classList.toggle("current", Number(each.dataset.at) === at);
    this.list.children[at]?.scrollIntoView({ block: "nearest" });
  }

  async show(name) {
    const found = await quietly(read("/api/documents/graph", { name }));
    if (!found) return;
    this.side.hidden = false;
    if (window.innerWidth <= NARROW) this.side.scrollIntoView({ block: "start" });
    this.side.replaceChildren(
      element("h2", {}, found.node.name),
      element("p", { class: "muted small" }, [`${found.node.kind}, in ${count(found.node.chunks.length)} passages`, found.node.aliases.length > 1 ? `, also written ${found.node.aliases.filter((each) => each !== found.node.name).join(", ")}` : ""]),
      picture(found, (other) => this.show(other)),
      element("ul", { class: "doc-edges" }, found.edges.filter((each) => each.relation !== "with").map((each) =>
        element("li", { class: "small" }, `${each.subject} ${each.relation} ${each.object} `, element("span", { class: "muted" }, each.chunks.slice(0, 3).join(", ")),
          each.quotes.length ? element("q", { class: "muted" }, each.quotes[0].quote) : null))));
  }

  key(event) {
    if (event.key === "/") { event.preventDefault(); this.field.focus(); return; }
    if (!this.hits.length) return;
    if (event.key === "j") this.choose(Math.min(this.hits.length - 1, this.current + 1));
    else if (event.key === "k") this.choose(Math.max(0, this.current - 1));
    else if (event.key === "Enter" && this.current >= 0 && !(event.target instanceof HTMLButtonElement)) this.open(this.current);
    else if (event.key === "g" && this.current >= 0) this.first(this.current);
  }

  async first(at) {
    const found = this.hits[at].entities ? { entities: this.hits[at].entities } : await quietly(read("/api/documents/why", { chunk: this.hits[at].place.id }));
    if (found?.entities.length) await this.show(found.entities[0].name);
  }

  leave() {
    clearTimeout(this.timer);
  }
}

// Offsets count characters as Python does, not the halves that JavaScript has of some.
function marked(text, marks) {
  const letters = Array.from(text);
  const parts = [];
  let at = 0;
  for (const [start, stop] of marks) {
    if (start < at) continue;
    parts.push(letters.slice(at, start).join(""), element("mark", {}, letters.slice(start, stop).join("")));
    at = stop;
  }
  return [...parts, letters.slice(at).join("")];
}

function short(name) {
  return name.length > NAME_MAX ? `${name.slice(0, NAME_MAX - 1)}…` : name;
}

// The name in the middle, its neighbours around it; what is said of two stands on their line.
function picture({ node, neighbours, edges }, show) {
  const middle = [200, 190];
  const places = new Map([[node.name, middle]]);
  neighbours.forEach((each, at) => {
    const angle = (2 * Math.PI * at) / neighbours.length - Math.PI / 2;
    const far = at % 2 && neighbours.length > 6 ? 0.72 : 1;
    places.set(each.name, [middle[0] + 140 * far * Math.cos(angle), middle[1] + 155 * far * Math.sin(angle)]);
  });
  const own = edges.filter((each) => each.subject === node.name || each.object === node.name);
  const lines = own.map((each) => {
    const [[ax, ay], [bx, by]] = [places.get(each.subject), places.get(each.object)];
    const told = each.relation !== "with";
    return drawing("g", {},
      drawing("line", { class: told ? "told" : "", x1: ax, y1: ay, x2: bx, y2: by }, drawing("title", {}, `${each.subject} ${each.relation} ${each.object}: ${each.chunks.join(", ")}`)),
      told ? drawing("text", { class: "said", x: (ax + bx) / 2, y: (ay + by) / 2 - 3 }, short(each.relation)) : null);
  });
  const nodes = [node, ...neighbours].map((each) => {
    const [x, y] = places.get(each.name);
    const isOwn = each.name === node.name;
    const go = () => show(each.name);
    return drawing("g", { class: isOwn ? "node own" : "node", tabindex: isOwn ? null : 0, role: isOwn ? null : "button", "aria-label": isOwn ? null : `Show ${each.name}`, onclick: isOwn ? null : go,
      onkeydown: isOwn ? null : (event) => { if (event.key === "Enter") { event.stopPropagation(); go(); } } },
      drawing("circle", { cx: x, cy: y, r: isOwn ? 11 : 5 + Math.min(5, each.chunks.length) }),
      isOwn ? null : drawing("text", { x: Math.max(52, Math.min(348, x)), y: y + (y < middle[1] ? -13 : 22) }, short(each.name), drawing("title", {}, each.name)));
  });
  return drawing("svg", { class: "doc-graph", viewBox: "0 0 400 390", role: "group", "aria-label": `What is said around ${node.name}` }, lines, nodes);
}

function failures(found) {
  if (!found.length) return "";
  return element("section", { class: "card doc-failures", "aria-label": "Not indexed" },
    element("h3", {}, `${count(found.length)} could not be indexed`),
    element("ul", { class: "doc-edges" }, found.map((each) => element("li", { class: "small" }, element("code", {}, each.key), ` ${each.reason}`))));
}
