// Groups in words: how many members are here, what a group waits for, where it is.

import { colourOfGroup } from "../colours.js";
import { h, to } from "../dom.js";
import { count, rate, since } from "../words.js";

const WAITS = "waits for its group: ";

/** `namespace/name`, as its colour is chosen by. */
export const keyOf = (group) => `${group.namespace}/${group.name}`;

/** A link to a group, with its colour. */
export function groupLink(key) {
  const at = key.indexOf("/");
  return to(["group", key.slice(0, at), key.slice(at + 1)], [key]);
}

/** The cell that shows its colour. */
export function swatch(key) {
  return h("span", { class: `cell held ${colourOfGroup(key)}` });
}

/** `3 of 4 members are here`. */
export function here(group) {
  const n = group.n_here + group.n_missing;
  if (group.n_missing > 0) return `${group.n_here.toLocaleString("en")} of ${count(n, "member")} ${group.n_here === 1 ? "is" : "are"} here`;
  if (group.state === "bound") return `${count(n, "member")} bound`;
  if (group.state === "claimed") return `${group.n_bound} of ${count(n, "member")} bound, places are kept for all`;
  return `${group.n_bound} of ${count(n, "member")} bound, all are here`;
}

/** Why it waits; empty where it does not. */
export function why(group) {
  if (group.state !== "waiting") return "";
  const reason = group.reason?.replace(WAITS, "") ?? "the replica that holds the Lease knows why";
  return [reason, group.detail].filter(Boolean).join("; ");
}

/** The nearest domain that holds it. */
export function domain(group) {
  if (group.n_nodes === 0) return "";
  return group.level === null ? "in no common domain that is known" : `${group.level} ${group.domain}`;
}

/** Its predicted bandwidth over all members with a node. */
export function worth(group) {
  if (group.n_nodes === 0) return "";
  if (group.gbytes_per_s === null) return "unknown";
  const least = group.least_gbytes_per_s === null ? "" : `, at least ${rate(group.least_gbytes_per_s)}`;
  return `${rate(group.gbytes_per_s)}${least}`;
}

/** For how long it waits, or has been bound. */
export function age(group) {
  const at = group.state === "waiting" ? group.first_since_unix_s : group.bound_since_unix_s;
  return at === null ? "" : since(at);
}
