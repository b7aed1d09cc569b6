// Colours of pods, of shares and of rates. None is the only sign of what it stands for: free GPUs
// are hollow, unhealthy ones crossed, and each cell has a text.

const N_POD_COLOURS = 12;

/** A class of colour for each pod of a node, by uid: the same at each reading, different within it. */
export function podColours(gpus) {
  const taken = new Map();
  const counts = new Array(N_POD_COLOURS).fill(0);
  const uids = [...new Set(gpus.filter((gpu) => gpu.pod).map((gpu) => gpu.pod_uid ?? gpu.pod))].sort();
  for (const uid of uids) {
    const colour = leastTaken(uid, counts);
    counts[colour] += 1;
    taken.set(uid, `pod-${colour}`);
  }
  return (gpu) => (gpu.pod ? taken.get(gpu.pod_uid ?? gpu.pod) : "");
}

/** The group of a GPU's pod as `namespace/name`; null without one. */
export function groupKey(gpu) {
  return gpu.group ? `${gpu.pod.slice(0, gpu.pod.indexOf("/"))}/${gpu.group}` : null;
}

const ofGroups = new Map();

/** A class of colour for a group by its `namespace/name`: the same in every view, and no other's while there are enough. */
export function colourOfGroup(key) {
  if (!ofGroups.has(key)) {
    const counts = new Array(N_POD_COLOURS).fill(0);
    for (const colour of ofGroups.values()) counts[colour] += 1;
    ofGroups.set(key, leastTaken(key, counts));
  }
  return `pod-${ofGroups.get(key)}`;
}

/** Colours for all groups that there are; those of others are free for new groups. */
export function colourGroups(keys) {
  const live = new Set(keys);
  for (const key of [...ofGroups.keys()]) if (!live.has(key)) ofGroups.delete(key);
  for (const key of [...live].sort()) colourOfGroup(key);
}

/** A class of colour for a GPU by its pod's group; pods without one are grey. */
export function groupColour(gpu) {
  if (!gpu.pod) return "";
  const key = groupKey(gpu);
  return key ? colourOfGroup(key) : "single";
}

/** A class of colour for a share of the machine's best. */
export function shareColour(share) {
  if (share === null || share === undefined) return "share-none";
  return share >= 0.9 ? "share-4" : share >= 0.7 ? "share-3" : share >= 0.4 ? "share-2" : "share-1";
}

/** The classes of `shareColour`, in words. */
export const SHARES = [
  ["share-4", "90 % of the best or more"],
  ["share-3", "70 to 90 %"],
  ["share-2", "40 to 70 %"],
  ["share-1", "below 40 %"],
  ["share-none", "one GPU, or unknown"],
];

/** Rates in up to five steps, highest first: [{gbytes_per_s, class}]. */
export function rateSteps(rates) {
  const distinct = [...new Set(rates.filter((one) => one !== null).map((one) => Math.round(one)))].sort((a, b) => b - a);
  const n = Math.min(5, distinct.length);
  const steps = [];
  for (let i = 0; i < n; i += 1) {
    const at = n === 1 ? 0 : Math.round((i * (distinct.length - 1)) / (n - 1));
    steps.push({ gbytes_per_s: distinct[at], class: `rate-${n === 1 ? 0 : Math.round((i * 4) / (n - 1))}` });
  }
  return steps;
}

/** The class of a rate among those steps. */
export function rateColour(steps, gbytesPerS) {
  if (gbytesPerS === null || steps.length === 0) return "rate-none";
  const near = steps.reduce((a, b) =>
    Math.abs(b.gbytes_per_s - gbytesPerS) < Math.abs(a.gbytes_per_s - gbytesPerS) ? b : a);
  return near.class;
}

/** The colour that the fewest have, of equal ones the next after the one that the text's hash names. */
function leastTaken(text, counts) {
  const first = hash(text) % N_POD_COLOURS;
  let found = first;
  for (let i = 1; i < N_POD_COLOURS; i += 1) {
    const colour = (first + i) % N_POD_COLOURS;
    if (counts[colour] < counts[found]) found = colour;
  }
  return found;
}

function hash(text) {
  let value = 2166136261;
  for (let i = 0; i < text.length; i += 1) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
  return value >>> 0;
}
