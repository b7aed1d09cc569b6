// One group: how far it is and what it waits for, its members, and its nodes in the fabric.

import { get, list, orNull } from "../api.js";
import { h, notice, podLink, table, to } from "../dom.js";
import { count, groupLimit, set, since } from "../words.js";
import { reader } from "../views/live.js";
import { known } from "../views/set_card.js";
import { fabricTiles } from "../tiles/fabric_tiles.js";
import { tiles } from "../tiles/tiles.js";
import { age, domain, here, swatch, why, worth } from "./group_words.js";

const SINGLY = 64; // nodes that are read one by one

export const title = (parts) => parts.slice(1).join("/") || "Group";

export function show([namespace = "", name = ""], _query, root) {
  const key = `${namespace}/${name}`;
  const errors = h("div");
  const facts = h("div");
  const box = h("div", { class: "box" });
  const picture = h("section", { "aria-label": "Nodes of the group", hidden: true },
    h("h2", {}, "Where it is"), h("p", { class: "detail" }, "Its GPUs are coloured, those of others faded. ",
      h("a", { href: `#/fabric?${new URLSearchParams({ group: key })}` }, "In the whole fabric")), box);
  const members = h("div");
  root.append(h("h1", {}, swatch(key), ` ${key}`), errors, facts, picture, members);
  const field = tiles(box, fabricTiles);
  let nodes = new Set();
  const work = reader(errors, async (signal) => {
    const group = await orNull(get(`groups/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`, { signal }));
    if (group === null) {
      facts.replaceChildren(notice("No pod of this group has GPUs or waits for them. It may have ended, or not have been scheduled yet."));
      members.replaceChildren();
      picture.hidden = true;
      return;
    }
    facts.replaceChildren(...factsOf(group));
    members.replaceChildren(h("h2", {}, "Members"), memberTable(group));
    nodes = new Set(group.members.map((one) => one.node).filter((one) => one !== null));
    const found = await nodesOf(nodes, signal);
    picture.hidden = found.length === 0;
    field.show(found, { stressed: key });
  }, { everyMs: 1000 });
  return {
    changed(change) {
      const isOwn = change.groups === null || change.groups.includes(key);
      if (isOwn || change.nodes === null || change.nodes.some((one) => nodes.has(one))) work.again();
    },
    closed() {
      work.close();
      field.close();
    },
  };
}

async function nodesOf(names, signal) {
  if (names.size > SINGLY) return (await list("nodes", { signal })).filter((node) => names.has(node.name));
  return (await Promise.all([...names].map((name) => known(name, signal)))).filter((node) => node !== null);
}

function factsOf(group) {
  const asks = group.size === null ? "without a size: its members wait for no other" : `at least ${count(group.size, "member")}`;
  const parts = [h("p", { class: "detail" }, `${here(group)}; ${asks}.`)];
  if (group.state === "waiting") {
    const waited = age(group);
    parts.push(notice(`${waited ? `Waits ${waited}: ` : "Waits: "}${why(group)}.`));
  }
  if (group.n_nodes > 0) {
    const where = `${count(group.n_nodes, "node")}, ${domain(group)}`;
    const by = group.limited_by ? `, limited by ${groupLimit(group.limited_by)}` : "";
    parts.push(h("p", { class: "figure" }, `${where}; ${worth(group)} predicted${by}`));
  }
  return parts;
}

function memberTable(group) {
  const rows = group.members.map((one) => [
    podLink(`${group.namespace}/${one.name}`), one.rank ?? "", one.state,
    one.node === null ? "" : to(["node", one.node], one.node),
    one.gpus === null ? (one.size_gpus === null ? "" : count(one.size_gpus, "GPU")) : set(one.gpus),
    one.since_unix_s === null ? "" : since(one.since_unix_s)]);
  const shown = table("Members", [["Pod"], ["Rank", true], ["State"], ["Node"], ["GPUs"], ["For"]], rows);
  if (group.members_left_out === 0) return shown;
  return h("div", {}, shown, h("p", { class: "count" }, `and ${count(group.members_left_out, "member")} more`));
}
