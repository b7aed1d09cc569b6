// A tile per node, in rows below headings. Only the tiles near the window are in the document, so
// that thousands of nodes scroll without stalls. What a tile and a heading look like is a kind's:
// `machine_tiles.js` and `fabric_tiles.js`.

import { h } from "../dom.js";

const MARGIN = 600; // pixels above and below the window that are kept ready
const PRINTED = 400; // nodes that a print shows whole

/**
 * Tiles into `box`. `kind` is {width, height, indent, grouped(nodes), heading(group), tile(node,
 * look)}; groups are [{key, depth, headHeight, nodes}], heading first. `show(nodes, look)`.
 */
export function tiles(box, kind) {
  const space = h("div", { class: "tiles" });
  box.append(space);
  const made = new Map(); // of keys of rows and nodes: {element, value, look}
  let rows = [];
  let order = [];
  let look = {};
  let groups = [];
  let frame = null;
  let isPrinting = false;

  const width = () => space.clientWidth || 320; // read once: after a write it lays the page out

  const layOut = () => {
    rows = [];
    order = [];
    let top = 0;
    const whole = width();
    for (const group of groups) {
      const left = group.depth * kind.indent;
      const columns = Math.max(1, Math.floor((whole - left) / kind.width));
      rows.push({ top, height: group.headHeight, group, left });
      top += group.headHeight;
      for (let i = 0; i < group.nodes.length; i += columns) {
        const nodes = group.nodes.slice(i, i + columns);
        rows.push({ top, height: kind.height, nodes, left, columns, rail: `rail ${group.key} ${i}` });
        for (const node of nodes) order.push({ node, top, columns });
        top += kind.height;
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
    const whole = width();
    for (let i = firstAt(rows, from); i < rows.length && rows[i].top < until; i += 1) {
      const row = rows[i];
      if (row.group) {
        const key = `group ${row.group.key}`;
        seen.add(key);
        place(key, row.group, () => kind.heading(row.group), row.left, row.top, null);
        continue;
      }
      const step = (whole - row.left) / row.columns;
      if (row.left > 0) {
        seen.add(row.rail);
        place(row.rail, row.rail, () => h("div", { class: "rail" }), row.left - kind.indent / 2, row.top, null);
      }
      row.nodes.forEach((node, at) => {
        seen.add(node.name);
        place(node.name, node, () => kind.tile(node, look), row.left + at * step, row.top, step);
      });
    }
    for (const [key, one] of made) {
      if (seen.has(key) || one.element.contains(document.activeElement)) continue;
      one.element.remove();
      made.delete(key);
    }
  };

  const place = (key, value, make, left, top, step) => {
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
    if (step) one.element.style.width = `${step - 10}px`;
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
    const at = order.findIndex((one) => one.node.name === name);
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const { columns } = order[at];
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const next = order[Math.min(order.length - 1, Math.max(0, at + by))];
    const y = space.getBoundingClientRect().top + scrollY + next.top;
    if (y < scrollY + 80 || y + kind.height > scrollY + innerHeight) {
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
      groups = kind.grouped(nodes);
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
