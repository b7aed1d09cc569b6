// Draws a machine: GPUs where the API's scene has them, links coloured by GB/s, pods by colour.

import { rateColour, rateSteps } from "../colours.js";
import { h, s } from "../dom.js";
import { rate } from "../words.js";

const PCIE = new Set(["PIX", "PXB", "PHB", "NODE", "SYS", "X"]);
const isAccelerator = (link) => link.label !== null && !PCIE.has(link.label);

/**
 * The drawing and its legend, and `mark(set)`, which stresses the GPUs of a set, or none for null.
 * `machines` are all types, by which missing links are found; `gpuLook(index)` gives {class, text}.
 */
export function drawing(machine, { machines, gpuLook, label }) {
  const scene = machine.scene;
  const links = machine.links ?? [];
  const dead = deadLinks(machine, machines);
  const drawn = links.filter(isAccelerator);
  const steps = rateSteps((drawn.length ? drawn : links).map((link) => link.gbytes_per_s));
  const r = scene.extent + 0.1;
  const svg = s("svg", { viewBox: `${-r} ${-r} ${2 * r} ${2 * r}`, role: "img", "aria-label": label, class: "machine" });
  const outer = ["host", "pxb", "pix"];
  const sectors = [...scene.sectors].sort((a, b) => outer.indexOf(a.kind) - outer.indexOf(b.kind));
  for (const sector of sectors) svg.append(...sectorOf(sector));
  const lines = s("g", { class: "links" });
  if (scene.hubs.length) lines.append(...spokes(scene, drawn, steps));
  else for (const link of drawn) lines.append(lineOf(scene, link, rateColour(steps, link.gbytes_per_s)));
  for (const link of dead) lines.append(lineOf(scene, link, "dead"));
  svg.append(lines);
  scene.hubs.forEach(([x, y]) => svg.append(s("circle", { class: "hub", cx: x, cy: -y, r: 0.13 }), text(x, y, "SW", "hub-text")));
  scene.nics.forEach((nic) => svg.append(alongCircle(nic)));
  const gpus = scene.gpus.map(([x, y], index) => {
    const look = gpuLook(index);
    return s("g", { class: `gpu ${look.class}`, "data-gpu": index },
      s("title", {}, look.text), s("circle", { cx: x, cy: -y, r: scene.gpu_radius }),
      text(x, y, String(index), "gpu-text"));
  });
  svg.append(...gpus);
  return {
    svg,
    legend: legendOf(machine, steps, drawn, dead, scene),
    mark(set) {
      const isIn = (index) => set.includes(index);
      svg.classList.toggle("marked", set !== null);
      gpus.forEach((gpu, index) => gpu.classList.toggle("in", set !== null && isIn(index)));
      for (const line of lines.children) {
        const ends = line.dataset.ends.split(" ").map(Number);
        line.classList.toggle("in", set !== null && ends.every(isIn));
      }
    },
  };
}

/**
 * Links that a machine lacks, or has fewer of, while another type of the same GPUs has them: a link
 * that is down makes a type of its own. [{a, b, label, now}]; none where most would be missing, as
 * on nodes that never had bridges.
 */
export function deadLinks(machine, machines) {
  const own = machine.links ?? [];
  const likes = machines.filter((one) => one !== machine && isLike(machine, one));
  const missing = likes.map((one) => one.links.flatMap((link, i) =>
    (strength(link) > strength(own[i]) ? [{ ...link, now: own[i].label }] : [])));
  const fewest = missing.filter((one) => one.length > 0).sort((a, b) => a.length - b.length)[0] ?? [];
  return fewest.length <= own.filter(isAccelerator).length / 2 ? fewest : [];
}

/** The missing links as a sentence; null where there are none. */
export function deadWords(machine, machines) {
  const dead = deadLinks(machine, machines);
  if (dead.length === 0) return null;
  const each = dead.map((link) => `GPU ${link.a} to GPU ${link.b} has ${link.now ?? "no known link"} in place of ${link.label}`);
  return `Links are down or missing, by what other nodes of these GPUs have: ${each.join(", ")}.`;
}

/** Whether the other has the same GPUs on the same PCIe, and all links that this one has. */
function isLike(machine, other) {
  const own = machine.links ?? [];
  const links = other.links ?? [];
  return machine.gpus.length === other.gpus.length && own.length === links.length &&
    machine.gpus.every((gpu, i) => gpu.model === other.gpus[i].model && gpu.numa_node === other.gpus[i].numa_node) &&
    own.every((link, i) => link.pcie === links[i].pcie && strength(link) <= strength(links[i]));
}

/** How many accelerator links; one of unknown number counts as one. */
function strength(link) {
  return isAccelerator(link) ? Number(/\d+$/.exec(link.label)?.[0] ?? 1) : 0;
}

function lineOf(scene, link, look) {
  const [xa, ya] = scene.gpus[link.a];
  const [xb, yb] = scene.gpus[link.b];
  // Ring neighbours by a straight line; others bent to the middle, so that they can be told apart.
  const pull = 0.72;
  const path = `M${xa} ${-ya}Q${((xa + xb) / 2) * pull} ${(-(ya + yb) / 2) * pull} ${xb} ${-yb}`;
  const n = strength(link);
  const says = look === "dead"
    ? `GPU ${link.a} to GPU ${link.b}: ${link.now ?? "no known link"} in place of ${link.label}`
    : `GPU ${link.a} to GPU ${link.b}: ${link.label}, ${rate(link.gbytes_per_s)}`;
  return s("path", { d: path, class: `link ${look}`, "data-ends": `${link.a} ${link.b}`, "stroke-width": Math.min(0.02 + 0.022 * n, 0.09) },
    s("title", {}, says));
}

function spokes(scene, links, steps) {
  return scene.gpus.flatMap(([x, y], index) => {
    const own = links.filter((link) => link.a === index || link.b === index);
    if (own.length === 0) return [];
    const best = own.reduce((a, b) => ((b.gbytes_per_s ?? 0) > (a.gbytes_per_s ?? 0) ? b : a));
    return scene.hubs.map(([hx, hy]) =>
      s("path", { d: `M${x} ${-y}L${hx} ${-hy}`, class: `link ${rateColour(steps, best.gbytes_per_s)}`, "data-ends": `${index}`, "stroke-width": 0.06 },
        s("title", {}, `GPU ${index} to the switches: ${best.label}, ${rate(best.gbytes_per_s)} to any other GPU`)));
  });
}

function sectorOf(sector) {
  const point = (radius, degrees) => {
    const at = (degrees * Math.PI) / 180;
    return `${(radius * Math.cos(at)).toFixed(3)} ${(-radius * Math.sin(at)).toFixed(3)}`;
  };
  const { inner, outer, start_deg: a, end_deg: b } = sector;
  const isLarge = b - a > 180 ? 1 : 0;
  const path = `M${point(outer, a)}A${outer} ${outer} 0 ${isLarge} 0 ${point(outer, b)}L${point(inner, b)}A${inner} ${inner} 0 ${isLarge} 1 ${point(inner, a)}Z`;
  const shape = s("path", { d: path, class: `sector ${sector.kind}` });
  if (sector.label === null) return [shape];
  const middle = (((a + b) / 2) * Math.PI) / 180;
  const at = outer + 0.12;
  return [shape, text(at * Math.cos(middle), at * Math.sin(middle), sector.label, "sector-text")];
}

function text(x, y, content, look) {
  return s("text", { x, y: -y, class: look, "text-anchor": "middle", "dominant-baseline": "central" }, content);
}

/** A NIC's name along the circle, clear of the GPUs, and never upside down. */
function alongCircle(nic) {
  const turn = ((nic.angle_deg + 360) % 360) - 90;
  const name = text(nic.x, nic.y, nic.label, "nic");
  name.setAttribute("transform", `rotate(${turn > 90 ? 180 - turn : -turn} ${nic.x} ${-nic.y})`);
  return name;
}

function legendOf(machine, steps, drawn, dead, scene) {
  const line = (look, words) => h("li", {},
    s("svg", { viewBox: "0 0 28 8", width: 28, height: 8, "aria-hidden": "true" }, s("path", { d: "M1 4H27", class: `link ${look}`, "stroke-width": 3 })), words);
  const items = steps.map((step) => {
    const labels = [...new Set((drawn.length ? drawn : machine.links ?? [])
      .filter((link) => rateColour(steps, link.gbytes_per_s) === step.class).map((link) => link.label))].slice(0, 3);
    return line(step.class, `${labels.join(", ")}: ${rate(step.gbytes_per_s)} for the pair`);
  });
  if (dead.length) items.push(line("dead", "down or missing: other nodes of these GPUs have it"));
  const kinds = new Set(scene.sectors.map((sector) => sector.kind));
  const area = (kind, words) => kinds.has(kind) && h("li", {}, h("span", { class: `swatch ${kind}` }), words);
  return h("ul", { class: "legend" }, items, area("pix", "one PCIe switch (PIX)"), area("pxb", "several PCIe switches (PXB)"), area("host", "one NUMA node"));
}
