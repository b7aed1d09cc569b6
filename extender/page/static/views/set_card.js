// A set on its node: the drawing with the set and what others have there, and its figures.

import { get, orNull } from "../api.js";
import { h, to } from "../dom.js";
import { set } from "../words.js";
import { drawing } from "./drawing.js";
import { setWords } from "./offers.js";

const N_COLOURS = 12;

/**
 * A card with title, node, drawing, figures and `why`. `offer` is {gpus, gbytes_per_s, share,
 * containers?}; without the node or its machine there is no drawing, and the words stay.
 */
export async function setCard({ title, node: name, offer, why = "", pod = "", machines, signal }) {
  const node = await known(name, signal);
  const machine = machines.find((one) => one.topology === node?.topology);
  const sets = offer.containers?.length ? offer.containers : [{ gpus: offer.gpus ?? [] }];
  const label = `${title}: the set ${set(offer.gpus)} on ${machine?.machine}`;
  return h("section", { class: "set-card", "aria-label": title },
    h("h2", {}, title),
    h("p", { class: "detail" }, "On ", to(["node", name], name), node ? `, ${node.machine}` : ""),
    h("p", { class: "figure" }, setWords(offer)), why && h("p", {}, why),
    offer.gpus && picture({ machine, machines, node, sets, label, pod }));
}

/** A node, or null where it is not there any more. */
export function known(name, signal) {
  return orNull(get(`nodes/${encodeURIComponent(name)}`, { signal }));
}

/**
 * The machine with these sets, [{name?, gpus}], a colour each, and what others have there; null for
 * a machine that is not known or not drawn. `pod` is whose GPUs count as free.
 */
export function picture({ machine, machines, node, sets, label, pod = "" }) {
  if (!machine?.scene) return null;
  const drawn = drawing(machine, {
    machines,
    label,
    gpuLook(index) {
      const at = sets.findIndex((one) => one.gpus.includes(index));
      if (at >= 0) return { class: `held pod-${at % N_COLOURS}`, text: `GPU ${index}, ${sets[at].name ?? "of this set"}` };
      const gpu = node?.gpus[index];
      if (!gpu || gpu.pod === null || gpu.pod === pod) return { class: gpu?.reason ? "bad" : "free", text: `GPU ${index}, ${gpu?.reason ?? "free"}` };
      return { class: "taken", text: `GPU ${index}, ${gpu.pod}` };
    },
  });
  drawn.mark(sets.flatMap((one) => one.gpus));
  return h("div", { class: "drawing" }, drawn.svg, drawn.legend);
}
