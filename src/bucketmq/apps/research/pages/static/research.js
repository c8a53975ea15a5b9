// Studies: how far each is, and for the chosen one its figures, what failed, and the way to its report.

import { changed, read, write } from "/static/api.js";
import { confirmed, element, empty, loading, number, page, redraw, table } from "/static/dom.js";
import { count, plural } from "/static/words.js";

const STATES = { running: ["accent", "running"], closing: ["warn", "writing the report"], finished: ["good", "finished"] };
const WHY = {
  "all in": "all trials are in", "budget": "the budget is used up", "stop rule": "the stop rule holds",
  "stopped": "somebody stopped it", "deadline": "its deadline came",
};

export default class Studies {
  constructor(view, session) {
    this.view = view;
    this.session = session;
    this.chosen = null;
    this.list = [];
    view.replaceChildren(loading("Studies"));
  }

  async update() {
    const { studies } = await read("/api/research/studies");
    this.list = studies;
    if (!studies.some((each) => each.study === this.chosen)) this.chosen = studies[0]?.study ?? null;
    const shown = this.chosen === null ? null : await read("/api/research/study", { name: this.chosen });
    redraw(this.view, page("Studies", "Plans become trials, trials become results, results become a report.",
      studies.length ? this.overview(studies) : empty("No studies yet", "Start one: bucketmq research start PLAN", "∅"),
      shown ? this.details(shown) : null));
  }

  key(event) {
    const at = this.list.findIndex((each) => each.study === this.chosen);
    const step = { j: 1, k: -1 }[event.key];
    if (step && this.list.length) this.choose(this.list[Math.min(Math.max(at + step, 0), this.list.length - 1)].study);
    else if (event.key === "o" && this.list[at]?.state === "finished") window.open(file(this.chosen, "report.html"), "_blank", "noopener");
    else return false;
    return true;
  }

  choose(study) {
    this.chosen = study;
    this.update();
  }

  overview(studies) {
    const rows = studies.map((each) => {
      const [kind, words] = STATES[each.state];
      const chosen = each.study === this.chosen;
      return element("tr", { class: chosen ? "chosen" : "" },
        element("td", { "data-label": "Study" }, element("button", { class: "link", type: "button", "aria-pressed": chosen ? "true" : "false", "data-study": each.study,
          onclick: () => this.choose(each.study) }, each.study)),
        element("td", { "data-label": "State" }, element("span", { class: `chip ${kind}` }, words)),
        element("td", { "data-label": "Progress" }, bar(each)),
        number("Rounds", count(each.rounds)),
        element("td", { "data-label": "Best point" }, each.best ? element("code", {}, each.best) : "–"));
    });
    return table([["Study"], ["State"], ["Progress"], ["Rounds", true], ["Best point"]], rows, { label: "Studies" });
  }

  details({ status, figures, failed, failures }) {
    const done = status.state === "finished";
    const links = done ? element("p", { class: "study-links" },
      link(status.study, "report.html", "Open the report"), link(status.study, "report.md", "Markdown"), link(status.study, "plan.json", "Plan")) : null;
    const stop = !done && this.session.may.includes("operate") ? element("button", { class: "button", type: "button", onclick: () => this.stop(status.study) }, "Stop …") : null;
    return [
      element("section", { class: "card study", "aria-label": `Study ${status.study}` },
        element("div", { class: "study-head" }, element("h2", {}, status.study), stop),
        status.about ? element("p", { class: "muted" }, status.about) : null,
        element("p", {}, `${plural(status.results, "result")} of ${plural(status.planned, "planned trial")}; the budget is ${count(status.budget)}. `,
          failed ? `${plural(failed, "trial")} failed. ` : "No trial failed. ",
          status.why ? `Closed because ${WHY[status.why]}.` : `Simulator: ${status.simulator}.`),
        links),
      figures.length ? element("section", { class: "study-figures", "aria-label": "Figures" },
        figures.map((name) => element("a", { href: file(status.study, "report.html"), target: "_blank", rel: "noopener" },
          element("img", { src: file(status.study, name), alt: `Figure: ${name.replace("figures/", "").replace(".svg", "")}` })))) : null,
      failures.length ? table([["Result"], ["Point"], ["Kind"], ["Reason"]], failures.map((each) => element("tr", {},
        element("td", { "data-label": "Result" }, element("a", { href: file(status.study, `results/${each.id}.json`), target: "_blank", rel: "noopener" }, element("code", {}, each.id))),
        element("td", { "data-label": "Point" }, each.point),
        element("td", { "data-label": "Kind" }, element("span", { class: "chip bad" }, each.kind)),
        element("td", { "data-label": "Reason" }, each.reason))), { label: "Failures" }) : null,
    ];
  }

  async stop(study) {
    if (!await confirmed(`Stop ${study}?`, "No further trial is begun, and the report is written of what is there.", "Stop it")) return;
    await changed("stopping", write("/api/research/stop", { study }), () => `${study} is being closed`);
    this.update();
  }
}

function file(study, path) {
  return `/api/research/files/${study}/${path}`;
}

function link(study, path, text) {
  return element("a", { class: "button", href: file(study, path), target: "_blank", rel: "noopener" }, text);
}

function bar(status) {
  const text = `${count(status.results)} of ${count(status.planned)}`;
  return element("span", { class: "study-bar" },
    element("progress", { max: Math.max(1, status.planned), value: status.results, "aria-label": text }), text);
}
