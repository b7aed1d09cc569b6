// A pod: its set beside the runner-up, the plan and what the kubelet gave, or why it waits.

import { get, list } from "../api.js";
import { h, notice, table, to } from "../dom.js";
import { count, percent, rate, set, since } from "../words.js";
import { drawing } from "./drawing.js";
import { reader } from "./live.js";
import { setWords } from "./node.js";

export const title = (parts) => parts.slice(1).join("/") || "Pod";

export function show([namespace = "", name = ""], _query, root) {
  const errors = h("div");
  const content = h("div");
  root.append(h("h1", {}, `${namespace}/${name}`), errors, content);
  const path = `${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const work = reader(errors, async (signal) => {
    const waits = (await list("pending", { signal })).find((pod) => pod.namespace === namespace && pod.name === name);
    const placed = waits ? null : await orNull(get(`pods/${path}`, { signal }));
    if (placed) {
      const machines = await list("machines", { signal });
      content.replaceChildren(...placedParts(placed, machines.find((one) => one.topology === placed.topology)));
    } else {
      content.replaceChildren(...(waits ? pendingParts(waits) : [notice("No pod of this name has GPUs or waits for them. It may have ended, or not have been scheduled yet.")]));
    }
    const more = h("div", {}, notice("Reading the explanation …"));
    content.append(more);
    try {
      more.replaceChildren(...explained(await get(`explain/${path}`, { signal, isKept: false })));
    } catch (error) {
      if (error.name === "AbortError") throw error;
      more.replaceChildren(h("h2", {}, "Explanation"), notice(error.message));
    }
  });
  return { changed: () => work.again(), closed: work.close };
}

/** Null for 404: the caller says what is not there. */
async function orNull(answer) {
  try {
    return await answer;
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

function placedParts(pod, machine) {
  const agrees = { true: "The kubelet gave what was planned.", false: "The kubelet gave other GPUs than planned.", null: "Nothing was planned, or what the pod has is not known." };
  const planned = pod.planned_ids.length
    ? `Planned ${pod.as_planned === false ? pod.planned_ids.join(", ") : set(pod.gpus)}, has ${set(pod.gpus)}. ` : "";
  const parts = [
    h("p", { class: "detail" }, "On ", to(["node", pod.node], pod.node), `, ${pod.machine}, ${pod.state}: ${setWords(pod)}`),
    h("p", { class: pod.as_planned === false ? "notice error" : "" }, `${planned}${agrees[pod.as_planned]}`),
  ];
  if (machine?.scene) {
    const drawn = drawing(machine, {
      label: `The set ${set(pod.gpus)} on ${pod.machine}`,
      gpuLook: (index) => ({ class: pod.gpus.includes(index) ? "held pod-0" : "free", text: `GPU ${index}${pod.gpus.includes(index) ? ", this pod's" : ""}` }),
    });
    drawn.mark(pod.gpus);
    parts.push(h("div", { class: "drawing" }, drawn.svg, drawn.legend));
  }
  const rows = pod.containers.map((one) => [one.name, set(one.gpus), rate(one.gbytes_per_s), percent(one.share), one.limited_by ?? ""]);
  parts.push(h("h2", {}, "Containers"), table("Containers", [["Container"], ["GPUs"], ["Predicted", true], ["Share", true], ["Limited by"]], rows));
  return parts;
}

function pendingParts(pod) {
  const size = pod.size_gpus === null ? "an invalid request" : count(pod.size_gpus, "GPU");
  const wants = [size, pod.affinity && `affinity ${pod.affinity}`, pod.policy && `policy ${pod.policy}`,
    pod.min_bandwidth_gbytes_per_s !== null && `at least ${rate(pod.min_bandwidth_gbytes_per_s)}`].filter(Boolean).join(", ");
  return [
    h("p", { class: "detail" }, `Waits ${since(pod.since_unix_s)}: ${wants}`),
    notice(`${pod.reason}.`),
    ...helps(pod.would_fit),
  ];
}

/** What would have to end for the pod to fit. */
export function helps(fits) {
  if (fits === undefined) return [];
  if (fits.length === 0) return [notice("The end of no few pods would make it fit.")];
  return [h("h2", {}, "What would help"), h("ul", {}, fits.map((one) =>
    h("li", {}, to(["node", one.node], one.node), ` has ${set(one.gpus)}, ${rate(one.gbytes_per_s)}, when ${one.when_ended.join(" and ")} ${one.when_ended.length === 1 ? "ends" : "end"}`)))];
}

function explained(answer) {
  const summary = answer.summary;
  if (!summary) return [h("h2", {}, "Explanation"), notice("This extender explains without a summary; `coterie-extender explain` prints it whole.")];
  const parts = [h("h2", {}, "Explanation"), h("p", {}, `${summary.n_fit} of ${count(summary.n_nodes, "node")} fit.`)];
  const rows = summary.groups.map((group) => [group.n, group.reason, group.sentence ?? ""]);
  if (rows.length) parts.push(table("Why nodes do not fit", [["Nodes", true], ["Reason"], ["Nearest"]], rows));
  if (summary.try) parts.push(h("p", {}, `Try ${summary.try.change}: `, to(["node", summary.try.node], summary.try.node), ` ${set(summary.try.gpus)}, ${rate(summary.try.gbytes_per_s)}, ${percent(summary.try.share)} of its best.`));
  if (summary.runner_up) parts.push(h("p", {}, "Runner-up: ", to(["node", summary.runner_up.node], summary.runner_up.node), ` ${set(summary.runner_up.gpus)}, ${rate(summary.runner_up.gbytes_per_s)}: ${summary.runner_up.why}`));
  return parts;
}
