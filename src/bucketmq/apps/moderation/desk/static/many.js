// Doing the same to many posts, some at a time: how far it has come, what went wrong for which, and a way to stop.

import { element } from "/static/dom.js";
import { count, plural } from "/static/words.js";

// `work` takes some of the posts and resolves to a result for each: { id, done, error, sure }. Resolves to all of them.
export async function each(title, posts, work, { some = 25 } = {}) {
  const bar = element("progress", { max: posts.length, value: 0, "aria-label": title });
  const said = element("p", { class: "muted", role: "status" }, `0 of ${plural(posts.length, "post")}`);
  const failed = element("ul", { class: "failed", "aria-label": "Not done" });
  const button = element("button", { class: "button", type: "button", id: "many-stop" }, "Stop");
  const dialog = element("dialog", { id: "many", "aria-labelledby": "many-title" },
    element("h2", { id: "many-title" }, title), bar, said, failed, element("div", { class: "dialog-buttons" }, button));
  let stopped = false;
  const stop = () => { stopped = true; button.disabled = true; };
  button.addEventListener("click", stop);
  dialog.addEventListener("cancel", (event) => { event.preventDefault(); stop(); });
  document.body.append(dialog);
  dialog.showModal();
  const results = [];
  for (let at = 0; at < posts.length && !stopped; at += some) {
    const batch = posts.slice(at, at + some);
    results.push(...await work(batch).catch((error) => batch.map(({ id }) => ({ id, done: false, sure: false, error: error.message }))));
    bar.value = results.length;
    said.textContent = `${count(results.length)} of ${plural(posts.length, "post")}`;
    // What nobody answered is not asked for the rest too: the server may be gone.
    if (results.length && results.slice(-batch.length).every((result) => !result.done && !result.sure)) stopped = true;
  }
  const bad = results.filter((result) => !result.done);
  const left = posts.length - results.length;
  if (!bad.length && !left) {
    dialog.close();
    dialog.remove();
    return results;
  }
  said.textContent = [`${count(results.length - bad.length)} done`, bad.length ? `${count(bad.length)} not` : "", left ? `${count(left)} not tried` : ""].filter(Boolean).join(", ");
  failed.append(...bad.map(({ id, error, sure }) => element("li", {}, element("strong", {}, id), ` ${error}${sure ? "" : " (not sure; do it again to know)"}`)));
  button.textContent = "Close";
  button.disabled = false;
  await new Promise((resolve) => {
    button.addEventListener("click", resolve, { once: true });
    dialog.addEventListener("cancel", resolve, { once: true });
    button.focus();
  });
  dialog.close();
  dialog.remove();
  return results;
}
