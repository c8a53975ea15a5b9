// Artifacts: what is current in which environment, who made it so, how versions differ; promote and roll back.

import { changed, quietly, read, write } from "/static/api.js";
import { asked, element, empty, loading, page, redraw, table } from "/static/dom.js";
import { count, moment, plural } from "/static/words.js";

const HEALTH = { healthy: "good", failed: "bad", refused: "bad", untrusted: "bad" };

export default class Artifacts {
  constructor(view, session) {
    this.view = view;
    this.session = session;
    this.compared = new Map();
    this.drawn = "";
    view.replaceChildren(loading("Artifacts"));
  }

  async update() {
    const found = await read("/api/artifacts/overview");
    this.found = found;
    const mark = JSON.stringify([found, [...this.compared]]);
    if (mark === this.drawn) return;
    this.drawn = mark;
    const names = found.environments.map((each) => each.name).join(" → ");
    const text = `${names}. Everything shown is signed by a trusted key (trust ${found.trust}).`;
    redraw(this.view, page("Artifacts", text, found.artifacts.length
      ? found.artifacts.map((each) => this.artifact(each))
      : empty("No artifacts yet", "Publish one: bucketmq artifacts publish NAME VERSION PATH --key FILE", "∅")));
  }

  may() {
    return this.session.can("operate") && this.found.can_sign;
  }

  artifact(artifact) {
    return element("section", { class: "card artifact", "data-artifact": artifact.name, "aria-label": `Artifact ${artifact.name}` },
      element("div", { class: "letter-head" }, element("h2", {}, artifact.name)),
      element("div", { class: "environments" }, this.published(artifact), this.found.environments.map((each) => this.environment(artifact, each))),
      this.history(artifact),
      this.comparison(artifact));
  }

  published(artifact) {
    const [newest, ...older] = artifact.builds;
    return element("div", { class: "environment builds" }, element("h3", {}, "Published"),
      newest ? [element("p", { class: "version" }, newest.version), element("p", { class: "small muted" }, `${moment(newest.stored_at * 1000)}`),
        element("p", { class: "small muted" }, older.length ? `and ${older.slice(0, 4).map((each) => each.version).join(", ")}${older.length > 4 ? " …" : ""}` : "no other version")]
        : element("p", { class: "muted" }, "none left"));
  }

  environment(artifact, policy) {
    const cell = artifact.cells[policy.name];
    const now = cell?.current;
    const place = { class: "environment", "data-environment": policy.name };
    const promote = this.may() ? element("button", { class: "button", type: "button", "data-promote": policy.name,
      onclick: () => this.promote(artifact, policy) }, "Promote …") : null;
    if (!cell) return element("div", place, element("h3", {}, policy.name), element("p", { class: "muted" }, "nothing yet"), element("div", { class: "buttons" }, promote));
    if (!now) return element("div", place, element("h3", {}, policy.name), element("span", { class: "chip bad" }, "untrusted"), element("p", { class: "small error-text" }, cell.problem));
    const bad = cell.reports.filter((each) => each.state !== "healthy" && each.counter === now.counter);
    return element("div", place, element("h3", {}, policy.name),
      element("p", { class: "version" }, now.version),
      element("p", {}, element("span", { class: `chip ${cell.over ? "bad" : HEALTH[cell.health.split(" ").at(-1)] ?? "warn"}` }, cell.over ? "ended: refresh it" : cell.health)),
      element("p", { class: "small muted" }, `${now.did} by ${now.by}, ${moment(now.at)}`),
      element("p", { class: "small muted mono", title: now.digest }, `${now.digest.slice(0, 12)} · counter ${count(now.counter)}`),
      bad.map((each) => element("p", { class: "small error-text" }, `${each.agent}: ${each.why}`)),
      element("div", { class: "buttons" }, promote, this.may() && cell.previous ? element("button", { class: "button", type: "button", "data-rollback": policy.name,
        onclick: () => this.rollback(artifact, policy, cell) }, "Roll back …") : null));
  }

  history(artifact) {
    const lines = Object.values(artifact.cells).filter((cell) => cell.current)
      .flatMap((cell) => [cell.current, ...cell.past].map((state) => ({ ...state, environment: cell.environment })))
      .sort((one, other) => other.at.localeCompare(one.at));
    if (!lines.length) return null;
    return element("details", { "data-keep": `history-${artifact.name}` }, element("summary", {}, `History: ${plural(lines.length, "change")}`),
      table([["When"], ["Where"], ["What"], ["Version"], ["Who"], ["Why"]], lines.map((each) => element("tr", {},
        element("td", { class: "nowrap" }, moment(each.at)), element("td", { "data-label": "Where" }, each.environment), element("td", { "data-label": "What" }, each.did),
        element("td", { "data-label": "Version" }, each.version), element("td", { "data-label": "Who" }, each.by), element("td", { "data-label": "Why" }, each.why ?? "–"))), { label: "History" }));
  }

  comparison(artifact) {
    if (artifact.builds.length < 2) return null;
    const versions = artifact.builds.map((each) => each.version);
    const running = Object.values(artifact.cells).map((cell) => cell.current?.version).filter((each) => versions.includes(each));
    const chosen = this.compared.get(artifact.name) ?? { before: running.at(-1) && running.at(-1) !== versions[0] ? running.at(-1) : versions[1], after: versions[0], found: null };
    const choose = (which, label) => element("label", { class: "field-row" }, label,
      element("select", { id: `${which}-${artifact.name}`, onchange: (event) => this.compare(artifact, { ...chosen, [which]: event.target.value }) },
        versions.map((each) => element("option", { value: each, selected: each === chosen[which] }, each))));
    return element("details", { "data-keep": `compare-${artifact.name}` }, element("summary", {}, "Compare versions"),
      element("div", { class: "bar-row compare" }, choose("before", "From"), choose("after", "to"),
        element("button", { class: "button", type: "button", "data-compare": artifact.name, onclick: () => this.compare(artifact, chosen) }, "Compare")),
      chosen.found ? difference(chosen) : null);
  }

  async compare(artifact, { before, after }) {
    const found = await quietly(read("/api/artifacts/difference", { name: artifact.name, before, after }));
    if (!found) return;
    this.compared.set(artifact.name, { before, after, found });
    await quietly(this.update());
  }

  async promote(artifact, policy) {
    const before = policy.after ? artifact.cells[policy.after]?.current?.version : null;
    const versions = artifact.builds.map((each) => each.version);
    const missing = element("div", { id: "gate", class: "small", role: "status" }, "");
    let open = false;
    const look = async (version) => {
      open = false;
      missing.replaceChildren("Looking at the gate …");
      const gate = await quietly(read("/api/artifacts/gate", { name: artifact.name, version, environment: policy.name }));
      open = gate?.open ?? false;
      missing.replaceChildren(gate === null ? "The gate cannot be seen." : gate.open ? element("span", { class: "chip good" }, "the gate is open")
        : element("ul", { class: "error-text" }, gate.missing.map((each) => element("li", {}, each))));
      missing.dispatchEvent(new Event("input", { bubbles: true }));
    };
    const choice = element("select", { id: "promote-version", onchange: (event) => look(event.target.value) },
      versions.map((each) => element("option", { value: each, selected: each === (before ?? versions[0]) }, each)));
    const waiting = asked(`Promote ${artifact.name} to ${policy.name}`, [
      element("label", { class: "field" }, "Version", choice), missing,
      element("label", { class: "field" }, "Why", element("input", { id: "promote-why", maxlength: 500, autocomplete: "off" })),
    ], "Promote", { ready: () => open, value: (dialog) => ({ version: dialog.querySelector("#promote-version").value, why: dialog.querySelector("#promote-why").value.trim() }) });
    look(choice.value);
    const given = await waiting;
    if (given === null) return;
    await this.change("Promote", "/api/artifacts/promote", { name: artifact.name, environment: policy.name, ...given }, policy.name);
  }

  async rollback(artifact, policy, cell) {
    const earlier = [...new Set(cell.past.filter((each) => each.digest !== cell.current.digest).map((each) => each.version))];
    const given = await asked(`Roll back ${artifact.name} in ${policy.name}?`, [
      element("p", { class: "muted" }, `It is at ${cell.current.version}. What it goes back to is verified again; agents follow the new pointer.`),
      element("label", { class: "field" }, "Back to", element("select", { id: "rollback-to" }, earlier.map((each) => element("option", { value: each }, each)))),
      element("label", { class: "field" }, "Why", element("input", { id: "rollback-why", maxlength: 500, autocomplete: "off" })),
    ], "Roll back", { bad: true, value: (dialog) => ({ to: dialog.querySelector("#rollback-to").value, why: dialog.querySelector("#rollback-why").value.trim() }) });
    if (given === null) return;
    await this.change("Roll back", "/api/artifacts/rollback", { name: artifact.name, environment: policy.name, ...given }, policy.name);
  }

  async change(what, path, body, environment) {
    await changed(what, write(path, body), (done) => `${body.name} in ${environment} is at ${done.version} now.`);
    await quietly(this.update());
  }
}

function difference({ before, after, found }) {
  const line = (mark, kind, path, text) => element("li", { class: kind }, element("span", { class: "mark", "aria-hidden": "true" }, mark), element("span", { class: "mono path" }, path), element("span", { class: "muted small nowrap" }, text));
  const bytes = (number) => `${count(number)} bytes`;
  const fields = Object.entries(found.fields).filter(([name]) => name !== "version");
  return element("div", { class: "difference", "aria-live": "polite" },
    element("p", { class: "small muted" }, `${before} to ${after}: ${plural(found.added.length, "file")} added, ${found.removed.length} removed, ${found.changed.length} changed, ${found.same} the same`),
    element("ul", { class: "files" },
      found.added.map((each) => line("+", "added", each.path, bytes(each.size_bytes))),
      found.removed.map((each) => line("−", "removed", each.path, bytes(each.size_bytes))),
      found.changed.map(([one, other]) => line("~", "changed", one.path, `${count(one.size_bytes)} → ${bytes(other.size_bytes)}`))),
    fields.length ? element("dl", { class: "facts small" }, fields.flatMap(([name, [one, other]]) => [element("dt", {}, name.replace("_", " ")), element("dd", { class: "mono" }, `${one || "–"} → ${other || "–"}`)])) : null);
}
