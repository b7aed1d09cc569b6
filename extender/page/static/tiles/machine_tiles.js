// Tiles of the cluster's view: nodes by machine type, a cell per GPU by pod, group or efficiency.

import { groupColour, podColours, shareColour } from "../colours.js";
import { h, to } from "../dom.js";
import { count, freeForPods, freeWords } from "../words.js";

/** A look is {colour: "owner" | "group" | "share", shares, namespace}. */
export const machineTiles = { width: 176, height: 76, indent: 0, grouped, heading, tile };

function grouped(nodes) {
  const byKey = new Map();
  for (const node of nodes) {
    const key = `${node.machine} ${node.topology}`;
    if (!byKey.has(key)) byKey.set(key, { key, machine: node.machine, depth: 0, headHeight: 52, nodes: [] });
    byKey.get(key).nodes.push(node);
  }
  for (const group of byKey.values()) {
    group.nodes.sort((a, b) => inOrder(a.name, b.name));
    const names = group.nodes.map((node) => node.name);
    [group.start, group.end] = shared(names);
    for (const node of group.nodes) own.set(node, node.name.slice(group.start.length, node.name.length - group.end.length));
  }
  return [...byKey.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
}

const inOrder = new Intl.Collator("en", { numeric: true }).compare;
const own = new WeakMap(); // of nodes: their names without what all of their machine share
const LONG = 14; // characters that a tile has room for

/** What all names begin with, up to a dash or dot, and end with, from a dot on; nothing where they are short. */
function shared(names) {
  if (names.length < 2 || !names.some((name) => name.length > LONG)) return ["", ""];
  const [first] = names;
  let n = 0;
  while (n < first.length && names.every((name) => name[n] === first[n])) n += 1;
  const start = first.slice(0, Math.max(first.lastIndexOf("-", n - 1), first.lastIndexOf(".", n - 1)) + 1);
  const dot = first.indexOf(".", start.length);
  const end = dot < 0 ? "" : first.slice(dot);
  return [start, names.every((name) => name.endsWith(end) && name.length > start.length + end.length) ? end : ""];
}

/** A name whose end can be told from others of equal beginning. */
function cut(name) {
  return name.length <= LONG ? name : `${name.slice(0, 4)}…${name.slice(5 - LONG)}`;
}

function heading(group) {
  const gpus = group.nodes.reduce((n, node) => n + node.gpus.length, 0);
  const free = group.nodes.reduce((n, node) => n + freeForPods(node), 0);
  return h("div", { class: "group" },
    h("h2", {}, group.machine),
    (group.start || group.end) && h("p", {}, `${group.start}…${group.end}`),
    h("p", {}, `${count(group.nodes.length, "node")}, ${free.toLocaleString("en")} of ${count(gpus, "GPU")} free`));
}

function tile(node, look) {
  const bad = node.gpus.filter((gpu) => gpu.reason || gpu.state === "unhealthy").length;
  const says = [freeWords(node)];
  if (bad) says.push(`${bad} unhealthy`);
  if (node.problems.length) says.push(node.problems[0]);
  const element = to(["node", node.name], [], {
    class: "tile", "data-node": node.name, "aria-label": `${node.name}, ${node.machine}, ${says.join(", ")}`,
    title: `${node.name}: ${says.join(", ")}`,
  });
  element.append(
    h("span", { class: "name" }, cut(own.get(node) ?? node.name)),
    h("span", { class: "free" }, node.is_unschedulable ? "no new pod" : node.free === 0 ? "full" : `${node.free} free`),
    h("span", { class: `cells ${node.gpus.length > 16 ? "many" : ""}` }, cells(node, look)),
  );
  if (node.is_unschedulable) element.classList.add("unschedulable");
  if (bad || node.problems.length) element.classList.add("problem");
  return element;
}

function cells(node, look) {
  const ofPod = podColours(node.gpus);
  const colours = { owner: ofPod, group: groupColour, share: (gpu) => shareColour(look.shares.get(gpu.pod)) };
  return node.gpus.map((gpu) => {
    const isBad = gpu.reason || gpu.state === "unhealthy";
    const isFaded = look.namespace && !gpu.pod?.startsWith(`${look.namespace}/`);
    const colour = gpu.pod === null ? "" : colours[look.colour](gpu);
    return h("span", { class: `cell ${gpu.state} ${colour} ${isBad ? "bad" : ""} ${isFaded ? "faded" : ""}` });
  });
}
