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
  made.append(...children.flat().filter((each) => each !== null && each !== undefined && each !== false).map(node));
  return made;
}

function node(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

export function byId(id) {
  return document.getElementById(id);
}

export function empty(title, text, mark = "✓") {
  return element("div", { class: "empty" },
    element("div", { class: "mark", "aria-hidden": "true" }, mark), element("h2", {}, title), element("p", {}, text));
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

// Ask before something is done; resolves to whether it should be.
export function confirmed(title, text, action) {
  return new Promise((resolve) => {
    const yes = element("button", { class: "button primary", type: "submit", value: "yes" }, action);
    const dialog = element("dialog", { "aria-labelledby": "ask-title" },
      element("form", { method: "dialog" },
        element("h2", { id: "ask-title" }, title), element("p", { class: "muted" }, text),
        element("div", { class: "dialog-buttons" },
          element("button", { class: "button", type: "submit", value: "no" }, "Cancel"), yes)));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
    document.body.append(dialog);
    dialog.showModal();
    yes.focus();
  });
}
