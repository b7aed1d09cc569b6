// Chooses the view by the address behind #, keeps it up to date, and remembers the theme.

import { watch } from "./api.js";
import { h, notice } from "./dom.js";

// Each is loaded when first shown: {title, show(parts, query, root) -> {changed?, closed?}}.
const VIEWS = {
  "": () => import("./views/cluster.js"),
  node: () => import("./views/node.js"),
  pod: () => import("./views/pod.js"),
  groups: () => import("./groups/groups.js"),
  group: () => import("./groups/group.js"),
  fabric: () => import("./groups/fabric.js"),
  pending: () => import("./views/pending.js"),
  "what-if": () => import("./views/what_if.js"),
  capacity: () => import("./views/capacity.js"),
};
const NAVIGATION = [["", "Cluster"], ["fabric", "Fabric"], ["groups", "Groups"], ["pending", "Pending"], ["what-if", "What if"], ["capacity", "Capacity"]];
const STATES = { live: "Live", polling: "Read every 5 s", away: "No answer" };
const THEMES = ["auto", "light", "dark"];

const main = document.getElementById("main");
const live = document.getElementById("live");
let shown = null;
let turn = 0;

async function route(isFirst) {
  const own = (turn += 1);
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  let parts;
  try {
    parts = path.split("/").map(decodeURIComponent);
  } catch {
    parts = ["unknown"];
  }
  const name = parts[0];
  for (const link of document.querySelectorAll("#nav a")) {
    const isHere = link.dataset.view === name;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const load = Object.hasOwn(VIEWS, name) ? VIEWS[name] : null;
  const root = h("div", { class: `view view-${load ? name || "cluster" : "none"}` });
  let module = null;
  try {
    module = load && (await load());
  } catch {
    root.append(notice("This part of the page could not be loaded from the extender.", "error"));
  }
  if (own !== turn) return;
  shown?.closed?.();
  shown = null;
  main.replaceChildren(root);
  if (load === null) root.append(h("h1", {}, "No such page"), notice("The address names no view of this page."));
  if (module) {
    document.title = `${module.title(parts)} · Coterie`;
    shown = module.show(parts.slice(1), new URLSearchParams(query), root);
  }
  if (!isFirst) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

function storedTheme() {
  try {
    return THEMES.find((one) => one === localStorage.getItem("coterie-theme")) ?? "auto";
  } catch {
    return "auto";
  }
}

function showTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.textContent = `Theme: ${theme}`;
  button.onclick = () => {
    const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try {
      localStorage.setItem("coterie-theme", next);
    } catch {
      // A browser that stores nothing keeps it until the page closes.
    }
    showTheme(next);
  };
}

document.getElementById("nav").append(
  ...NAVIGATION.map(([view, text]) => h("a", { href: `#/${view}`, "data-view": view }, text)),
);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.getElementById("foot").textContent =
  "GB/s are predicted all-reduce bus bandwidths; shares are those of the empty machine's best set of the same size, with all links up where it is known which are down.";
showTheme(storedTheme());
addEventListener("hashchange", () => route(false));
route(true);
watch(
  (change) => shown?.changed?.(change),
  (state) => {
    live.dataset.state = state;
    if (live.textContent !== STATES[state]) live.textContent = STATES[state];
  },
);
