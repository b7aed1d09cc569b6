// The groups: those that wait first, with how many members are here and why; then where the others are.

import { list } from "../api.js";
import { colourGroups } from "../colours.js";
import { h, notice, table } from "../dom.js";
import { count } from "../words.js";
import { reader } from "../views/live.js";
import { age, domain, groupLink, here, keyOf, swatch, why, worth } from "./group_words.js";

const SHOWN = 500; // rows
const ORDER = { waiting: 0, claimed: 1, bound: 2 };

export const title = () => "Groups";

export function show(_parts, _query, root) {
  const errors = h("div");
  const content = h("div");
  const head = h("h1", {}, "Groups");
  root.append(head, errors, content);
  const work = reader(errors, async (signal) => {
    const groups = await list("groups", { signal });
    colourGroups(groups.map(keyOf));
    const waiting = groups.filter((group) => group.state === "waiting").length;
    head.textContent = groups.length === 0 ? "No groups" : `${count(groups.length, "group")}, ${waiting.toLocaleString("en")} ${waiting === 1 ? "waits" : "wait"}`;
    if (groups.length === 0) {
      content.replaceChildren(notice("No pod with GPUs, or that waits for some, names a group (coterie.gpu/group)."));
      return;
    }
    groups.sort((a, b) => ORDER[a.state] - ORDER[b.state] || (a.first_since_unix_s ?? 0) - (b.first_since_unix_s ?? 0));
    const columns = [["Group"], ["State"], ["Members"], ["Why it waits"], ["Domain"], ["Nodes", true], ["GPUs", true], ["Predicted"], ["For"]];
    const rows = groups.slice(0, SHOWN).map((group) => [
      h("span", { class: "named" }, swatch(keyOf(group)), groupLink(keyOf(group))),
      h("span", { class: "whole" }, group.state), here(group), why(group), domain(group),
      group.n_nodes.toLocaleString("en"), group.n_gpus.toLocaleString("en"), worth(group), h("span", { class: "whole" }, age(group))]);
    const more = groups.length > SHOWN && h("p", { class: "count" },
      `The first ${SHOWN} are shown; kubectl coterie groups lists all.`);
    content.replaceChildren(table("Groups", columns, rows), ...[more].filter(Boolean));
  }, { everyMs: 1000 });
  return {
    changed(change) {
      if (change.groups === null || change.groups.length > 0) work.again();
    },
    closed: work.close,
  };
}
