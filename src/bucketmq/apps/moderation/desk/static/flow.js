// The flow of posts, drawn: how many are where, how many passed in the last minutes, and how long each step takes.

import { read } from "/static/api.js";
import { drawing, element } from "/static/dom.js";
import { count, plural, took } from "/static/words.js";

const NODES = {
  accepted: { name: "Submitted" },
  submissions: { name: "To be judged", kind: "accent" },
  pending: { name: "Pending", kind: "accent" },
  approved: { name: "Approved", kind: "good" },
  flagged: { name: "Flagged", kind: "bad" },
  needs: { name: "Needs review", kind: "warn" },
  reviewed: { name: "Decided by people" },
};
const HEIGHT = 92;
// Where the nodes are, and how wide: from left to right, or on a narrow screen from top to bottom.
const ACROSS = {
  size: [1230, 392],
  places: { accepted: [10, 150, 190], submissions: [265, 150, 190], pending: [520, 150, 190], approved: [775, 20, 190],
    flagged: [775, 150, 190], needs: [775, 280, 190], reviewed: [1030, 215, 190] },
  took: { judging: [487, 184], routing: [738, 184], review: [998, 228] },
};
const DOWN = {
  size: [340, 680],
  places: { accepted: [70, 6, 200], submissions: [70, 146, 200], pending: [70, 286, 200], approved: [2, 436, 108],
    flagged: [116, 436, 108], needs: [230, 436, 108], reviewed: [70, 582, 200] },
  took: { judging: [205, 266], routing: [215, 412], review: [215, 560] },
};
const NARROW = 700;
const EDGES = [
  ["accepted", "submissions", "accepted"], ["submissions", "pending", "judged"], ["pending", "approved", "approved"],
  ["pending", "flagged", "flagged"], ["pending", "needs", "needs-review"], ["flagged", "reviewed", "reviewed"], ["needs", "reviewed", "reviewed"],
];
const TILES = [
  ["accepted", "Accepted", "by ingest"],
  ["judged", "Judged", "on Spark"],
  ["approved", "Approved", "by the router"],
  ["flagged", "Flagged", "by the router"],
  ["needs-review", "To people", "by the router"],
  ["reviewed", "Decided", "by people"],
  ["told", "Notices", "to the webhook"],
];
const STEPS = [
  ["judging", "Accepted until judged"], ["routing", "Judged until routed"], ["whole", "Accepted until routed"],
  ["review", "Routed until a person decided"], ["notice", "Flagged until people were told"],
];

export default class Flow {
  constructor(view, session, tell) {
    this.view = view;
    this.tell = tell;
    view.replaceChildren(element("div", { class: "page" }, element("h1", {}, "Flow"), element("p", { class: "muted" }, "Loading …")));
  }

  async update() {
    const { flow } = await read("/api/flow/figures");
    const left = this.view.querySelector(".scroll")?.scrollLeft ?? 0;
    this.view.replaceChildren(element("div", { class: "page" },
      element("div", { class: "page-head" }, element("h1", {}, "Flow"),
        element("p", { class: "muted" }, `Every post from submit to outcome. Rates and times are of the last ${flow.minutes} minutes.`)),
      explained(flow.explained, flow.minutes),
      element("section", { class: "card scroll", tabindex: 0, "aria-label": "The way of posts" }, picture(flow)),
      element("section", { class: "tiles", "aria-label": "Rates" }, TILES.map(([name, title, note]) => tile(flow.rates[name], title, note))),
      element("section", { class: "card flush scroll", "aria-label": "Latencies" }, times(flow.latencies))));
    this.view.querySelector(".scroll").scrollLeft = left;
  }
}

// Why not everything that was submitted has an outcome of its own. The parts add up to the whole.
function explained({ submitted, repeats, replaced, judged, waiting, approved, flagged, needs_review: needs }, minutes) {
  const parts = [[repeats, plural(repeats, "repeat")], [replaced, `${count(replaced)} replaced by a newer version`], [judged, `${count(judged)} judged`], [waiting, `${count(waiting)} waiting for that`]];
  const outcomes = [[approved, `${count(approved)} approved`], [flagged, `${count(flagged)} flagged`], [needs, `${count(needs)} left to people`]];
  const listed = (found) => found.filter(([number]) => number).map(([, text]) => text).join(", ");
  const text = submitted === 0 ? `Nothing was submitted in the last ${minutes} minutes.`
    : `${count(submitted)} submitted in the last ${minutes} minutes: ${listed(parts)}.${judged ? ` Of those judged, ${listed(outcomes)}.` : ""}`;
  return element("p", { class: "card explained", id: "explained" }, text);
}

function picture(flow) {
  const at = (prefix) => `${count(flow.objects[prefix])}${flow.at_least.includes(prefix) ? "+" : ""}`;
  const recent = (name) => flow.rates[name].reduce((sum, each) => sum + each, 0);
  const minute = (name) => `${(recent(name) / flow.minutes).toFixed(1)} per minute`;
  const numbers = {
    accepted: [count(flow.submitted), minute("accepted")],
    submissions: [count(flow.unjudged), flow.unjudged ? "waiting for the classifier" : "nothing waits"],
    pending: [at("pending/"), flow.objects["pending/"] ? "waiting for the router" : "nothing waits"],
    approved: [at("approved/"), minute("approved")],
    flagged: [at("flagged/"), minute("flagged")],
    needs: [at("needs-review/"), flow.objects["escalated/"] ? `${count(flow.objects["escalated/"])} escalated` : minute("needs-review")],
    reviewed: [at("reviewed/"), minute("reviewed")],
  };
  const down = window.innerWidth < NARROW;
  const { size, places, took: labels } = down ? DOWN : ACROSS;
  const edges = EDGES.map(([from, to, rate]) => {
    const [ax, ay, aw] = places[from];
    const [bx, by, bw] = places[to];
    const busy = recent(rate);
    return drawing("path", { class: busy ? "edge busy" : "edge", d: down
      ? curve([ax + aw / 2, ay + HEIGHT], [bx + bw / 2, by], down) : curve([ax + aw, ay + HEIGHT / 2], [bx, by + HEIGHT / 2], down),
      "stroke-width": 2 + Math.min(14, 3 * Math.log2(1 + busy / flow.minutes)) });
  });
  const times = Object.entries(labels).map(([step, [x, y]]) => flow.latencies[step] ? drawing("text", { class: "took", x, y }, took(flow.latencies[step].p50)) : null);
  const nodes = Object.entries(NODES).map(([name, { name: title, kind }]) => {
    const [x, y, width] = places[name];
    const inside = x + (width < 150 ? 9 : 16);
    return drawing("g", {},
      drawing("rect", { class: `node ${kind ?? ""}`, x, y, width, height: HEIGHT, rx: 12 }),
      drawing("text", { class: "name", x: inside, y: y + 25 }, title),
      drawing("text", { class: "number", x: inside, y: y + 54, "data-node": name }, numbers[name][0]),
      drawing("text", { class: "note", x: inside, y: y + 76 }, numbers[name][1]));
  });
  const spoken = Object.entries(NODES).map(([name, node]) => `${node.name} ${numbers[name][0]}`).join(", ");
  return drawing("svg", { class: down ? "flow-svg down" : "flow-svg", viewBox: `0 0 ${size[0]} ${size[1]}`, role: "img", "aria-label": spoken }, edges, nodes, times);
}

function curve([ax, ay], [bx, by], down) {
  const half = down ? (ay + by) / 2 : (ax + bx) / 2;
  return down ? `M${ax} ${ay} C${ax} ${half} ${bx} ${half} ${bx} ${by}` : `M${ax} ${ay} C${half} ${ay} ${half} ${by} ${bx} ${by}`;
}

function tile(series, title, note) {
  const total = series.reduce((sum, each) => sum + each, 0);
  const most = Math.max(1, ...series);
  const bars = series.map((each, at) => {
    const height = each ? Math.max(2, (each / most) * 38) : 1;
    return drawing("rect", { class: each ? "" : "none", x: at * 10, y: 40 - height, width: 8, height, rx: 1.5 });
  });
  return element("div", { class: "card tile" }, element("h3", {}, title), element("div", { class: "big" }, count(total)),
    drawing("svg", { class: "spark", viewBox: `0 0 ${series.length * 10 - 2} 40`, preserveAspectRatio: "none", role: "img", "aria-label": `by minute: ${series.join(", ")}` }, bars),
    element("div", { class: "spark-axis small muted", "aria-hidden": "true" }, element("span", {}, `${series.length} min ago`), element("span", {}, "now")),
    element("p", { class: "small muted" }, total ? `${note}, at most ${count(most)} a minute` : note));
}

function times(latencies) {
  const head = ["Step", "Posts", "Half within", "Nine of ten within", "Longest"];
  const number = (label, value) => element("td", { class: "number", "data-label": label }, value);
  const rows = STEPS.map(([name, title]) => {
    const found = latencies[name];
    return element("tr", {}, element("td", {}, title), number("Posts", found ? count(found.count) : "0"), number("Half within", found ? took(found.p50) : "–"),
      number("Nine of ten within", found ? took(found.p90) : "–"), number("Longest", found ? took(found.most) : "–"));
  });
  return element("table", { class: "stack" },
    element("thead", {}, element("tr", {}, head.map((name, at) => element("th", { scope: "col", class: at ? "number" : "" }, name)))), element("tbody", {}, rows));
}
