// Makes elements. Text from the cluster only ever becomes text nodes and attribute values, and no
// attribute that runs or loads something is set from it.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: `on` are listeners, `vars` custom properties of its style, the rest attributes. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "vars") {
      for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    } else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

/** A table in a box that scrolls by itself. `columns`: [heading, is_number]. */
export function table(caption, columns, rows) {
  const head = columns.map(([text, isNumber]) => h("th", { scope: "col", class: isNumber && "number" }, text));
  const body = rows.map((cells) =>
    h("tr", {}, cells.map((cell, i) =>
      h("td", { class: columns[i][1] && "number", "data-label": columns[i][0] }, cell)))
  );
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

/** A link to a view; each part is escaped, since names may hold anything. */
export function to(parts, text, attributes = {}) {
  return h("a", { ...attributes, href: `#/${parts.map(encodeURIComponent).join("/")}` }, text);
}

/** A pod by its `namespace/name`. */
export function podLink(key) {
  const at = key.indexOf("/");
  return to(["pod", key.slice(0, at), key.slice(at + 1)], key);
}

/** A sentence in place of what could not be shown. */
export function notice(text, kind = "info") {
  return h("p", { class: `notice ${kind}`, role: kind === "error" ? "alert" : null }, text);
}
