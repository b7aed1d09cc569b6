// Numbers, times and sets in words.

/** A count with its noun. */
export function count(n, noun, many = `${noun}s`) {
  return `${n.toLocaleString("en")} ${n === 1 ? noun : many}`;
}

/** GB/s; unknown is no zero. */
export function rate(value) {
  if (value === null || value === undefined) return "unknown";
  return `${value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} GB/s`;
}

/** A share of the machine's best. */
export function percent(share) {
  return share === null || share === undefined ? "unknown" : `${Math.round(share * 100)} %`;
}

/** How long ago. */
export function since(unixS, now = Date.now() / 1000) {
  const s = Math.max(0, Math.round(now - unixS));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} days`;
}

/** A time of day, with the day where it is not today. */
export function clock(unixS) {
  const at = new Date(unixS * 1000);
  const time = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? time : `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

/** Indices of GPUs as a set; null where devices go by count. */
export function set(gpus) {
  if (gpus === null) return "GPUs by count";
  return `{${gpus.join(", ")}}`;
}

/** How many GPUs of a node new pods may get. */
export function freeForPods(node) {
  return node.is_unschedulable ? 0 : node.free;
}

/** What is free of a node. */
export function freeWords(node) {
  const words = `${node.free} of ${count(node.gpus.length, "GPU")} free`;
  return node.is_unschedulable ? `${words}, takes no new pod` : words;
}

/** The state of the cluster in a sentence. */
export function headline(cluster) {
  const { gpus, gpus_free: free, gpus_stranded: stranded, gpus_unavailable: unavailable, gpus_unhealthy: bad, pods_pending: waiting } = cluster;
  const parts = [count(gpus, "GPU"), `${free.toLocaleString("en")} free`];
  if (stranded > 0) parts.push(`${stranded.toLocaleString("en")} of them can form no set of four`);
  if (unavailable > 0) parts.push(`${unavailable.toLocaleString("en")} more free on nodes that take no new pod`);
  if (bad > 0) parts.push(`${bad.toLocaleString("en")} unhealthy`);
  parts.push(waiting === 1 ? "1 pod waits" : `${waiting === 0 ? "no" : waiting.toLocaleString("en")} pods wait`);
  return parts.join(", ");
}

// As `kubectl coterie` has them.
const LIMITS = {
  "nothing": "nothing",
  "switch": "NVSwitch",
  "ring": "its NVLink ring",
  "relay": "NVLink through other GPUs of the set",
  "port": "a GPU's PCIe port",
  "uplink": "a PCIe switch's uplink",
  "socket": "the link between CPU sockets",
};
const GROUP_LIMITS = {
  "node": "a node's own GPUs",
  "nic": "the NICs near its GPUs",
  "port": "its GPUs' PCIe ports",
  "fabric": "the NVLink fabric between its nodes",
};

/** What limits a set; empty where nothing is known. */
export function limit(name) {
  return name ? LIMITS[name] ?? name : "";
}

/** What limits a group. */
export function groupLimit(name) {
  return name ? GROUP_LIMITS[name] ?? name : "";
}
