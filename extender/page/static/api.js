// Reads the read API: answers are kept by their entity tag, lists are read page by page, and a
// stream of changes says when to read again; where there is no stream, every five seconds.

const BASE = new URL("../api/v1/", document.baseURI);
const POLL_MS = 5000;
const RETRY_MS = 15000;
const kept = new Map(); // of paths: {tag, body}

/** A route that does not answer as it should; `message` is a sentence, `status` 0 without answer. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The JSON of a route, the kept one where the server says that it has not changed. */
export async function get(path, { signal, isKept = true } = {}) {
  const had = kept.get(path);
  const headers = had ? { "If-None-Match": had.tag } : {};
  const response = await send(path, { headers, signal, cache: "no-store" });
  if (response.status === 304 && had) return had.body;
  const body = await decode(path, response);
  const tag = response.headers.get("etag");
  if (tag && isKept) kept.set(path, { tag, body });
  return body;
}

/** What `get` answers, null for 404: the caller says what is not there. */
export async function orNull(answer) {
  try {
    return await answer;
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

/** The JSON of a route for a question. */
export async function ask(path, question, { signal } = {}) {
  const headers = { "content-type": "application/json" };
  return decode(path, await send(path, { method: "POST", headers, body: JSON.stringify(question), signal }));
}

/** All items of a list, `onPage(items so far, remaining)` after each page. */
export async function list(path, { signal, limit = 500, onPage } = {}) {
  const items = [];
  let next = null;
  do {
    const query = new URLSearchParams({ limit });
    if (next !== null) query.set("continue", next);
    const page = await get(`${path}${path.includes("?") ? "&" : "?"}${query}`, { signal, isKept: false });
    for (const item of page.items) items.push(item);
    next = page.continue;
    onPage?.(items, page.remaining);
  } while (next !== null);
  return items;
}

async function send(path, options) {
  try {
    return await fetch(new URL(path, BASE), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The extender does not answer. If this page came by a port-forward, see whether that still runs.");
  }
}

async function decode(path, response) {
  const route = `/api/v1/${path.split("?")[0]}`;
  const text = await response.text();
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    // Said below.
  }
  if (response.ok && body !== null) return body;
  if (response.status === 404 && body?.detail === "Not Found") {
    throw new ApiError(501, `This extender does not serve ${route}; a newer one does.`);
  }
  const why = body?.detail ?? (response.ok ? "the answer is no JSON" : `status ${response.status}`);
  throw new ApiError(response.status, `${route}: ${why}`);
}

/**
 * Calls `onChange({nodes: [names] or null for all, groups: the same, pending})` as the cluster changes
 * and `onState("live" | "polling" | "away")`.
 */
export function watch(onChange, onState) {
  let poll = null;
  let seen = null; // what was last read of the cluster; its generation alone does not grow with a cordon
  const read = async () => {
    try {
      const cluster = await get("cluster");
      onState("polling");
      const now = JSON.stringify({ ...cluster, at_unix_s: null });
      if (seen !== null && now !== seen) onChange({ nodes: null, groups: null, pending: true });
      seen = now;
    } catch {
      onState("away");
    }
  };
  const startPolling = () => {
    if (poll !== null) return;
    poll = setInterval(read, POLL_MS);
    read();
  };
  const open = () => {
    const stream = new EventSource(new URL("changes", BASE));
    let isFirst = true;
    stream.addEventListener("change", (event) => {
      const change = JSON.parse(event.data);
      if (poll !== null) clearInterval(poll);
      poll = null;
      onState("live");
      // The first event says only where the stream begins; what changed before it is unknown.
      if (!isFirst) onChange(change);
      else if (seen !== null) onChange({ nodes: null, groups: null, pending: true });
      isFirst = false;
      seen = "";
    });
    stream.addEventListener("error", () => {
      startPolling();
      stream.close();
      setTimeout(open, RETRY_MS);
    });
  };
  open();
}
