// Where a pod of a size would go now: each node's best free set, best first.

import { list } from "../api.js";
import { h, notice, table, to } from "../dom.js";
import { count, percent, rate, set } from "../words.js";
import { reader } from "./live.js";

const SIZES = ["1", "2", "4", "8"];
const SHOWN = 50;

export const title = () => "What if";

export function show(_parts, query, root) {
  const errors = h("div");
  const content = h("div", { role: "status" });
  const option = (value, text = value) => h("option", { value }, text);
  const size = h("select", {}, SIZES.map((one) => option(one)));
  const affinity = h("select", {}, option("any"), option("nvlink"));
  const machine = h("select", {}, option("", "all machines"));
  const form = h("form", { class: "filters", "aria-label": "The pod" },
    h("label", {}, "GPUs", size), h("label", {}, "Affinity", affinity), h("label", {}, "Machine", machine));
  root.append(h("h1", {}, "What if a pod came now?"), form, errors, content);
  size.value = SIZES.includes(query.get("size")) ? query.get("size") : "4";
  affinity.value = query.get("affinity") === "nvlink" ? "nvlink" : "any";
  let nodes = [];
  let types = new Map();

  const render = () => {
    const n = Number(size.value);
    const fits = nodes
      .filter((node) => !machine.value || node.machine === machine.value)
      .map((node) => ({ node, best: bestOf(node, n) }))
      .filter(({ node, best }) => best && (affinity.value === "any" || n === 1 || joined(best.gpus, types.get(node.topology))))
      .sort((a, b) => (b.best.gbytes_per_s ?? 0) - (a.best.gbytes_per_s ?? 0) || a.node.free - b.node.free);
    if (fits.length === 0) {
      content.replaceChildren(notice(`No node has a best free set of ${count(n, "GPU")} that suits. The pod would wait.`));
      return;
    }
    const rows = fits.slice(0, SHOWN).map(({ node, best }) => [
      to(["node", node.name], node.name), node.machine, set(best.gpus), n === 1 ? "" : rate(best.gbytes_per_s), n === 1 ? "" : percent(best.share), node.free - n]);
    content.replaceChildren(
      h("p", { class: "detail" }, `${count(fits.length, "node")} of ${nodes.length.toLocaleString("en")} can take ${count(n, "GPU")}${fits.length > SHOWN ? `; the first ${SHOWN}` : ""}.`),
      table("Nodes that fit", [["Node"], ["Machine"], ["Best free set"], ["Predicted", true], ["Share", true], ["GPUs left", true]], rows),
      notice("By GB/s, best first. The scheduler also weighs what is left for later pods, and other filters may exclude a node."));
  };
  const work = reader(errors, async (signal) => {
    const machines = await list("machines", { signal });
    types = new Map(machines.map((one) => [one.topology, one]));
    nodes = await list("nodes", { signal });
    const names = [...new Set(nodes.map((node) => node.machine))].sort();
    const chosen = machine.value || query.get("machine") || "";
    machine.replaceChildren(option("", "all machines"), ...names.map((name) => option(name)));
    machine.value = names.includes(chosen) ? chosen : "";
    render();
  }, { everyMs: 3000 });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => {
    history.replaceState(null, "", `#/what-if?${new URLSearchParams({ size: size.value, affinity: affinity.value, machine: machine.value })}`);
    render();
  });
  return { changed: () => work.again(), closed: work.close };
}

function bestOf(node, n) {
  if (n > 1) return node.best?.[n] ?? null;
  const one = node.gpus.find((gpu) => gpu.state === "free" && !gpu.reason);
  return one ? { gpus: [one.index], gbytes_per_s: null, share: null } : null;
}

/** Whether accelerator links join these GPUs, directly or over each other. */
function joined(gpus, machine) {
  const links = (machine?.links ?? []).filter((link) => /^(NV|XGMI)/.test(link.label ?? ""));
  const seen = new Set([gpus[0]]);
  for (let grows = true; grows; ) {
    grows = false;
    for (const { a, b } of links) {
      if (gpus.includes(a) && gpus.includes(b) && seen.has(a) !== seen.has(b)) {
        seen.add(a).add(b);
        grows = true;
      }
    }
  }
  return seen.size === gpus.length;
}
