// The nodes of the cluster as a view keeps them: read whole once, then those that changed.

import { get, list } from "../api.js";

const SINGLY = 40; // nodes that are read one by one where so few changed

/**
 * `byName`, `isWhole()`, `changed(change)` of a change of the cluster, and `read(signal, onPart)`,
 * which reads what is due; `onPart(items so far, remaining)` at each page of the first reading.
 */
export function nodeStore() {
  const byName = new Map();
  let changed = new Set();
  let isAllDue = true;
  let isWhole = false;

  async function readAll(signal, onPart) {
    const found = await list("nodes", {
      signal,
      onPage(items, remaining) {
        if (isWhole) return;
        for (const node of items.slice(byName.size)) byName.set(node.name, node);
        onPart(items, remaining);
      },
    });
    const names = new Set(found.map((node) => node.name));
    for (const name of byName.keys()) if (!names.has(name)) byName.delete(name);
    for (const node of found) byName.set(node.name, node);
    isWhole = true;
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

  return {
    byName,
    isWhole: () => isWhole,
    changed(change) {
      if (change.nodes === null) isAllDue = true;
      else for (const name of change.nodes) changed.add(name);
    },
    async read(signal, onPart) {
      const names = [...changed];
      const isAll = isAllDue || names.length > SINGLY;
      changed = new Set();
      isAllDue = false;
      try {
        if (isAll) await readAll(signal, onPart);
        else await Promise.all(names.map((name) => readOne(name, signal)));
      } catch (error) {
        isAllDue = true;
        throw error;
      }
    },
  };
}
