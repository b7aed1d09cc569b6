// How many sets can be placed, now and over time, for each machine type.

import { get } from "../api.js";
import { h, notice, s, table } from "../dom.js";
import { clock, percent, since } from "../words.js";
import { reader } from "./live.js";

const LINES = [["placeable 2", 3], ["placeable 4", 4], ["placeable 8", 5], ["stranded GPUs", 2]];
const WIDTH = 560;
const HEIGHT = 150;
const POINTS = 280; // of a line; more points than pixels draw nothing new

export const title = () => "Capacity";

export function show(_parts, _query, root) {
  const errors = h("div");
  const now = h("div");
  const errorsOverTime = h("div");
  const overTime = h("div");
  root.append(h("h1", {}, "Capacity"), errors, now, h("h2", {}, "Over time"), errorsOverTime, overTime);
  const current = reader(errors, async (signal) => {
    const { machines } = await get("capacity", { signal });
    const rows = machines.map((one) => [one.machine, one.nodes, one.gpus, one.free, one.unhealthy, one.unavailable,
      one.placeable["2"], one.placeable["4"], one.placeable["8"],
      one.stranded_since_unix_s ? `${one.stranded} since ${since(one.stranded_since_unix_s)}` : one.stranded, percent(one.efficiency)]);
    now.replaceChildren(
      h("p", { class: "detail" }, "Sets within 10 % of the machine's best count as placeable. Stranded GPUs are free where no set of four is placeable; unavailable ones would be free, but their nodes take no new pod."),
      table("Capacity by machine type", [["Machine"], ["Nodes", true], ["GPUs", true], ["Free", true], ["Unhealthy", true], ["Unavailable", true],
        ["Sets of 2", true], ["Sets of 4", true], ["Sets of 8", true], ["Stranded", true], ["Efficiency", true]], rows));
  }, { everyMs: 1000 });
  const past = reader(errorsOverTime, async (signal) => {
    const history = await get("history", { signal });
    const charts = history.machines.map((one) => chart(one, captionOf(one, history.machines)));
    overTime.replaceChildren(
      notice(`In memory since ${clock(history.began_unix_s)}, a point a minute, at most 7 days; a restart of the extender loses it.`),
      h("ul", { class: "legend" }, LINES.map(([name], i) => h("li", {}, h("span", { class: `swatch line-${i}` }), name))),
      h("div", { class: "charts" }, charts));
  }, { everyMs: 30000 });
  return {
    changed() {
      current.again();
      past.again();
    },
    closed() {
      current.close();
      past.close();
    },
  };
}

/** The machine type; also the resource, and the topology, where others have the same name. */
function captionOf(one, all) {
  const alike = all.filter((other) => other.machine === one.machine);
  const parts = [one.machine];
  if (new Set(alike.map((other) => other.resource)).size > 1) parts.push(one.resource);
  if (new Set(alike.map((other) => other.topology)).size > 1 && one.topology) parts.push(`topology ${one.topology.slice(0, 12)}`);
  return parts.join(", ");
}

function chart({ points }, caption) {
  if (points.length < 2) return h("figure", {}, h("figcaption", {}, caption), notice("One point so far: the line begins with the next minute."));
  const step = Math.max(1, Math.ceil(points.length / POINTS));
  const shown = points.filter((_, i) => i % step === 0 || i === points.length - 1);
  const [from, until] = [shown[0][0], shown.at(-1)[0]];
  const top = Math.max(1, ...shown.flatMap((point) => LINES.map(([, at]) => point[at])));
  const x = (t) => 34 + ((t - from) / Math.max(1, until - from)) * (WIDTH - 44);
  const y = (n) => HEIGHT - 20 - (n / top) * (HEIGHT - 34);
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "chart",
    "aria-label": `${caption}: ${LINES.map(([name, at]) => `${name} ${points.at(-1)[at]}`).join(", ")} now` });
  for (const n of new Set([0, Math.round(top / 2), top])) {
    svg.append(s("path", { class: "grid", d: `M34 ${y(n)}H${WIDTH - 10}` }), s("text", { x: 28, y: y(n), "text-anchor": "end", "dominant-baseline": "central" }, String(n)));
  }
  svg.append(s("text", { x: 34, y: HEIGHT - 4 }, clock(from)), s("text", { x: WIDTH - 10, y: HEIGHT - 4, "text-anchor": "end" }, clock(until)));
  LINES.forEach(([, at], i) => {
    let path = "";
    shown.forEach((point, k) => (path += k === 0 ? `M${x(point[0])} ${y(point[at])}` : `H${x(point[0])}V${y(point[at])}`));
    svg.append(s("path", { class: `series line-${i}`, d: path }));
  });
  return h("figure", {}, h("figcaption", {}, caption), svg);
}
