// Reads for a view: one at a time, again where something changed meanwhile, at most so often.

import { notice } from "../dom.js";

/**
 * Runs `read(signal)` now, soon after `again()` and at once after `now()`; errors become a sentence
 * in `box`.
 */
export function reader(box, read, { everyMs = 500 } = {}) {
  const abort = new AbortController();
  let isBusy = false;
  let isDue = false;
  let isUrgent = false;
  let timer = null;
  const run = async () => {
    timer = null;
    isBusy = true;
    isDue = false;
    isUrgent = false;
    try {
      await read(abort.signal);
      box.replaceChildren();
    } catch (error) {
      if (error.name === "AbortError") return;
      box.replaceChildren(notice(error.status === undefined ? `This cannot be shown: ${error.message}` : error.message, "error"));
    } finally {
      isBusy = false;
      if (isUrgent && !abort.signal.aborted) run();
      else if (isDue && !abort.signal.aborted) plan();
    }
  };
  const plan = () => {
    timer ??= setTimeout(run, everyMs);
  };
  run();
  return {
    again() {
      if (isBusy) isDue = true;
      else plan();
    },
    now() {
      if (timer !== null) clearTimeout(timer);
      timer = null;
      if (isBusy) isUrgent = true;
      else run();
    },
    close() {
      abort.abort();
      if (timer !== null) clearTimeout(timer);
    },
  };
}
