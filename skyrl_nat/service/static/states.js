// What a view shows while it has nothing else to show.

import { el } from "./dom.js";

/** Something went wrong; `again` repeats it. */
export function failed(error, again) {
  return el("div", { class: "notice bad", role: "alert" },
    el("p", {}, error.message || String(error)),
    again && el("p", {}, el("button", { type: "button", onclick: () => again() }, "Try again")));
}

/** There is nothing yet, and how that changes. */
export function empty(text, ...more) {
  return el("p", { class: "empty" }, text, more);
}

const KINDS = { running: "live", pending: "", stopping: "warn", succeeded: "good", failed: "bad", cancelled: "warn" };
const SIGNS = { good: "✓", bad: "✗", warn: "!", live: "●", "": "○" };

/** A state of a job as a badge: a sign and a word, so that colour is not all. */
export function jobBadge(state) {
  return badge(state, KINDS[state] ?? "");
}

/** How a rollout ended. */
export function outcomeBadge(outcome) {
  const kinds = { finished: "", truncated: "warn", policy_failure: "warn", screened: "warn", validator_failure: "bad", infrastructure_failure: "bad" };
  return badge(outcome.replaceAll("_", " "), kinds[outcome] ?? "");
}

export function badge(text, kind) {
  return el("span", { class: `badge ${kind}` }, kind && el("span", { "aria-hidden": "true" }, SIGNS[kind]), text);
}

export function successBadge(isSuccess) {
  return isSuccess ? badge("solved", "good") : badge("not solved", "");
}

/** Repeat something while the page is visible, until the view is left. */
export function every(milliseconds, signal, act) {
  let isBusy = false;
  const timer = setInterval(async () => {
    if (document.hidden || isBusy) return;
    isBusy = true;
    try { await act(); } finally { isBusy = false; }
  }, milliseconds);
  signal.addEventListener("abort", () => clearInterval(timer));
}
