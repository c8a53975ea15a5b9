// The page: login, tabs, and asking for news of what is looked at.

import { listen, login, quietly, read, resume, write } from "/static/api.js";
import { byId, element, toast } from "/static/dom.js";
import DeadLetters from "/static/dead.js";
import Overview from "/static/overview.js";
import Pipelines from "/static/pipelines.js";
import Queues from "/static/queues.js";
import Rules from "/static/rules.js";
import { count, sentence } from "/static/words.js";

const NEWS_MILLISECONDS = 2000;
const BADGES_MILLISECONDS = 15000; // counting dead letters asks every queue
const OWN = [
  { name: "overview", title: "Overview", Part: Overview },
  { name: "queues", title: "Queues", Part: Queues },
  { name: "rules", title: "Rules", Part: Rules },
  { name: "pipelines", title: "Pipelines", Part: Pipelines },
  { name: "dead", title: "Dead letters", Part: DeadLetters },
];

let tabs = OWN;
let session = null;
let current = null;
let shown = "";
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
  byId("dashboard").hidden = true;
  byId("login").hidden = false;
  byId("login-error").textContent = sentence(why);
  byId("token").value = "";
  byId("token").focus();
}

async function showPage(begun) {
  session = { ...begun, can: (role) => begun.may.includes(role) };
  // An application's tabs come first.
  tabs = [...await Promise.all(begun.tabs.map(added)), ...OWN];
  byId("login").hidden = true;
  byId("dashboard").hidden = false;
  byId("bucket").textContent = begun.bucket;
  byId("bucket").title = begun.bucket;
  byId("who").replaceChildren(begun.name, element("span", { class: "roles" }, ` · ${begun.roles.join(", ")}`));
  byId("tabs").replaceChildren(...tabs.map(({ name, title }) =>
    element("button", { class: "tab", role: "tab", type: "button", id: `tab-${name}`, "aria-controls": "view",
      onclick: () => { location.hash = name; } }, title)));
  open();
  clearTimeout(badges);
  countBadges(session);
}

async function added({ name, title, script, style, keys }) {
  if (style && !document.querySelector(`link[href="${CSS.escape(style)}"]`)) document.head.append(element("link", { rel: "stylesheet", href: style }));
  return { name, title, keys, Part: (await import(script)).default };
}

function leave() {
  clearTimeout(timer);
  current?.leave?.();
  current = null;
}

// #queues, or #queues/jobs for one of them.
function address() {
  const [wanted, ...rest] = location.hash.slice(1).split("/");
  return { tab: tabs.find((each) => each.name === wanted) ?? tabs[0], rest: decoded(rest.join("/")) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // somebody wrote it by hand
  }
}

function open() {
  leave();
  const { tab: { name, title, Part }, rest } = address();
  shown = `${name}/${rest}`;
  for (const each of tabs) {
    byId(`tab-${each.name}`).setAttribute("aria-selected", String(each.name === name));
    byId(`tab-${each.name}`).tabIndex = each.name === name ? 0 : -1;
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
  current = new Part(place, session, { count: (number) => badge(name, number), rest });
  news(current);
}

function badge(name, number) {
  const tab = byId(`tab-${name}`);
  tab?.querySelector(".count")?.remove();
  if (number && tab) tab.append(element("span", { class: name === "dead" ? "chip bad count" : "chip accent count" }, count(number)));
}

// What a tab says while another one is open.
async function countBadges(begun) {
  const found = await quietly(read("/api/badges"));
  if (found && session === begun) badge("dead", found.dead);
  if (session === begun) badges = setTimeout(() => countBadges(begun), document.hidden ? 4 * BADGES_MILLISECONDS : BADGES_MILLISECONDS);
}

async function news(part) {
  await quietly(part.update());
  if (part === current) timer = setTimeout(() => news(part), document.hidden ? 5 * NEWS_MILLISECONDS : NEWS_MILLISECONDS);
}

async function enter(token) {
  byId("login-error").textContent = "";
  try {
    await showPage(await login(token));
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
    if (begun.name) await showPage(begun);
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
  const names = tabs.map(({ name }) => name);
  const at = names.findIndex((name) => byId(`tab-${name}`).getAttribute("aria-selected") === "true");
  const next = names[(at + step + names.length) % names.length];
  location.hash = next;
  byId(`tab-${next}`).focus();
});
window.addEventListener("hashchange", () => {
  if (!session) { start(); return; }
  const { tab, rest } = address();
  // Choosing what is already open does not reset it.
  if (`${tab.name}/${rest}` !== shown) open();
});

function showHelp() {
  if (document.querySelector("dialog[open]")) return;
  const known = [...tabs.flatMap((tab) => Object.entries(tab.keys ?? {})), [`1 – ${tabs.length}`, "the parts of the page"],
    ["/", "search"], ["Esc", "leave a field"], ["?", "this help"]];
  const keys = [...new Map(known)].flatMap(([names, what]) => [
    element("dt", {}, names.split(" ").map((name) => (name === "–" ? name : element("kbd", {}, name)))), element("dd", {}, what)]);
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
  else if (/^[1-9]$/.test(event.key) && tabs[Number(event.key) - 1]) location.hash = tabs[Number(event.key) - 1].name;
  else if (event.key === "/" && byId("view").querySelector("input[type=search]") && !current?.key) byId("view").querySelector("input[type=search]").focus();
  else if (!current?.key?.(event)) return;
  event.preventDefault();
});

start();
