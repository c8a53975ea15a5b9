// The history of a post as a list: what happened, who did it, and when.

import { quietly, read } from "/static/api.js";
import { element } from "/static/dom.js";
import { moment, percent, plural } from "/static/words.js";
import { DONE, OUTCOMES, categoryName, spoken } from "./names.js";

export async function historyOf(id, categories) {
  const told = await quietly(read("/api/review/history", { id }));
  if (!told) return element("p", { class: "muted" }, "The history could not be read.");
  const many = new Set(told.steps.map((step) => step.revision)).size > 1;
  return element("div", {},
    told.forgotten ? element("p", { class: "small muted" }, `What became of ${plural(told.forgotten, "older version")} is in the audit log.`) : null,
    element("ol", { class: "history", "aria-label": "History" }, told.steps.map((step) => row(step, many, categories))));
}

function row(step, many, categories) {
  const text = step.reason ? spoken(step.reason, categories) : "";
  return element("li", { class: `history-${step.did}` },
    element("div", { class: "history-what" }, element("strong", {}, what(step)),
      many && step.revision ? element("span", { class: "chip" }, `version ${step.revision}`) : null),
    step.categories?.length ? element("p", { class: "small" }, scores(step.categories)) : null,
    text ? element("p", { class: "small" }, text) : null,
    element("time", { class: "small muted", datetime: step.at }, moment(step.at)));
}

function what(step) {
  const where = OUTCOMES[step.outcome] ?? step.outcome;
  switch (step.did) {
    case "accepted": return "Submitted";
    case "judged": return `Judged by ${step.by}${step.categories?.length || step.confidence === undefined || step.confidence === null ? "" : `: ${percent(step.confidence)}`}`;
    case "routed": return `Routed: ${where}`;
    case "superseded": return "An older version came late and was dropped";
    case "notice": return { done: "Notice sent", retry: "Notice failed, tried again later", bury: "Notice given up" }[step.outcome] ?? `Notice: ${step.outcome}`;
    case "undo": return `${step.by} took back “${(DONE[step.of] ?? step.of).toLowerCase()}”: ${where} again`;
    case "refused": return `${step.by} was refused`;
    default: return `${DONE[step.did] ?? step.did} by ${step.by}`;
  }
}

function scores(categories) {
  return [...categories].sort((a, b) => b.confidence - a.confidence).map((each) => `${categoryName(each.name)} ${percent(each.confidence)}${each.flagged ? " (a violation)" : ""}`.replaceAll(" ", "\u00a0")).join(", ");
}
