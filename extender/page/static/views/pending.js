// The pods that wait: why, since when, what they request, and whose end would make room.

import { list } from "../api.js";
import { h, notice, podLink, table } from "../dom.js";
import { groupLink } from "../groups/group_words.js";
import { count, since } from "../words.js";
import { reader } from "./live.js";
import { onceEnded } from "./offers.js";

export const title = () => "Pending";

export function show(_parts, _query, root) {
  const errors = h("div");
  const content = h("div");
  const head = h("h1", {}, "Pending pods");
  root.append(head, errors, content);
  const work = reader(errors, async (signal) => {
    const pods = await list("pending", { signal });
    head.textContent = pods.length === 1 ? "1 pod waits" : `${pods.length.toLocaleString("en")} pods wait`;
    if (pods.length === 0) {
      head.textContent = "No pods wait";
      content.replaceChildren(notice("No pod waits for GPUs."));
      return;
    }
    const columns = [["Pod"], ["Waits"], ["Requests"], ["Affinity, policy"], ["Why"], ["Would fit"]];
    const rows = pods.sort((a, b) => a.since_unix_s - b.since_unix_s).map((pod) => [
      podLink(`${pod.namespace}/${pod.name}`),
      since(pod.since_unix_s),
      pod.size_gpus === null ? "invalid" : count(pod.size_gpus, "GPU"),
      [pod.affinity, pod.policy].filter(Boolean).join(", "),
      h("span", {}, pod.reason, pod.group && [" (group ", groupLink(`${pod.namespace}/${pod.group.name}`), `, ${pod.group.n_here}${pod.group.size === null ? "" : ` of ${pod.group.size}`} here)`]),
      h("span", {}, pod.would_fit ? onceEnded(pod.would_fit) : ""),
    ]);
    content.replaceChildren(table("Pending pods", columns, rows));
  }, { everyMs: 2000 });
  return {
    changed(change) {
      // Whose end would help depends on the nodes too.
      if (change.pending || change.nodes === null || change.nodes.length > 0) work.again();
    },
    closed: work.close,
  };
}
