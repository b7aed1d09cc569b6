// The whole cluster: the headline, filters, pods that wait, and a tile per node.

import { get, list } from "../api.js";
import { SHARES } from "../colours.js";
import { h, podLink } from "../dom.js";
import { count, headline, since } from "../words.js";
import { reader } from "./live.js";
import { tiles } from "./tiles.js";

const SINGLY = 40; // nodes that are read one by one where so few changed

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
  const colour = h("select", {}, h("option", { value: "owner" }, "by pod"), h("option", { value: "share" }, "by efficiency"));
  const unhealthy = h("input", { type: "checkbox" });
  const pending = h("input", { type: "checkbox" });
  const filters = h("form", { class: "filters", "aria-label": "Filters" },
    h("label", {}, "Machine", machine), h("label", {}, "Namespace", namespace), h("label", {}, "Colour", colour),
    h("label", { class: "check" }, unhealthy, "Unhealthy only"), h("label", { class: "check" }, pending, "For pending pods"));
  const grid = h("section", { "aria-label": "Nodes" }, box);
  root.append(head, detail, errors, waiting, filters, legend, sentence, grid);

  const field = tiles(box);
  const byName = new Map();
  let shares = new Map();
  let waits = [];
  let isWhole = false;
  let changed = new Set();
  let isAllDue = true;
  let isPendingDue = true;
  let areSharesDue = true;
  let machinesShown = "";
  let namespacesShown = "";
  unhealthy.checked = query.has("unhealthy");
  pending.checked = query.has("pending");
  colour.value = query.get("colour") === "share" ? "share" : "owner";

  const render = () => {
    const all = [...byName.values()];
    offer(machine, [...new Set(all.map((node) => node.machine))], machinesShown, query.get("machine"), (shown) => (machinesShown = shown));
    const spaces = new Set(waits.map((pod) => pod.namespace));
    for (const node of all) for (const gpu of node.gpus) if (gpu.pod) spaces.add(gpu.pod.slice(0, gpu.pod.indexOf("/")));
    offer(namespace, [...spaces], namespacesShown, query.get("namespace"), (shown) => (namespacesShown = shown));
    const wouldFit = new Set(waits.flatMap((pod) => pod.would_fit?.node ?? []));
    const kept = all.filter((node) =>
      (!machine.value || node.machine === machine.value) &&
      (!namespace.value || node.gpus.some((gpu) => gpu.pod?.startsWith(`${namespace.value}/`))) &&
      (!unhealthy.checked || node.problems.length > 0 || node.gpus.some((gpu) => gpu.reason || gpu.state === "unhealthy")) &&
      (!pending.checked || wouldFit.has(node.name)));
    field.show(kept, { colour: colour.value, shares, namespace: namespace.value });
    legend.replaceChildren(...legendOf(colour.value));
    const more = isWhole ? "" : ", reading more";
    sentence.textContent = kept.length === all.length ? `${count(all.length, "node")}${more}`
      : `${kept.length.toLocaleString("en")} of ${count(all.length, "node")} match${more}`;
    if (isWhole && all.length === 0) sentence.textContent = "No node of the cluster has GPUs that Coterie places.";
  };

  const waitingShown = () => {
    const some = waits.filter((pod) => !namespace.value || pod.namespace === namespace.value);
    if (some.length === 0) return waiting.replaceChildren();
    const first = some.slice(0, 3).map((pod) =>
      h("li", {}, podLink(`${pod.namespace}/${pod.name}`), ` waits ${since(pod.since_unix_s)}: ${pod.reason}`));
    waiting.replaceChildren(h("ul", {}, first));
    if (some.length > 3) waiting.append(h("a", { href: "#/pending" }, `all ${some.length} that wait`));
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
    const names = [...changed];
    const isAll = isAllDue || names.length > SINGLY;
    changed = new Set();
    isAllDue = false;
    try {
      if (isAll) await readAll(signal);
      else await Promise.all(names.map((name) => readOne(name, signal)));
      if (isPendingDue) {
        isPendingDue = false;
        waits = await list("pending", { signal, limit: 500 });
        waitingShown();
      }
      if (colour.value === "share" && areSharesDue) {
        areSharesDue = false;
        const pods = await list("pods", { signal, limit: 1000 });
        shares = new Map(pods.map((pod) => [`${pod.namespace}/${pod.name}`, pod.share]));
      }
    } catch (error) {
      isAllDue = true;
      throw error;
    }
    render();
  });

  async function readAll(signal) {
    const found = await list("nodes", {
      signal,
      onPage(items, remaining) {
        if (isWhole) return;
        for (const node of items.slice(byName.size)) byName.set(node.name, node);
        // The first page at once; then now and then, since each rendering lays out all tiles.
        if (items.length <= 500 || remaining === 0 || items.length % 2000 === 0) render();
        if (items.length <= 500) performance.mark("coterie-tiles");
      },
    });
    const names = new Set(found.map((node) => node.name));
    for (const name of byName.keys()) if (!names.has(name)) byName.delete(name);
    for (const node of found) byName.set(node.name, node);
    isWhole = true;
    performance.mark("coterie-whole");
  }

  async function readOne(name, signal) {
    try {
      const node = await get(`nodes/${encodeURIComponent(name)}`, { signal, isKept: false });
      if (node.gpus.length) byName.set(name, node);
      else byName.delete(name);
    } catch (error) {
      if (error.status !== 404) throw error;
      byName.delete(name);
    }
  }

  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("change", () => {
    const wanted = new URLSearchParams();
    if (machine.value) wanted.set("machine", machine.value);
    if (namespace.value) wanted.set("namespace", namespace.value);
    if (colour.value !== "owner") wanted.set("colour", colour.value);
    if (unhealthy.checked) wanted.set("unhealthy", "");
    if (pending.checked) wanted.set("pending", "");
    history.replaceState(null, "", `#/${wanted.size ? `?${wanted}` : ""}`);
    waitingShown();
    render();
    if (colour.value === "share" && areSharesDue) nodes.again();
  });

  return {
    changed(change) {
      if (change.nodes === null) isAllDue = true;
      else for (const name of change.nodes) changed.add(name);
      if (change.pending) isPendingDue = true;
      areSharesDue = true;
      sums.again();
      nodes.again();
    },
    closed() {
      sums.close();
      nodes.close();
      field.close();
    },
  };
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
  const common = [item("free", "free"), item("bad pod-0", "unhealthy")];
  if (colour === "share") return [...SHARES.map(([look, text]) => item(`held ${look}`, text)), ...common];
  const pods = h("li", {}, ["pod-0", "pod-3", "pod-7"].map((one) => h("span", { class: `cell held ${one}` })),
    "a pod, by colour within its node");
  return [pods, item("assumed pod-0", "planned, not yet seen on the node"), ...common];
}
