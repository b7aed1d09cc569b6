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
  return [...byKey.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
}

function heading(group) {
  const gpus = group.nodes.reduce((n, node) => n + node.gpus.length, 0);
  const free = group.nodes.reduce((n, node) => n + freeForPods(node), 0);
  return h("div", { class: "group" },
    h("h2", {}, group.machine),
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
    h("span", { class: "name" }, node.name),
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
