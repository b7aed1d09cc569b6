// The whole cluster: the headline, filters, pods that wait, and a tile per node.

import { get, list } from "../api.js";
import { SHARES } from "../colours.js";
import { h, podLink } from "../dom.js";
import { groupLink } from "../groups/group_words.js";
import { count, headline, since } from "../words.js";
import { reader } from "./live.js";
import { nodeStore } from "./node_store.js";
import { machineTiles } from "../tiles/machine_tiles.js";
import { tiles } from "../tiles/tiles.js";

const COLOURS = ["owner", "group", "share"];

export const title = () => "Cluster";

export function show(_parts, query, root) {
  const head = h("h1", { class: "headline" }, "Reading the cluster …");
  const detail = h("p", { class: "detail" });
  const errors = h("div");
  const waiting = h("div", { class: "waiting" });
  const sentence = h("p", { class: "count", role: "status" });
  const legend = h("ul", { class: "legend" });
  const box = h("div", { class: "box" });
  const machine = h("select", {}, h("option", { value: "" }, "all machines"));
  const namespace = h("select", {}, h("option", { value: "" }, "all namespaces"));
  const colour = h("select", {}, h("option", { value: "owner" }, "by pod"),
    h("option", { value: "group" }, "by group"), h("option", { value: "share" }, "by efficiency"));
  const find = h("input", { type: "search", placeholder: "node, pod or group", "aria-keyshortcuts": "/", autocomplete: "off", spellcheck: "false" });
  const unhealthy = h("input", { type: "checkbox" });
  const pending = h("input", { type: "checkbox" });
  const filters = h("form", { class: "filters", "aria-label": "Filters" },
    h("label", {}, "Find", find), h("label", {}, "Machine", machine), h("label", {}, "Namespace", namespace), h("label", {}, "Colour", colour),
    h("label", { class: "check" }, unhealthy, "Unhealthy only"), h("label", { class: "check" }, pending, "For pending pods"));
  const grid = h("section", { "aria-label": "Nodes" }, box);
  root.append(head, detail, errors, waiting, filters, legend, sentence, grid);

  const field = tiles(box, machineTiles);
  const store = nodeStore();
  let shares = new Map();
  let waits = [];
  let isPendingDue = true;
  let areSharesDue = true;
  let machinesShown = "";
  let namespacesShown = "";
  find.value = query.get("find") ?? "";
  unhealthy.checked = query.has("unhealthy");
  pending.checked = query.has("pending");
  colour.value = COLOURS.find((one) => one === query.get("colour")) ?? "owner";

  const render = () => {
    const all = [...store.byName.values()];
    offer(machine, [...new Set(all.map((node) => node.machine))], machinesShown, query.get("machine"), (shown) => (machinesShown = shown));
    const spaces = new Set(waits.map((pod) => pod.namespace));
    for (const node of all) for (const gpu of node.gpus) if (gpu.pod) spaces.add(gpu.pod.slice(0, gpu.pod.indexOf("/")));
    offer(namespace, [...spaces], namespacesShown, query.get("namespace"), (shown) => (namespacesShown = shown));
    const wouldFit = new Set(waits.flatMap((pod) => pod.would_fit?.node ?? []));
    const wanted = find.value.trim().toLowerCase();
    const kept = all.filter((node) =>
      (!wanted || holds(node, wanted)) &&
      (!machine.value || node.machine === machine.value) &&
      (!namespace.value || node.gpus.some((gpu) => gpu.pod?.startsWith(`${namespace.value}/`))) &&
      (!unhealthy.checked || node.problems.length > 0 || node.gpus.some((gpu) => gpu.reason || gpu.state === "unhealthy")) &&
      (!pending.checked || wouldFit.has(node.name)));
    field.show(kept, { colour: colour.value, shares, namespace: namespace.value });
    legend.replaceChildren(...legendOf(colour.value));
    const more = store.isWhole() ? "" : ", reading more";
    sentence.textContent = kept.length === all.length ? `${count(all.length, "node")}${more}`
      : `${kept.length.toLocaleString("en")} of ${count(all.length, "node")} match${more}`;
    if (store.isWhole() && all.length === 0) sentence.textContent = "No node of the cluster has GPUs that Coterie places.";
  };

  const waitingShown = () => {
    const wanted = find.value.trim().toLowerCase();
    const some = waits.filter((pod) => !namespace.value || pod.namespace === namespace.value);
    // A group is one line: its pods wait for the same, and are found together.
    const all = Map.groupBy(some, (pod) => `${pod.namespace}/${pod.group ? `${pod.group.name} group` : pod.name}`);
    const lines = [...all.values()].filter((pods) => !wanted || pods.some((pod) =>
      [`${pod.namespace}/${pod.name}`, `${pod.namespace}/${pod.group?.name}`].some((name) => name.toLowerCase().includes(wanted))));
    if (lines.length === 0) return waiting.replaceChildren();
    const first = lines.slice(0, 3).map(([pod, ...others]) => h("li", {},
      pod.group ? [groupLink(`${pod.namespace}/${pod.group.name}`), `, ${count(others.length + 1, "pod")},`] : podLink(`${pod.namespace}/${pod.name}`),
      ` ${others.length ? "wait" : "waits"} ${since(pod.since_unix_s)}: ${pod.reason}`));
    waiting.replaceChildren(h("ul", {}, first));
    if (lines.length > 3) waiting.append(h("a", { href: "#/pending" }, `all ${some.length} that wait`));
    return null;
  };

  const sums = reader(errors, async (signal) => {
    const cluster = await get("cluster", { signal });
    head.textContent = headline(cluster);
    const ready = cluster.is_ready ? "" : " The extender is not ready: what it shows may be old.";
    detail.textContent = `${count(cluster.n_nodes, "node")}, ${count(cluster.pods_placed, "pod")} placed.${ready}`;
    performance.mark("coterie-headline");
  });
  const nodeErrors = h("div");
  errors.after(nodeErrors);
  const nodes = reader(nodeErrors, async (signal) => {
    const wasWhole = store.isWhole();
    await store.read(signal, (items, remaining) => {
      // The first page at once; then now and then, since each rendering lays out all tiles.
      if (items.length <= 500 || remaining === 0 || items.length % 2000 === 0) render();
      if (items.length <= 500) performance.mark("coterie-tiles");
    });
    if (!wasWhole) performance.mark("coterie-whole");
    if (isPendingDue) {
      isPendingDue = false;
      waits = await orDue(list("pending", { signal, limit: 500 }), () => (isPendingDue = true));
      waitingShown();
    }
    if (colour.value === "share" && areSharesDue) {
      areSharesDue = false;
      const pods = await orDue(list("pods", { signal, limit: 1000 }), () => (areSharesDue = true));
      shares = new Map(pods.map((pod) => [`${pod.namespace}/${pod.name}`, pod.share]));
    }
    render();
  });

  const filtered = () => {
    const wanted = new URLSearchParams();
    if (find.value) wanted.set("find", find.value);
    if (machine.value) wanted.set("machine", machine.value);
    if (namespace.value) wanted.set("namespace", namespace.value);
    if (colour.value !== "owner") wanted.set("colour", colour.value);
    if (unhealthy.checked) wanted.set("unhealthy", "");
    if (pending.checked) wanted.set("pending", "");
    history.replaceState(null, "", `#/${wanted.size ? `?${wanted}` : ""}`);
    waitingShown();
    render();
    if (colour.value === "share" && areSharesDue) nodes.again();
  };
  const searched = (event) => {
    const isTyping = event.target.closest?.("input, select, textarea");
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    find.focus();
  };
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("change", filtered);
  find.addEventListener("input", filtered);
  addEventListener("keydown", searched);

  return {
    changed(change) {
      store.changed(change);
      if (change.pending) isPendingDue = true;
      areSharesDue = true;
      sums.again();
      nodes.again();
    },
    closed() {
      sums.close();
      nodes.close();
      field.close();
      removeEventListener("keydown", searched);
    },
  };
}

/** Whether a node, one of its pods or one of their groups has a name with the text. */
function holds(node, text) {
  if (node.name.toLowerCase().includes(text)) return true;
  return node.gpus.some((gpu) => gpu.pod?.toLowerCase().includes(text) || gpu.group?.toLowerCase().includes(text));
}

/** An answer; where it fails, it is due again. */
async function orDue(answer, setDue) {
  try {
    return await answer;
  } catch (error) {
    setDue();
    throw error;
  }
}

function offer(select, values, shown, wanted, keep) {
  const sorted = values.sort();
  const key = JSON.stringify(sorted);
  if (key === shown) return;
  const chosen = shown === "" ? wanted ?? "" : select.value;
  select.replaceChildren(select.firstElementChild, ...sorted.map((value) => h("option", { value }, value)));
  select.value = sorted.includes(chosen) ? chosen : "";
  keep(key);
}

function legendOf(colour) {
  const item = (look, text) => h("li", {}, h("span", { class: `cell ${look}` }), text);
  const common = [item("free", "free"), item("bad pod-0", "unhealthy"), h("li", {}, "dashed border: the node takes no new pod")];
  if (colour === "share") return [...SHARES.map(([look, text]) => item(`held ${look}`, text)), ...common];
  if (colour === "group") return [item("held pod-0", "a group, its colour in every view"), item("held single", "a pod without a group"), ...common];
  const pods = h("li", {}, ["pod-0", "pod-3", "pod-7"].map((one) => h("span", { class: `cell held ${one}` })),
    "a pod, by colour within its node");
  return [pods, item("assumed pod-0", "being bound"), ...common];
}
