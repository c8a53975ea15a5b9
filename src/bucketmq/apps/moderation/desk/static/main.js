// The page: login, tabs, and asking for news of what is looked at.

import { Refused, Unreachable, listen, login, read, resume, write } from "/static/api.js";
import { byId, element, toast } from "/static/dom.js";
import { DeadLetters } from "/static/dead.js";
import { Flow } from "/static/flow.js";
import { Queues } from "/static/queues.js";
import { Review } from "/static/review.js";
import { Rules } from "/static/rules.js";
import { count, sentence } from "/static/words.js";

const NEWS_MILLISECONDS = 2000;
const BADGES_MILLISECONDS = 15000; // counting dead letters asks every queue
const TABS = [
  ["review", "Review", Review],
  ["flow", "Flow", Flow],
  ["queues", "Queues", Queues],
  ["rules", "Rules", Rules],
  ["dead", "Dead letters", DeadLetters],
];

let session = null;
let current = null;
let timer = 0;
let badges = 0;

listen("reach", (reached, why = "") => {
  const banner = byId("banner");
  if (reached && !banner.hidden && session) toast("Connected again.");
  banner.hidden = reached;
  banner.textContent = why;
  byId("live").classList.toggle("gone", !reached);
  byId("live").title = reached ? "Connected" : "Not connected";
});
listen("login", () => {
  if (!session) return;
  showLogin("Your session is over. Log in again.");
});

function showLogin(why = "") {
  session = null;
  leave();
  byId("desk").hidden = true;
  byId("login").hidden = false;
  byId("login-error").textContent = sentence(why);
  byId("token").value = "";
  byId("token").focus();
}

function showDesk(begun) {
  session = begun;
  byId("login").hidden = true;
  byId("desk").hidden = false;
  byId("who").textContent = begun.may_decide ? begun.name : `${begun.name} · read only`;
  byId("tabs").replaceChildren(...TABS.map(([name, title]) =>
    element("button", { class: "tab", role: "tab", type: "button", id: `tab-${name}`, "aria-controls": "view",
      onclick: () => { location.hash = name; } }, title)));
  open();
  clearTimeout(badges);
  countBadges(begun);
}

function leave() {
  clearTimeout(timer);
  current?.leave?.();
  current = null;
}

function open() {
  leave();
  const wanted = location.hash.slice(1);
  const [name, title, Part] = TABS.find(([each]) => each === wanted) ?? TABS[0];
  for (const [each] of TABS) {
    byId(`tab-${each}`).setAttribute("aria-selected", String(each === name));
    byId(`tab-${each}`).tabIndex = each === name ? 0 : -1;
  }
  byId(`tab-${name}`).scrollIntoView({ block: "nearest", inline: "nearest" });
  const view = byId("view");
  view.setAttribute("role", "tabpanel");
  view.setAttribute("aria-labelledby", `tab-${name}`);
  view.scrollTop = 0;
  document.title = `${title} · BucketMQ`;
  // Each part has a place of its own: what an old one still draws is not seen.
  const place = element("div", { class: "place" });
  view.replaceChildren(place);
  current = new Part(place, session, { waiting: (number) => badge("review", number), dead: (number) => badge("dead", number) });
  news(current);
}

function badge(name, number) {
  const tab = byId(`tab-${name}`);
  tab?.querySelector(".count")?.remove();
  if (number && tab) tab.append(element("span", { class: name === "dead" ? "chip bad count" : "chip accent count" }, count(number)));
}

// What a tab says while another one is open.
async function countBadges(begun) {
  try {
    const found = await read("/api/figures/badges");
    if (session === begun) badge("dead", found.badges.dead);
  } catch (error) {
    if (!(error instanceof Refused) && !(error instanceof Unreachable)) throw error;
  }
  if (session === begun) badges = setTimeout(() => countBadges(begun), document.hidden ? 4 * BADGES_MILLISECONDS : BADGES_MILLISECONDS);
}

async function news(part) {
  try {
    await part.update();
  } catch (error) {
    if (error instanceof Refused) {
      if (error.status !== 401) toast(error.message, { bad: true });
    } else if (!(error instanceof Unreachable)) throw error;
  }
  if (part === current) timer = setTimeout(() => news(part), document.hidden ? 5 * NEWS_MILLISECONDS : NEWS_MILLISECONDS);
}

async function enter(token) {
  byId("login-error").textContent = "";
  try {
    showDesk(await login(token));
  } catch (error) {
    showLogin(error.message);
  }
}

async function start() {
  // A link may bring the token behind the #, which browsers do not send to anybody. It does not stay in the address bar.
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) {
    history.replaceState(null, "", location.pathname);
    await enter(token);
    return;
  }
  try {
    const begun = await resume();
    if (begun.name) showDesk(begun);
    else showLogin();
  } catch {
    showLogin();
  }
}

byId("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  enter(byId("token").value.trim());
});
byId("logout").addEventListener("click", async () => {
  try {
    await write("/api/logout", {});
  } catch (error) {
    toast(`You are still logged in: ${error.message}`, { bad: true });
    return;
  }
  showLogin("You are logged out.");
});
byId("help-button").addEventListener("click", showHelp);
byId("tabs").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const names = TABS.map(([name]) => name);
  const at = names.findIndex((name) => byId(`tab-${name}`).getAttribute("aria-selected") === "true");
  const next = names[(at + step + names.length) % names.length];
  location.hash = next;
  byId(`tab-${next}`).focus();
});
window.addEventListener("hashchange", () => {
  if (session) open();
  else start();
});

const KEYS = [
  [["j", "k"], "next, previous post"],
  [["a"], "approve: it breaks no rule"],
  [["u"], "uphold: it stays flagged, or becomes so"],
  [["e"], "escalate: somebody else should look"],
  [["n"], "write a note for the decision"],
  [["i"], "show or blur the image"],
  [["/"], "search"],
  [["1", "–", "5"], "the parts of the desk"],
  [["Esc"], "leave a field, or the post"],
  [["?"], "this help"],
];

function showHelp() {
  if (document.querySelector("dialog[open]")) return;
  const keys = KEYS.flatMap(([names, what]) => [
    element("dt", {}, names.map((name) => (name === "–" ? name : element("kbd", {}, name)))), element("dd", {}, what)]);
  const dialog = element("dialog", { id: "help", "aria-labelledby": "help-title" },
    element("form", { method: "dialog" },
      element("h2", { id: "help-title" }, "Keyboard"), element("dl", { class: "keys" }, keys),
      element("div", { class: "dialog-buttons" }, element("button", { class: "button primary", type: "submit" }, "Close"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  if (!session || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (document.querySelector("dialog[open]")) return;
  const typing = event.target.closest?.("input:not([type=checkbox]):not([type=range]), textarea, select");
  if (typing) {
    if (event.key === "Escape") { typing.blur(); event.preventDefault(); }
    return;
  }
  if (event.key === "?") showHelp();
  else if (/^[1-5]$/.test(event.key)) location.hash = TABS[Number(event.key) - 1][0];
  else if (!current?.key?.(event)) return;
  event.preventDefault();
});

start();
