// The question of a what-if: pods by size and wishes, a node to drain, machines to add.

import { h } from "../dom.js";
import { count } from "../words.js";

const AFFINITIES = ["any", "nvlink", "pcie-switch", "numa", "none"];
const DEFAULTS = { size: "4", count: "1", affinity: "any", policy: "preferred", bandwidth: "", model: "", drain: "", add: "", adds: "1" };
const NAMES = 500; // node names that are offered while typing

/** The form: `element`, `offer(models, machines, nodes)`, `question(resource)`, `words()`, `address()`. */
export function whatIfForm(query) {
  const option = (value, text = value) => h("option", { value }, text);
  const number = (min, max) => h("input", { type: "number", min, max, step: "1", required: true });
  const nodes = h("datalist", { id: "node-names" });
  const types = h("datalist", { id: "machine-names" });
  const named = (list) => h("input", { type: "text", list, placeholder: "none", autocomplete: "off", spellcheck: "false" });
  const fields = {
    size: number(1, 512),
    count: number(0, 100),
    affinity: h("select", {}, AFFINITIES.map((one) => option(one))),
    policy: h("select", {}, option("preferred"), option("required")),
    bandwidth: h("input", { type: "number", min: "0.1", step: "any", placeholder: "none" }),
    model: h("select", {}, option("", "any")),
    drain: named("node-names"),
    add: named("machine-names"),
    adds: number(1, 100),
  };
  const label = (text, name) => h("label", {}, text, fields[name]);
  const group = (legend, ...children) => h("fieldset", { class: "filters" }, h("legend", {}, legend), children);
  const element = h("form", { class: "question", "aria-label": "What if" },
    group("Pods", label("GPUs of a pod", "size"), label("Pods", "count"), label("Affinity", "affinity"),
      label("Policy", "policy"), label("At least GB/s", "bandwidth"), label("GPU model", "model")),
    group("Nodes", label("Drain", "drain"), label("Add machine", "add"), label("How many", "adds")),
    nodes, types, h("button", { type: "submit" }, "Try"));
  for (const [name, field] of Object.entries(fields)) {
    field.value = query.get(name) ?? DEFAULTS[name];
    if (field.value === "" && field.required) field.value = DEFAULTS[name];
  }

  let isOffered = false;
  return {
    element,
    model: () => fields.model.value,
    offer(models, machines, names) {
      // The address may name a model before it is offered.
      const chosen = isOffered ? fields.model.value : query.get("model") ?? "";
      isOffered = true;
      fields.model.replaceChildren(option("", "any"), ...models.map((model) => option(model)));
      fields.model.value = models.includes(chosen) ? chosen : "";
      types.replaceChildren(...machines.map((name) => option(name)));
      nodes.replaceChildren(...names.slice(0, NAMES).map((name) => option(name)));
    },
    question(resource) {
      const annotations = {};
      if (fields.affinity.value !== "any") annotations["coterie.gpu/affinity"] = fields.affinity.value;
      if (fields.policy.value === "required") annotations["coterie.gpu/policy"] = "required";
      if (fields.bandwidth.value) annotations["coterie.gpu/min-bandwidth"] = fields.bandwidth.value;
      const spec = { containers: [{ name: "main", resources: { limits: { [resource]: fields.size.value } } }] };
      if (fields.model.value) spec.nodeSelector = { "nvidia.com/gpu.product": fields.model.value.replaceAll(" ", "-") };
      const metadata = { name: "what-if", namespace: "default", annotations };
      const nPods = Number(fields.count.value);
      const drain = fields.drain.value.split(",").map((name) => name.trim()).filter(Boolean);
      return {
        pods: nPods === 0 ? [] : [{ manifest: { apiVersion: "v1", kind: "Pod", metadata, spec }, count: nPods }],
        drain,
        add: fields.add.value.trim() ? [{ machine: fields.add.value.trim(), count: Number(fields.adds.value) }] : [],
      };
    },
    /** The question in words, for a print and for those who do not see the form. */
    words() {
      const value = (name) => fields[name].value.trim();
      const pods = `${count(Number(value("count")), "pod")} of ${count(Number(value("size")), "GPU")}`;
      const wishes = [value("affinity") !== "any" && `affinity ${value("affinity")}`, value("policy") === "required" && "required",
        value("bandwidth") && `at least ${value("bandwidth")} GB/s`, value("model") && `on ${value("model")}`];
      return [[pods, ...wishes].filter(Boolean).join(", "), value("drain") && `${value("drain")} drained`,
        value("add") && `${value("adds")} ${value("add")} added`].filter(Boolean).join("; ");
    },
    address() {
      const said = Object.entries(fields).filter(([name, field]) => field.value !== DEFAULTS[name]);
      return `#/what-if?${new URLSearchParams(said.map(([name, field]) => [name, field.value]))}`;
    },
  };
}
