// Making elements. Text always goes in as text: nothing here parses HTML.

export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function drawing(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false).map(node));
  return made;
}

function node(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

export function byId(id) {
  return document.getElementById(id);
}

export function empty(title, text, mark = "✓", command = "") {
  return element("div", { class: "empty" },
    element("div", { class: "mark", "aria-hidden": "true" }, mark), element("h2", {}, title), element("p", {}, text), command ? element("code", { class: "command" }, command) : null);
}

export function toast(text, { bad = false, seconds = 4 } = {}) {
  const made = element("div", { class: bad ? "toast bad" : "toast" }, element("p", {}, text));
  made.append(element("button", { class: "button quiet", type: "button", onclick: () => made.remove() }, "Close"));
  const toasts = byId("toasts");
  // Good news follow one another; bad news stay until they are read.
  if (!bad) toasts.querySelector(".toast:not(.bad)")?.remove();
  toasts.append(made);
  while (toasts.children.length > 3) toasts.firstChild.remove();
  if (!bad) setTimeout(() => made.remove(), seconds * 1000);
}

// Ask before something is done; resolves to whether it should be. With `typed`, only after that was typed.
export function confirmed(title, text, action, { typed = null, bad = false } = {}) {
  const field = typed === null ? null : element("label", { class: "field" }, element("span", {}, "Write ", element("code", {}, typed), " to confirm"),
    element("input", { id: "ask-typed", autocomplete: "off", spellcheck: "false" }));
  return asked(title, [element("p", { class: "muted" }, text), field], action, {
    bad, value: () => true, ready: (dialog) => typed === null || dialog.querySelector("#ask-typed").value === typed });
}

// A dialog with fields; resolves to what `value` makes of them, or to null.
export function asked(title, content, action, { value, ready = () => true, bad = false } = {}) {
  return new Promise((resolve) => {
    const yes = element("button", { class: bad ? "button bad" : "button primary", type: "submit", value: "yes" }, action);
    const dialog = element("dialog", { "aria-labelledby": "ask-title" },
      element("form", { method: "dialog" },
        element("h2", { id: "ask-title" }, title), content,
        element("div", { class: "dialog-buttons" },
          // Not a submit button: the first of these is what Enter in a field presses.
          element("button", { class: "button", type: "button", value: "no", onclick: () => dialog.close("no") }, "Cancel"), yes)));
    const check = () => { yes.disabled = !ready(dialog); };
    dialog.addEventListener("input", check);
    dialog.addEventListener("close", () => {
      const found = dialog.returnValue === "yes" && ready(dialog) ? value(dialog) : null;
      dialog.remove();
      resolve(found);
    });
    document.body.append(dialog);
    check();
    dialog.showModal();
    (dialog.querySelector("input, textarea, select") ?? yes).focus();
  });
}

const READING_MILLISECONDS = 20000;
const FOCUSABLE = "a[href], button, input, select, textarea, summary";
const putOff = new WeakMap(); // what to draw once nobody reads any more
let selected = 0; // when somebody last marked a text

document.addEventListener("selectionchange", () => { selected = Date.now(); });
document.addEventListener("click", (event) => { if (event.target.closest(FOCUSABLE)) selected = 0; }, true); // they want to see what comes of it

// Redraw a place, and leave the reader where they were: what is open stays open, who types goes on typing, and the
// keyboard stays where it was. Who marks a text to copy it is given some time.
export function redraw(place, made) {
  putOff.set(place, made);
  if (reading(place)) {
    setTimeout(() => { if (putOff.get(place) === made) redraw(place, made); }, 1000);
    return;
  }
  const open = new Set([...place.querySelectorAll("details[open][data-keep]")].map((each) => each.dataset.keep));
  const active = place.contains(document.activeElement) ? document.activeElement : null;
  const mark = active ? placeOf(place, active) : null;
  place.replaceChildren(made);
  for (const each of place.querySelectorAll("details[data-keep]")) each.open = open.has(each.dataset.keep);
  const again = mark ? alike(place, mark.name)[mark.at] : null;
  if (!again) return;
  if (again.matches("input[type=search]")) {
    again.value = active.value;
    again.focus({ preventScroll: true });
    again.setSelectionRange(active.selectionStart, active.selectionEnd);
  } else again.focus({ preventScroll: true });
}

function reading(place) {
  const marked = getSelection();
  return !marked.isCollapsed && place.contains(marked.anchorNode) && Date.now() - selected < READING_MILLISECONDS;
}

// What can be reached by the keyboard and is named alike, and which of these it is.
function placeOf(place, active) {
  const name = nameOf(active);
  return { name, at: alike(place, name).indexOf(active) };
}

function alike(place, name) {
  return [...place.querySelectorAll(FOCUSABLE)].filter((each) => nameOf(each) === name);
}

function nameOf({ tagName, id, dataset, parentElement, attributes: { href } }) {
  return JSON.stringify([tagName, id, href?.value, { ...dataset }, tagName === "SUMMARY" ? parentElement.dataset.keep : ""]);
}

export function page(title, text, ...content) {
  return element("div", { class: "page" },
    element("div", { class: "page-head" }, element("h1", {}, title), text ? element("p", { class: "muted" }, text) : null), content);
}

export function loading(title) {
  return page(title, "Loading …");
}

// A table that becomes a list of cards on a narrow screen. A column is [title, is a number].
export function table(columns, rows, { label } = {}) {
  return element("div", { class: "card flush scroll" }, element("table", { class: "stack", "aria-label": label },
    element("thead", {}, element("tr", {}, columns.map(([title, number]) => element("th", { scope: "col", class: number ? "number" : "" }, title)))),
    element("tbody", {}, rows)));
}

export function number(label, value) {
  return element("td", { class: "number", "data-label": label }, element("span", {}, value));
}
