// Tiles of the fabric's picture: nodes below the network domains that they are in, a cell per GPU,
// each group a colour. A domain is its whole path: names repeat under different parents.

import { groupColour, groupKey } from "../colours.js";
import { h, to } from "../dom.js";
import { count, freeForPods, freeWords } from "../words.js";

/** A look is {stressed: a group's key or null}. */
export const fabricTiles = { width: 146, height: 56, indent: 20, grouped, heading, tile };

/** The levels that some node names, the widest first, and how many nodes name none. */
export function levelsOf(nodes) {
  const depths = new Map();
  let nWithout = 0;
  for (const node of nodes) {
    if (node.domains.length === 0) nWithout += 1;
    node.domains.forEach((one, i) => depths.set(one.level, Math.max(depths.get(one.level) ?? 0, i)));
  }
  const levels = [...depths].sort((a, b) => b[1] - a[1]).map(([level]) => level);
  return { levels, nWithout };
}

function grouped(nodes) {
  const root = { children: new Map(), own: [], all: nodes };
  for (const node of nodes) {
    let at = root;
    for (const step of node.domains.toReversed()) {
      const key = `${step.level} ${step.family} ${step.name}`;
      if (!at.children.has(key)) at.children.set(key, { step, children: new Map(), own: [], all: [] });
      at = at.children.get(key);
      at.all.push(node);
    }
    at.own.push(node);
  }
  const found = [];
  walk(found, root, { key: "", steps: [], depth: 0 });
  return found;
}

/** A domain, then those below it, each after its parent; one that has a single part is one with it. */
function walk(found, domain, { key, steps, depth }) {
  const parts = [...domain.children].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
  if (parts.length === 1 && domain.own.length === 0) {
    const [[name, part]] = parts;
    walk(found, part, { key: `${key}/${name}`, steps: [...steps, part.step], depth });
    return;
  }
  const add = (own, nodes, at) => found.push({ ...own, depth: at, headHeight: at === 0 ? 46 : 34, nodes });
  const below = steps.length > 0 ? depth + 1 : depth;
  if (steps.length > 0) add({ key, steps, all: domain.all }, parts.length > 0 ? [] : domain.own, depth);
  // Nodes that name no part are beside the parts, by themselves: unknown is not near.
  if (domain.own.length > 0 && (parts.length > 0 || steps.length === 0)) {
    add({ key: `${key}/`, steps: [], all: domain.own }, domain.own, below);
  }
  for (const [name, part] of parts) walk(found, part, { key: `${key}/${name}`, steps: [part.step], depth: below });
}

function heading(group) {
  const gpus = group.all.reduce((n, node) => n + node.gpus.length, 0);
  const free = group.all.reduce((n, node) => n + freeForPods(node), 0);
  const title = group.steps.length > 0 ? group.steps.map((step) => `${step.level} ${step.name}`).join(", ")
    : group.depth > 0 ? "in no known domain below" : "in no known domain";
  return h("div", { class: `group domain ${group.nodes.length > 0 ? "switch" : ""}` },
    h(group.depth === 0 ? "h2" : "h3", {}, title),
    h("p", {}, `${count(group.all.length, "node")}, ${free.toLocaleString("en")} of ${count(gpus, "GPU")} free`));
}

function tile(node, look) {
  const bad = node.gpus.filter((gpu) => gpu.reason || gpu.state === "unhealthy").length;
  const groups = [...new Set(node.gpus.map(groupKey).filter(Boolean))].sort();
  const says = [freeWords(node), groups.length > 0 && `groups ${groups.join(", ")}`, bad > 0 && `${bad} unhealthy`];
  const element = to(["node", node.name], [], {
    class: `tile small ${bad > 0 ? "problem" : ""} ${node.is_unschedulable ? "unschedulable" : ""}`, "data-node": node.name,
    "aria-label": `${node.name}, ${says.filter(Boolean).join(", ")}`,
  });
  const cells = node.gpus.map((gpu) => {
    const key = groupKey(gpu);
    const isBad = gpu.reason || gpu.state === "unhealthy";
    const isFaded = look.stressed && key !== look.stressed;
    return h("span", { class: `cell ${gpu.state} ${groupColour(gpu)} ${isBad ? "bad" : ""} ${isFaded ? "faded" : ""}`,
      "data-gpu": gpu.index, "data-group": key });
  });
  element.append(h("span", { class: "name" }, node.name), h("span", { class: `cells ${node.gpus.length > 16 ? "many" : ""}` }, cells));
  return element;
}
