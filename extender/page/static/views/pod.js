// A pod: its set beside the runner-up, the plan and what the kubelet gave, or why it waits.

import { get, list, orNull } from "../api.js";
import { h, notice, table, to } from "../dom.js";
import { domain, groupLink, here, why, worth } from "../groups/group_words.js";
import { count, limit, percent, rate, set, since } from "../words.js";
import { reader } from "./live.js";
import { onceEnded, sentences, setWords } from "./offers.js";
import { setCard } from "./set_card.js";

const BESIDE = 8; // other members that are named

export const title = (parts) => parts.slice(1).join("/") || "Pod";

export function show([namespace = "", name = ""], _query, root) {
  const errors = h("div");
  const facts = h("div");
  const cards = h("div", { class: "cards" });
  const explanation = h("div");
  const key = `${namespace}/${name}`;
  const group = h("div");
  root.append(h("h1", {}, key), errors, facts, group, cards, explanation);
  const path = `${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const work = reader(errors, async (signal) => {
    const waits = (await list("pending", { signal })).find((pod) => pod.namespace === namespace && pod.name === name);
    const placed = waits ? null : await orNull(get(`pods/${path}`, { signal }));
    const machines = await list("machines", { signal });
    const card = (one) => setCard({ ...one, pod: key, machines, signal });
    const chosen = placed && { title: "Chosen", node: placed.node, offer: placed };
    facts.replaceChildren(...(waits ? pendingParts(waits) : placed ? placedParts(placed)
      : [notice("No pod of this name has GPUs or waits for them. It may have ended, or not have been scheduled yet.")]));
    group.replaceChildren(...await groupParts(namespace, name, placed?.group ?? waits?.group?.name, signal));
    // At once: an explanation of a large cluster takes longer.
    if (cards.childElementCount === 0 && chosen) cards.replaceChildren(await card(chosen));
    let answer = null;
    let fault = null;
    try {
      answer = await get(`explain/${path}`, { signal, isKept: false });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      fault = error;
    }
    const shown = await Promise.all([chosen, ...offers(answer, waits)].filter(Boolean).map(card));
    cards.replaceChildren(...shown);
    explanation.replaceChildren(h("h2", {}, "Explanation"), ...(fault ? [notice(fault.message)] : explained(answer)),
      ...(placed ? containers(placed) : []));
  });
  return { changed: () => work.again(), closed: work.close };
}

/** The pod's group, and where the other members are; none for a pod without one. */
async function groupParts(namespace, name, groupName, signal) {
  if (!groupName) return [];
  const key = `${namespace}/${groupName}`;
  const path = `groups/${encodeURIComponent(namespace)}/${encodeURIComponent(groupName)}`;
  const group = await orNull(get(path, { signal }));
  const parts = ["Member of group ", groupLink(key)];
  if (group === null) return [h("p", {}, parts, ".")];
  parts.push(`: ${[here(group), why(group), domain(group), worth(group)].filter(Boolean).join("; ")}.`);
  const others = group.members.filter((one) => one.name !== name && one.node !== null);
  others.slice(0, BESIDE).forEach((one, i) => parts.push(i === 0 ? " Beside " : ", ", one.name, " on ", to(["node", one.node], one.node)));
  const nMore = others.length + group.members_left_out - BESIDE;
  if (others.length > 0) parts.push(nMore > 0 ? ` and ${nMore.toLocaleString("en")} more.` : ".");
  return [h("p", { class: "of-group" }, parts)];
}

/** The sets to draw beside the chosen one, of an explanation and of a pending pod. */
function offers(answer, waits) {
  const summary = answer?.summary;
  const best = waits && answer?.nodes?.find((node) => node.place === 1);
  const found = [];
  if (best?.containers) found.push({ title: isForGroup(waits) ? "Would fit without its group" : "Would be chosen now", node: best.node, offer: joined(best.containers) });
  const second = answer?.bound?.runner_up_set ?? summary?.runner_up_set;
  if (second) {
    found.push({ title: second.is_better ? "Better here now" : "Runner-up on this node", node: second.node, offer: second,
      why: second.is_better ? `Would be chosen now: ${second.why}.` : sentence(second.why) });
  }
  const node = summary?.runner_up;
  if (node) found.push({ title: "Runner-up node", node: node.node, offer: node, why: sentence(node.why) });
  const near = waits && !best && (waits.would_fit ?? summary?.groups.find((group) => group.nearest)?.nearest);
  if (near) found.push({ title: "Would fit first here", node: near.node, offer: near, why: onceEnded(near).slice(2).join("") });
  return found;
}

/** Whether the pod gets a node only together with all members of its group. */
function isForGroup(waits) {
  return Boolean(waits?.group?.size);
}

/** One offer of the sets of containers: the figures are the slowest's. */
function joined(containers) {
  const several = containers.filter((one) => one.gpus.length > 1);
  const worst = several.reduce((a, b) => (a && a.gbytes_per_s <= b.gbytes_per_s ? a : b), null);
  const gpus = [...new Set(containers.flatMap((one) => one.gpus))].sort((a, b) => a - b);
  return { gpus, containers, gbytes_per_s: worst?.gbytes_per_s ?? null, share: worst ? 1 - worst.loss : null, limited_by: worst?.limited_by };
}

function sentence(why) {
  return why ? `Why not: ${why}.` : "";
}

function placedParts(pod) {
  const kept = pod.state === "held" ? "The kubelet gave what was planned." : "As planned: its node reports only what differs.";
  const agrees = { true: kept, false: "The kubelet gave other GPUs than planned.", null: "Nothing was planned, or what the pod has is not known." };
  const planned = pod.planned_ids.length
    ? `Planned ${pod.as_planned === false ? pod.planned_ids.join(", ") : set(pod.gpus)}, has ${set(pod.gpus)}. ` : "";
  return [
    h("p", { class: "detail" }, "On ", to(["node", pod.node], pod.node), `, ${pod.machine}, ${pod.state.replaceAll("_", " ")}: ${setWords(pod)}`),
    h("p", { class: pod.as_planned === false ? "notice error" : "" }, `${planned}${agrees[pod.as_planned]}`),
  ];
}

function containers(pod) {
  const rows = pod.containers.map((one) => [one.name, set(one.gpus), rate(one.gbytes_per_s), percent(one.share), limit(one.limited_by)]);
  return [h("h2", {}, "Containers"), table("Containers", [["Container"], ["GPUs"], ["Predicted", true], ["Share", true], ["Limited by"]], rows)];
}

function pendingParts(pod) {
  const size = pod.size_gpus === null ? "an invalid request" : count(pod.size_gpus, "GPU");
  const wants = [size, pod.affinity && `affinity ${pod.affinity}`, pod.policy && `policy ${pod.policy}`,
    pod.min_bandwidth_gbytes_per_s !== null && `at least ${rate(pod.min_bandwidth_gbytes_per_s)}`].filter(Boolean).join(", ");
  const parts = [h("p", { class: "detail" }, `Waits ${since(pod.since_unix_s)}: ${wants}`), notice(`${pod.reason}.`)];
  if (isForGroup(pod)) {
    parts.push(h("p", {}, "The group gets nodes only once there is room for all members; the sets and the explanation below are of this member alone."));
  }
  if (pod.would_fit) parts.push(h("p", { class: "notice" }, onceEnded(pod.would_fit), "."));
  return parts;
}

function explained(answer) {
  const summary = answer.summary;
  const parts = (answer.warnings ?? []).map((one) => notice(one));
  if (!summary) return [...parts, ...boundWords(answer.bound)];
  parts.push(...sentences(summary));
  const rows = summary.groups.map((group) => [group.n, group.sentence, group.nearest ? h("span", {}, onceEnded(group.nearest)) : ""]);
  if (rows.length) parts.push(table("Why nodes do not fit", [["Nodes", true], ["Reason"], ["Nearest"]], rows));
  if (answer.not_considered) parts.push(notice(`Not considered: ${answer.not_considered.join("; ")}.`));
  return parts;
}

/** What the pod's node would give it, were it placed there now. */
function boundWords(bound) {
  const now = bound?.could_have;
  if (!now) return [];
  if (!now.fits) return [h("p", {}, `If it were placed again now, it would not fit: ${now.reason}.`)];
  return now.containers ? [h("p", {}, `If it were placed again now, it would get ${setWords(joined(now.containers))}.`)] : [];
}
