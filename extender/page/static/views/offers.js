// What explanations and pending pods offer, in words: sets, what would make room, what to change.

import { h, to } from "../dom.js";
import { count, limit, percent, rate, set } from "../words.js";

/** A set with its figure and its limit. */
export function setWords(one) {
  if (one.gpus === null) return set(null);
  if (one.gpus.length < 2) return `GPU ${set(one.gpus)}, one GPU has nothing to reduce`;
  const by = one.limited_by ? `, limited by ${limit(one.limited_by)}` : "";
  return `${set(one.gpus)}, ${rate(one.gbytes_per_s)}, ${percent(one.share)} of the best${by}`;
}

/** `gpu-07 has {0, 1}, 48 GB/s, when ml/eval-3 (2 GPUs) ends`. */
export function onceEnded(one) {
  const ends = one.when_ended;
  const freed = one.gpus_freed === undefined ? "" : ` (${count(one.gpus_freed, "GPU")})`;
  return [to(["node", one.node], one.node), ` has ${set(one.gpus)}, ${rate(one.gbytes_per_s)}, `,
    `when ${ends.join(" and ")}${freed} ${ends.length === 1 ? "ends" : "end"}`];
}

/** Why nodes do not fit, the change to try, from the summary of an explanation. */
export function sentences(summary) {
  const parts = [h("p", {}, `${summary.n_fit.toLocaleString("en")} of ${count(summary.n_nodes, "node")} fit.`)];
  if (summary.try) {
    parts.push(h("p", { class: "notice" }, `Try ${summary.try.change}: `, to(["node", summary.try.node], summary.try.node),
      ` has ${set(summary.try.gpus)}, ${rate(summary.try.gbytes_per_s)}, ${percent(summary.try.share)} of its best.`));
  }
  return parts;
}
