// What if pods came, a node were drained, machines were added: where pods would go, what is left.
// The question changes nothing in the cluster.

import { ask, get, list } from "../api.js";
import { h, notice, table, to } from "../dom.js";
import { count, percent, rate, set } from "../words.js";
import { reader } from "./live.js";
import { known, picture } from "./set_card.js";
import { whatIfForm } from "./what_if_form.js";

const DRAWN = 6; // nodes

export const title = () => "What if";

export function show(_parts, query, root) {
  const errors = h("div");
  const content = h("div", { role: "status" });
  const form = whatIfForm(query);
  root.append(h("h1", {}, "What if?"),
    h("p", { class: "detail" }, "Pods that come now, beside a node drained or machines added. Trying changes nothing in the cluster."),
    form.element, errors, content);
  let capacity = [];
  let machines = [];
  const work = reader(errors, async (signal) => {
    if (!form.element.checkValidity()) return;
    ({ machines: capacity } = await get("capacity", { signal }));
    machines = await list("machines", { signal });
    const models = [...new Set(machines.flatMap((one) => one.gpus.map((gpu) => gpu.model)).filter(Boolean))].sort();
    form.offer(models, [...new Set(machines.map((one) => one.machine))].sort(), await nodeNames(signal));
    const words = form.words();
    const answer = await ask("what-if", form.question(resource()), { signal });
    content.replaceChildren(...await answered(words, answer, machines, signal));
  }, { everyMs: 10000 });

  let namesKept = null;
  async function nodeNames(signal) {
    namesKept ??= (await get("nodes?limit=500", { signal, isKept: false })).items.map((node) => node.name);
    return namesKept;
  }

  /** The resource of the chosen GPU model. */
  function resource() {
    const like = machines.find((one) => one.gpus.some((gpu) => gpu.model === form.model()));
    return (capacity.find((one) => one.topology === like?.topology) ?? capacity[0])?.resource ?? "nvidia.com/gpu";
  }

  const tried = () => {
    history.replaceState(null, "", form.address());
    work.now();
  };
  form.element.addEventListener("submit", (event) => {
    event.preventDefault();
    tried();
  });
  form.element.addEventListener("change", () => {
    if (form.element.checkValidity()) tried();
  });
  return { changed: () => work.again(), closed: work.close };
}

async function answered(words, answer, machines, signal) {
  const placed = answer.placements.filter((one) => one.node !== null);
  const of = count(answer.placements.length, "pod");
  const outcome = answer.placements.length === 0 ? "no pod has to be placed."
    : placed.length === answer.placements.length ? `${of} would be placed.`
      : `${placed.length.toLocaleString("en")} of ${of} would be placed; the others would wait.`;
  const open = placed.filter((one) => !one.is_selector_known).length;
  const proviso = open === 0 ? "" : ` Of ${count(open, "pod")} the nodeSelector is not known, which may not allow it.`;
  const parts = [notice(`${words}: ${outcome}${proviso}`), ...(answer.warnings ?? []).map((one) => notice(one, "error"))];
  const byNode = Map.groupBy(placed, (one) => one.node);
  const cards = [...byNode].slice(0, DRAWN).map(([name, pods]) => nodeCard(name, pods, machines, signal));
  parts.push(h("div", { class: "cards" }, await Promise.all(cards)));
  if (answer.placements.length) parts.push(h("h2", {}, "Where each pod would go"), placements(answer.placements));
  parts.push(h("h2", {}, "What is left"), leftTable(answer.before, answer.after),
    h("h2", {}, "Not considered"), h("ul", {}, answer.not_considered.map((one) => h("li", {}, one))));
  return parts;
}

async function nodeCard(name, pods, machines, signal) {
  const node = await known(name, signal);
  const machine = node ? machines.find((one) => one.topology === node.topology)
    : machines.find((one) => one.machine === pods[0].machine);
  const sets = pods.map((one) => ({ name: one.pod, gpus: gpusOf(one) ?? [] }));
  const label = `${name}: ${sets.map((one) => `${one.name} ${set(one.gpus)}`).join(", ")}`;
  const whole = sets.every((one) => one.gpus.length > 0);
  return h("section", { class: "set-card", "aria-label": name },
    h("h2", {}, node ? to(["node", name], name) : `${name} (added)`),
    h("p", { class: "detail" }, pods[0].machine),
    h("ul", {}, pods.map((one) => h("li", {}, `${one.pod}: ${placedWords(one)}`))),
    whole && picture({ machine, machines, node, sets, label }));
}

/** All GPUs of a placement; null where devices go by count. */
function gpusOf(one) {
  if (one.containers.length === 0) return null;
  return [...new Set(one.containers.flatMap((each) => each.gpus))].sort((a, b) => a - b);
}

function placedWords(one) {
  const gpus = gpusOf(one);
  if (one.gbytes_per_s === null) return set(gpus);
  return `${set(gpus)}, ${rate(one.gbytes_per_s)}, ${percent(one.share)} of the best`;
}

function placements(all) {
  const rows = all.map((one) => [
    [one.pod, one.is_evicted && " (drained)", one.assumed && ` (${one.assumed})`].filter(Boolean).join(""),
    one.node ?? "waits", one.machine ?? "",
    one.node === null ? "" : set(gpusOf(one)), one.gbytes_per_s === null ? "" : rate(one.gbytes_per_s),
    one.share === null ? "" : percent(one.share), one.n_fit.toLocaleString("en"),
    one.reasons.map((each) => `${count(each.n_nodes, "node")}: ${each.reason}`).join("; ") || (one.reason ?? "")]);
  return table("Placements", [["Pod"], ["Node"], ["Machine"], ["GPUs"], ["Predicted", true], ["Share", true], ["Nodes that fit", true], ["Why not others"]], rows);
}

function leftTable(before, after) {
  const rows = after.map((one, i) => {
    const change = (read) => (read(before[i]) === read(one) ? String(read(one)) : `${read(before[i])} → ${read(one)}`);
    return [one.machine, change((row) => row.nodes), change((row) => row.free), ...["2", "4", "8"].map((n) => change((row) => row.placeable[n])), change((row) => row.stranded)];
  });
  return table("Before and after", [["Machine"], ["Nodes", true], ["Free GPUs", true], ["Sets of 2", true], ["Sets of 4", true], ["Sets of 8", true], ["Stranded", true]], rows);
}
