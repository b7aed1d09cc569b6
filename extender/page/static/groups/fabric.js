// The fabric as a picture: the network's domains, the nodes in each, a cell per GPU by its pod's group.

import { list } from "../api.js";
import { colourGroups } from "../colours.js";
import { h, notice } from "../dom.js";
import { count, rate } from "../words.js";
import { reader } from "../views/live.js";
import { nodeStore } from "../views/node_store.js";
import { fabricTiles, levelsOf } from "../tiles/fabric_tiles.js";
import { tiles } from "../tiles/tiles.js";
import { domain, groupLink, here, keyOf } from "./group_words.js";

const HINT = "Point at a GPU, or move to a node with Tab and the arrow keys, to see whose GPUs it has.";

export const title = () => "Fabric";

export function show(_parts, query, root) {
  const errors = h("div");
  const levels = h("div");
  const figure = h("p", { class: "figure sticky", role: "status" }, HINT);
  const sentence = h("p", { class: "count" });
  const choice = h("select", {}, h("option", { value: "" }, "all groups"));
  const box = h("div", { class: "box" });
  const form = h("form", { class: "filters", "aria-label": "Filters" }, h("label", {}, "Group", choice));
  const item = (look, text) => h("li", {}, h("span", { class: `cell ${look}` }), text);
  root.append(h("h1", {}, "Fabric"), errors, levels, form,
    h("ul", { class: "legend" }, item("held pod-0", "a group, its colour in every view"), item("held single", "a pod without a group"),
      item("free", "free"), item("bad", "unhealthy"), h("li", {}, "dashed border: the node takes no new pod")),
    sentence, figure, h("section", { "aria-label": "Fabric" }, box));

  const store = nodeStore();
  const field = tiles(box, fabricTiles);
  let groups = new Map();
  let areGroupsDue = true;
  let stressed = query.get("group");

  const render = () => {
    const nodes = [...store.byName.values()];
    const { levels: found, nWithout } = levelsOf(nodes);
    levels.replaceChildren(...said(nodes, found, nWithout, store.isWhole()));
    sentence.textContent = `${count(nodes.length, "node")}${store.isWhole() ? "" : ", reading more"}`;
    box.hidden = found.length === 0;
    field.show(found.length === 0 ? [] : nodes, { stressed });
  };
  const work = reader(errors, async (signal) => {
    if (areGroupsDue) {
      areGroupsDue = false;
      groups = new Map((await list("groups", { signal })).map((group) => [keyOf(group), group]));
      colourGroups(groups.keys());
      const keys = [...new Set([...groups.keys(), ...(stressed ? [stressed] : [])])].sort();
      choice.replaceChildren(choice.firstElementChild, ...keys.map((key) => h("option", { value: key }, key)));
      choice.value = stressed ?? "";
    }
    await store.read(signal, (items, remaining) => {
      if (items.length <= 500 || remaining === 0 || items.length % 2000 === 0) render();
      if (items.length <= 500) performance.mark("coterie-fabric");
    });
    render();
  }, { everyMs: 1000 });

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => {
    stressed = choice.value || null;
    history.replaceState(null, "", `#/fabric${stressed ? `?${new URLSearchParams({ group: stressed })}` : ""}`);
    render();
  });
  const point = (event) => {
    const name = event.target.closest?.("[data-node]")?.dataset.node;
    const node = name === undefined ? null : store.byName.get(name);
    if (!node) return;
    const index = event.target.closest("[data-gpu]")?.dataset.gpu;
    const gpus = index === undefined ? node.gpus : node.gpus.filter((gpu) => gpu.index === Number(index));
    figure.replaceChildren(`${name}: `, ...words(node, gpus, groups));
  };
  box.addEventListener("pointerover", point);
  box.addEventListener("focusin", point);

  return {
    changed(change) {
      store.changed(change);
      if (change.groups === null || change.groups.length > 0) areGroupsDue = true;
      work.again();
    },
    closed() {
      work.close();
      field.close();
    },
  };
}

/** What the picture shows, or why there is none. */
function said(nodes, levels, nWithout, isWhole) {
  if (levels.length === 0) {
    if (!isWhole) return [];
    return [notice(nodes.length === 0 ? "No node of the cluster has GPUs that Coterie places."
      : "No node has labels that say where it is in the network, so that there is no fabric to show and groups are placed as if all nodes were equally near. The labels that Coterie reads, and the setting group_levels for others, are in its documentation of the configuration.")];
  }
  const parts = [h("p", { class: "detail" }, `By ${levels.join(", ")}; a domain that is the only one of its parent is named with it.`)];
  if (nWithout > 0) parts.push(notice(`${count(nWithout, "node")} of ${nodes.length.toLocaleString("en")} ${nWithout === 1 ? "has" : "have"} no such labels, so that ${nWithout === 1 ? "it counts" : "they count"} as near no other node.`));
  return parts;
}

/** Whose GPUs these are: groups with their figures, other pods by name. */
function words(node, gpus, groups) {
  const free = gpus.filter((gpu) => gpu.state === "free").length;
  const found = [];
  const owners = Map.groupBy(gpus.filter((gpu) => gpu.pod), (gpu) => gpu.pod);
  for (const [pod, own] of owners) {
    const key = own[0].group ? `${pod.slice(0, pod.indexOf("/"))}/${own[0].group}` : null;
    const group = key && groups.get(key);
    found.push(`${pod} has GPU ${own.map((gpu) => gpu.index).join(", ")}`);
    if (key) found.push(" of group ", groupLink(key));
    if (group) found.push(` (${here(group)}, ${domain(group)}, ${rate(group.gbytes_per_s)})`);
    found.push("; ");
  }
  const bad = gpus.filter((gpu) => gpu.reason).map((gpu) => `GPU ${gpu.index} is unhealthy: ${gpu.reason}; `);
  if (node.is_unschedulable) bad.push("the node takes no new pod; ");
  return [...found, ...bad, gpus.length === 1 && free === 1 ? `GPU ${gpus[0].index} is free.` : `${free} of ${count(gpus.length, "GPU")} free.`];
}
