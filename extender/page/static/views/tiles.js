// A tile per node and a cell per GPU, in groups by machine type. Only the tiles near the window are
// in the document, so that thousands of nodes scroll without stalls.

import { h, to } from "../dom.js";
import { podColours, shareColour } from "../colours.js";
import { count } from "../words.js";

const TILE_WIDTH = 176;
const TILE_HEIGHT = 76;
const HEAD_HEIGHT = 52;
const MARGIN = 600; // pixels above and below the window that are kept ready
const PRINTED = 400; // nodes that a print shows whole

/** Tiles into `box`. `show(nodes, look)`: `look` is {colour: "owner" | "share", shares, namespace}. */
export function tiles(box) {
  const space = h("div", { class: "tiles" });
  box.append(space);
  const made = new Map(); // of keys of rows and nodes: {element, node, look}
  let rows = [];
  let order = [];
  let look = {};
  let columns = 1;
  let groups = [];
  let frame = null;
  let isPrinting = false;

  const layOut = () => {
    const width = space.clientWidth || 320;
    columns = Math.max(1, Math.floor(width / TILE_WIDTH));
    rows = [];
    order = [];
    let top = 0;
    for (const group of groups) {
      rows.push({ top, height: HEAD_HEIGHT, group });
      top += HEAD_HEIGHT;
      for (let i = 0; i < group.nodes.length; i += columns) {
        const nodes = group.nodes.slice(i, i + columns);
        rows.push({ top, height: TILE_HEIGHT, nodes });
        for (const node of nodes) order.push({ node, top });
        top += TILE_HEIGHT;
      }
    }
    space.style.height = `${top}px`;
    draw();
  };

  const draw = () => {
    frame = null;
    const from = isPrinting ? -Infinity : -space.getBoundingClientRect().top - MARGIN;
    const until = isPrinting ? Infinity : from + innerHeight + 2 * MARGIN;
    const seen = new Set();
    const step = (space.clientWidth || 320) / columns;
    for (let i = firstAt(rows, from); i < rows.length && rows[i].top < until; i += 1) {
      const row = rows[i];
      if (row.group) {
        const key = `group ${row.group.key}`;
        seen.add(key);
        place(key, row.group, () => heading(row.group), 0, row.top, null);
      } else {
        row.nodes.forEach((node, at) => {
          seen.add(node.name);
          place(node.name, node, () => tile(node, look), at * step, row.top, step);
        });
      }
    }
    for (const [key, one] of made) {
      if (seen.has(key) || one.element.contains(document.activeElement)) continue;
      one.element.remove();
      made.delete(key);
    }
  };

  const place = (key, value, make, left, top, width) => {
    let one = made.get(key);
    if (!one || one.value !== value || one.look !== look) {
      const element = make();
      const hadFocus = one?.element.contains(document.activeElement);
      if (one) one.element.replaceWith(element);
      else space.append(element);
      if (hadFocus) element.focus({ preventScroll: true });
      one = { element, value, look };
      made.set(key, one);
    }
    one.element.style.transform = `translate(${left}px, ${top}px)`;
    if (width) one.element.style.width = `${width - 10}px`;
  };

  const scrolled = () => {
    frame ??= requestAnimationFrame(draw);
  };
  const printing = () => {
    isPrinting = order.length <= PRINTED;
    draw();
  };
  const printed = () => {
    isPrinting = false;
    draw();
  };
  // Arrow keys move as the tiles lie; Tab moves as ever.
  const moved = (event) => {
    const name = event.target.closest?.("[data-node]")?.dataset.node;
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -Infinity, End: Infinity }[event.key];
    if (name === undefined || by === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const at = order.findIndex((one) => one.node.name === name);
    const next = order[Math.min(order.length - 1, Math.max(0, at + by))];
    const y = space.getBoundingClientRect().top + scrollY + next.top;
    if (y < scrollY + 80 || y + TILE_HEIGHT > scrollY + innerHeight) {
      scrollTo({ top: y - innerHeight / 2, behavior: "instant" });
    }
    draw();
    made.get(next.node.name)?.element.focus({ preventScroll: true });
  };
  const resize = new ResizeObserver(layOut);
  resize.observe(box);
  addEventListener("scroll", scrolled, { passive: true });
  addEventListener("beforeprint", printing);
  addEventListener("afterprint", printed);
  space.addEventListener("keydown", moved);

  return {
    show(nodes, newLook) {
      look = newLook;
      groups = grouped(nodes);
      layOut();
    },
    close() {
      resize.disconnect();
      removeEventListener("scroll", scrolled);
      removeEventListener("beforeprint", printing);
      removeEventListener("afterprint", printed);
      if (frame !== null) cancelAnimationFrame(frame);
    },
  };
}

function firstAt(rows, from) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].top + rows[middle].height < from) low = middle + 1;
    else high = middle;
  }
  return low;
}

function grouped(nodes) {
  const byKey = new Map();
  for (const node of nodes) {
    const key = `${node.machine} ${node.topology}`;
    if (!byKey.has(key)) byKey.set(key, { key, machine: node.machine, nodes: [] });
    byKey.get(key).nodes.push(node);
  }
  return [...byKey.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
}

function heading(group) {
  const gpus = group.nodes.reduce((n, node) => n + node.gpus.length, 0);
  const free = group.nodes.reduce((n, node) => n + node.free, 0);
  return h("div", { class: "group" },
    h("h2", {}, group.machine),
    h("p", {}, `${count(group.nodes.length, "node")}, ${free.toLocaleString("en")} of ${count(gpus, "GPU")} free`));
}

function tile(node, look) {
  const bad = node.gpus.filter((gpu) => gpu.reason || gpu.state === "unhealthy").length;
  const says = [`${node.free} of ${node.gpus.length} GPUs free`];
  if (bad) says.push(`${bad} unhealthy`);
  if (node.problems.length) says.push(node.problems[0]);
  const element = to(["node", node.name], [], {
    class: "tile", "data-node": node.name, "aria-label": `${node.name}, ${node.machine}, ${says.join(", ")}`,
    title: `${node.name}: ${says.join(", ")}`,
  });
  element.append(
    h("span", { class: "name" }, node.name),
    h("span", { class: "free" }, node.free === 0 ? "full" : `${node.free} free`),
    h("span", { class: `cells ${node.gpus.length > 16 ? "many" : ""}` }, cells(node, look)),
  );
  if (bad || node.problems.length) element.classList.add("problem");
  return element;
}

function cells(node, look) {
  const colourOf = podColours(node.gpus);
  return node.gpus.map((gpu) => {
    const isBad = gpu.reason || gpu.state === "unhealthy";
    const isFaded = look.namespace && !gpu.pod?.startsWith(`${look.namespace}/`);
    const colour = gpu.pod === null ? "" : look.colour === "share" ? shareColour(look.shares.get(gpu.pod)) : colourOf(gpu);
    return h("span", { class: `cell ${gpu.state} ${colour} ${isBad ? "bad" : ""} ${isFaded ? "faded" : ""}` });
  });
}
