// The pods that wait: why, since when, and what they request.

import { list } from "../api.js";
import { h, notice, podLink, table } from "../dom.js";
import { count, since } from "../words.js";
import { reader } from "./live.js";

export const title = () => "Pending";

export function show(_parts, _query, root) {
  const errors = h("div");
  const content = h("div");
  const head = h("h1", {}, "Pending pods");
  root.append(head, errors, content);
  const work = reader(errors, async (signal) => {
    const pods = await list("pending", { signal });
    head.textContent = pods.length === 1 ? "1 pod waits" : `${pods.length || "No"} pods wait`;
    if (pods.length === 0) {
      content.replaceChildren(notice("Every pod that was filtered has found GPUs."));
      return;
    }
    const rows = pods.sort((a, b) => a.since_unix_s - b.since_unix_s).map((pod) => [
      podLink(`${pod.namespace}/${pod.name}`),
      since(pod.since_unix_s),
      pod.size_gpus === null ? "invalid" : count(pod.size_gpus, "GPU"),
      [pod.affinity, pod.policy].filter(Boolean).join(", "),
      pod.reason,
      pod.would_fit === undefined ? "" : pod.would_fit.slice(0, 1).map((one) => `${one.node}, when ${one.when_ended.join(" and ")} end`).join(""),
    ]);
    content.replaceChildren(table("Pending pods", [["Pod"], ["Waits"], ["Requests"], ["Affinity, policy"], ["Why"], ["Would fit"]], rows));
  });
  return {
    changed(change) {
      if (change.pending) work.again();
    },
    closed: work.close,
  };
}
