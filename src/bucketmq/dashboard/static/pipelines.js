// Pipelines: how far each is behind, how fast it is, what failed, and whether it runs.

import { quietly, read } from "/static/api.js";
import { plot } from "/static/charts.js";
import { element, empty, loading, number, page, redraw, table } from "/static/dom.js";
import { age, count, plural, rate, time, took, unbroken } from "/static/words.js";

const SPANS = [900, 3600]; // what charts show: the last quarter of an hour, or the last hour

const STATES = {
  runs: ["good", "runs", (row) => `for ${age(row.since_seconds)}`],
  idle: ["", "idle", (row) => `${row.lag ? "no word" : "nothing to do"} for ${age(row.since_seconds)}`],
  silent: ["bad", "silent", (row) => `no word for ${age(row.since_seconds)}, though messages wait: it hangs, or was killed`],
  failed: ["bad", "failed", (row) => `${age(row.since_seconds)} ago, ${time(row.last_at)}`],
  stopped: ["warn", "stopped", (row) => `${age(row.since_seconds)} ago, ${time(row.last_at)}`],
};

export default class Pipelines {
  constructor(view, session, tell) {
    this.view = view;
    this.query = { q: tell.rest, after: "" };
    this.pages = [];
    this.drawn = "";
    view.replaceChildren(loading("Pipelines"));
  }

  async update() {
    const wanted = JSON.stringify(this.query);
    const found = await read("/api/pipelines", this.query);
    if (wanted !== JSON.stringify(this.query)) return;
    const mark = JSON.stringify([this.query, found.pipelines.map(({ since_seconds: since, ...row }) => [row, age(since)]), found.readers, found.total]);
    if (mark === this.drawn) return;
    this.drawn = mark;
    redraw(this.view, this.all(found));
  }

  leave() {
    clearTimeout(this.typing);
  }

  go(query, pages) {
    this.query = query;
    this.pages = pages;
    quietly(this.update());
  }

  all({ pipelines, total, next, readers, now }) {
    const search = element("input", { type: "search", id: "pipeline-search", placeholder: "Part of a name  ( / )", "aria-label": "Part of a pipeline's name", value: this.query.q,
      oninput: (event) => { clearTimeout(this.typing); this.typing = setTimeout(() => this.go({ q: event.target.value.trim(), after: "" }, []), 200); } });
    const body = pipelines.length ? pipelines.map((row) => this.pipeline(row, now))
      : this.query.q ? empty("Nothing matches", "No pipeline has this in its name.", "∅")
      : empty("No pipelines yet", "One that runs leaves its figures in the bucket:", "∅", "bucketmq pipeline run NAME");
    return page("Pipelines", pipelines.length ? "As each last reported: every 15 seconds while it does something, nothing while it is idle." : "",
      element("div", { class: "bar-row" }, search, element("span", { class: "muted small" }, plural(total, "pipeline")),
        element("span", { class: "push" },
          this.pages.length ? element("button", { class: "button", type: "button", id: "before", onclick: () => this.go({ ...this.query, after: this.pages.pop() }, this.pages) }, "← Before") : null,
          next ? element("button", { class: "button", type: "button", id: "next", onclick: () => { this.pages.push(this.query.after); this.go({ ...this.query, after: next }, this.pages); } }, "Next →") : null)),
      body,
      readers.length ? element("section", { "aria-label": "Readers that report nothing" }, element("h2", {}, "Readers that report nothing"),
        table([["Reader"], ["Behind", 1], ["Last progress", 1]], readers.map((each) => element("tr", {},
          element("td", {}, each.name, element("span", { class: "small muted" }, ` of queue ${each.queue}`)),
          number("Behind", count(each.lag)), number("Last progress", `${age(each.idle_seconds)} ago`))), { label: "Readers" })) : null);
  }

  pipeline(row, now) {
    const [kind, word, since] = STATES[row.state];
    const figure = (title, value, note) => element("div", { class: "figure" }, element("dt", {}, title), element("dd", {}, value, note ? element("div", { class: "small muted" }, note) : null));
    return element("section", { class: "card sub-card", "data-pipeline": row.name, "aria-label": `Pipeline ${row.name}` },
      element("div", { class: "letter-head" }, element("h2", {}, row.name), element("span", { class: `chip ${kind}` }, word),
        element("span", { class: "small muted" }, since(row)),
        row.queue ? element("span", { class: "push" }, element("a", { class: "button", href: `#queues/${encodeURIComponent(row.queue)}` }, `Queue ${row.queue}`)) : null),
      row.error ? element("p", { class: "small error-text why" }, unbroken(row.error)) : null,
      element("dl", { class: "figures" },
        figure("Behind", row.lag === null ? "–" : count(row.lag), row.lag === null ? "not known" : row.lag === 1 ? "message to read" : "messages to read"),
        figure("Rows", row.state === "runs" ? rate(row.rows_per_second) : "–", row.state === "runs" ? "over the last minute" : ""),
        figure("A batch took", row.batch_seconds === null ? "–" : took(row.batch_seconds), row.batch_seconds === null ? "" : "at the last report"),
        figure("Dead letters", row.dead && row.queue ? element("a", { class: "error-text", href: `#dead/${encodeURIComponent(row.queue)}`, "aria-label": `${plural(row.dead, "dead letter")} of ${row.name}` }, count(row.dead)) : count(row.dead), row.retried ? `${count(row.retried)} tried again` : ""),
        figure("Rows in all", count(row.rows), `since ${time(row.began)}`)),
      row.points.filter(([at]) => now - at < SPANS.at(-1)).length > 1 ? this.charts(row, now) : null,
      element("details", { "data-keep": `processes-${row.name}` }, element("summary", { class: "small" }, plural(row.processes.length, "process", "processes")),
        table([["Where"], ["Began"], ["Rows", 1], ["Dead", 1], ["State"]], row.processes.map((each) => element("tr", {},
          element("td", { class: "mono" }, each.place), element("td", {}, time(each.began)), number("Rows", count(each.rows)), number("Dead", count(each.dead)),
          element("td", {}, each.ended !== null ? `${each.error ? "failed" : "ended"} ${time(each.ended)}` : each.live ? "runs" : `no word since ${time(each.at)}`,
            each.error ? element("div", { class: "small error-text why" }, each.error) : null))), { label: `Processes of ${row.name}` })));
  }

  charts(row, now) {
    const rows = row.points.filter(([at]) => now - at < SPANS.at(-1)).map(([at, seconds, done, failed, batch, lag]) =>
      ({ at, rows: done / Math.max(seconds, 0.001), failed: failed / Math.max(seconds, 0.001), batch, lag }));
    const span = SPANS.find((each) => now - rows[0].at < each);
    const draw = (title, points, lines) => element("div", {}, element("div", { class: "legend small" }, lines.map(({ title: text, kind }) => element("span", { class: `key ${kind}` }, text))), plot(title, points, lines, now, span));
    const behind = rows.filter((each) => each.lag >= 0);
    return element("div", { class: "plots" },
      draw(`Rows per second of ${row.name}`, rows, [{ name: "rows", title: "Rows per second", kind: "accent" }, { name: "failed", title: "Failed per second", kind: "bad" }]),
      behind.length > 1 ? draw(`Messages that ${row.name} had to read`, behind, [{ name: "lag", title: "Messages to read", kind: "warn" }])
        : draw(`Seconds of a batch of ${row.name}`, rows, [{ name: "batch", title: "Seconds of a batch", kind: "good" }]));
  }
}
