// A node: its drawing, its GPUs and pods with their figures, and what is best of what is free.

import { get, list } from "../api.js";
import { groupKey, podColours } from "../colours.js";
import { h, notice, podLink, table } from "../dom.js";
import { groupLink } from "../groups/group_words.js";
import { freeWords, set } from "../words.js";
import { deadWords, drawing } from "./drawing.js";
import { reader } from "./live.js";
import { setWords } from "./offers.js";

export const title = (parts) => parts[1] ?? "Node";

export function show([name = ""], _query, root) {
  const errors = h("div");
  const content = h("div");
  root.append(h("h1", {}, name), errors, content);
  const work = reader(errors, async (signal) => {
    const node = await get(`nodes/${encodeURIComponent(name)}`, { signal });
    const [machines, pods] = await Promise.all([
      list("machines", { signal }),
      list(`pods?node=${encodeURIComponent(name)}`, { signal }),
    ]);
    const focused = document.activeElement?.dataset?.set;
    content.replaceChildren(...parts(node, machines, pods));
    if (focused !== undefined) content.querySelector(`[data-set="${CSS.escape(focused)}"]`)?.focus();
  });
  return {
    changed(change) {
      if (change.nodes === null || change.nodes.includes(name)) work.again();
    },
    closed: work.close,
  };
}

function parts(node, machines, pods) {
  const machine = machines.find((one) => one.topology === node.topology);
  const manager = node.topology_manager.policy;
  const facts = [node.machine, freeWords(node)];
  if (node.zone) facts.push(`zone ${node.zone}`);
  facts.push(...node.domains.filter((one) => one.level !== "zone").map((one) => `${one.level} ${one.name}`));
  facts.push(manager ? `Topology Manager ${manager}, scope ${node.topology_manager.scope}` : "Topology Manager not reported");
  const found = [h("p", { class: "detail" }, facts.join(", "))];
  if (node.is_unschedulable) found.push(notice("New pods do not come here: the node is cordoned, not ready, unreachable or under pressure."));
  found.push(...node.problems.map((one) => notice(one, "error")));
  const colours = podColours(node.gpus);
  const picture = machine?.scene ? picturePart(node, machine, machines, pods, colours) : [];
  if (!machine?.scene) found.push(notice("This node's topology is not known, or too large to draw: only its GPUs are listed."));
  const dead = machine && deadWords(machine, machines);
  if (dead) found.push(notice(dead, "error"));
  found.push(...picture, h("h2", {}, "GPUs"), gpuTable(node, machine, colours));
  if (machine) found.push(h("h2", {}, "NICs"), nicTable(machine));
  for (const other of node.other_resources) {
    found.push(h("h2", {}, other.resource), h("p", {}, freeWords({ ...other, is_unschedulable: node.is_unschedulable })));
  }
  return found;
}

function picturePart(node, machine, machines, pods, colours) {
  const drawn = drawing(machine, {
    machines,
    label: `${node.name}, ${node.machine}: ${node.gpus.length} GPUs and their links. The same is in the tables below.`,
    gpuLook(index) {
      const gpu = node.gpus[index];
      const isBad = gpu.reason || gpu.state === "unhealthy";
      const who = gpu.pod ? gpu.pod : isBad ? "" : "free";
      return { class: `${gpu.state} ${colours(gpu)} ${isBad ? "bad" : ""}`, text: [`GPU ${index}`, who, gpu.reason].filter(Boolean).join(", ") };
    },
  });
  const figure = h("p", { class: "figure", role: "status" }, "Point at a set, or move to it with Tab, to see it in the drawing.");
  const button = (key, look, head, gpus, says) => {
    const stress = () => {
      drawn.mark(gpus);
      figure.textContent = says;
    };
    const calm = () => drawn.mark(null);
    return h("li", {}, h("button", {
      type: "button", class: "set", "data-set": key,
      on: { mouseenter: stress, mouseleave: calm, focus: stress, blur: calm, click: stress },
    }, h("span", { class: `cell ${look}` }), h("span", { class: "who" }, head), h("span", { class: "what" }, says)));
  };
  const sets = pods.map((pod) => {
    const key = `${pod.namespace}/${pod.name}`;
    const first = node.gpus.find((gpu) => gpu.pod === key);
    return button(key, `held ${first ? colours(first) : ""}`, key, pod.gpus, setWords(pod));
  });
  const free = Object.entries(node.best ?? {}).map(([size, best]) =>
    button(`free ${size}`, "free", `Best free set of ${size}`, best.gpus, setWords(best)));
  return [h("div", { class: "split" },
    h("div", { class: "drawing" }, drawn.svg, drawn.legend),
    h("div", {}, h("h2", {}, "Sets"), figure,
      h("ul", { class: "sets" }, sets, free),
      pods.length === 0 && notice("No pod has GPUs of this node.")))];
}

function gpuTable(node, machine, colours) {
  const rows = node.gpus.map((gpu) => [
    h("span", {}, h("span", { class: `cell ${gpu.state} ${colours(gpu)} ${gpu.reason ? "bad" : ""}` }), ` ${gpu.index}`),
    gpu.reason ? `${gpu.state}: ${gpu.reason}` : gpu.state,
    gpu.pod ? podLink(gpu.pod) : "",
    groupKey(gpu) ? groupLink(groupKey(gpu)) : "",
    machine?.gpus[gpu.index]?.model ?? "unknown",
    machine?.gpus[gpu.index]?.numa_node ?? "unknown",
    h("code", {}, gpu.id),
  ]);
  return table(`GPUs of ${node.name}`, [["GPU"], ["State"], ["Pod"], ["Group"], ["Model"], ["NUMA"], ["Id"]], rows);
}

function nicTable(machine) {
  if (machine.nics === null) return notice("This node does not report its NICs.");
  if (machine.nics.length === 0) return notice("No NICs.");
  const near = ["PIX", "PXB", "PHB", "NODE", "SYS"];
  const rows = machine.nics.map((nic) => {
    const level = near.find((one) => nic.pcie.includes(one));
    const gpus = nic.pcie.flatMap((one, index) => (one === level && level ? [index] : []));
    return [nic.name, nic.numa_node ?? "unknown", nic.is_rdma === null ? "unknown" : nic.is_rdma ? "yes" : "no", level ? `${set(gpus)} by ${level}` : "unknown"];
  });
  return table("NICs", [["NIC"], ["NUMA"], ["RDMA"], ["Nearest GPUs"]], rows);
}
