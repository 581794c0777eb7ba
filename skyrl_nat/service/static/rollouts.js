// The rollouts of one step, filtered.

import { ask, path, query } from "./api.js";
import { choice, el, field, put, table } from "./dom.js";
import { number } from "./format.js";
import { noRuns, runChoice } from "./run.js";
import { empty, outcomeBadge, successBadge } from "./states.js";

const PAGE = 50;
const OUTCOMES = ["finished", "truncated", "policy_failure", "validator_failure", "screened", "infrastructure_failure"];

export async function show(main, { parts, query: asked, signal }) {
  const runs = await ask("runs", { signal });
  const id = parts[0] || runs[0]?.id;
  if (!id) return void put(main, el("h1", {}, "Rollouts"), noRuns());
  const wanted = Object.fromEntries(["step", "label", "outcome", "min_reward", "max_reward", "offset"].map((name) => [name, asked.get(name)]));
  const found = await ask(`runs/${path(id)}/rollouts${query({ ...wanted, limit: PAGE })}`, { signal });
  const go = (changes) => { location.hash = `#/rollouts/${path(id)}${query({ ...wanted, step: found.step, offset: null, ...changes })}`; };
  put(main,
    el("div", { class: "head" }, el("h1", {}, "Rollouts"), runChoice(runs, id, (to) => { location.hash = `#/rollouts/${path(to)}`; }), el("span", { class: "grow" }),
      el("a", { href: `#/run/${path(id)}` }, "Curves")),
    el("section", { class: "card", "aria-label": "Filter" }, filters(found, wanted, go)),
    el("section", { class: "card", "aria-labelledby": "found-title" }, list(id, found, wanted, go)));
}

function filters(found, wanted, go) {
  const count = (outcome) => found.outcomes[outcome] ?? 0;
  const reward = (name, label, hint) => field(label, el("input", { id: name, inputmode: "decimal", placeholder: hint, value: wanted[name] ?? "", onchange: (event) => {
    const text = event.target.value.trim().replace(",", ".");
    const isNumber = text === "" || Number.isFinite(Number(text));
    event.target.setAttribute("aria-invalid", String(!isNumber));
    fault.textContent = isNumber ? "" : `${label} must be a number.`;
    if (isNumber) go({ [name]: text });
  } }));
  const fault = el("p", { class: "fault wide", role: "alert" });
  const steps = found.steps[found.label];
  return el("div", { class: "fields" },
    field("Played for", choice({ id: "label", onchange: (event) => go({ label: event.target.value, step: null }) }, [["train", `training (${found.steps.train.length} steps)`], ["eval", `evaluation (${found.steps.eval.length} steps)`]], found.label)),
    field("Step", choice({ id: "step", disabled: !steps.length, onchange: (event) => go({ step: event.target.value }) }, [...steps].reverse().map((step) => [step, step]), found.step)),
    field("Outcome", choice({ id: "outcome", onchange: (event) => go({ outcome: event.target.value }) }, [["", "all"], ...OUTCOMES.map((name) => [name, `${name.replaceAll("_", " ")} (${count(name)})`])], wanted.outcome ?? "")),
    reward("min_reward", "Reward at least", "0"), reward("max_reward", "Reward at most", "1"),
    el("div", { class: "reset" }, el("button", { type: "button", onclick: () => go({ outcome: null, min_reward: null, max_reward: null }) }, "Clear filter")), fault);
}

function list(id, found, wanted, go) {
  const offset = Number(wanted.offset ?? 0);
  const title = el("h2", { id: "found-title" }, found.step === null ? "Rollouts" : `${number(found.total)} ${found.total === 1 ? "rollout" : "rollouts"} of step ${found.step}`);
  if (found.step === null) return [title, empty(`Nothing was played for ${found.label === "train" ? "training" : "evaluation"} yet.`)];
  const open = (row) => { location.hash = `#/rollout/${path(id, found.step, found.label, row.group, row.index)}${query({ outcome: wanted.outcome, min_reward: wanted.min_reward, max_reward: wanted.max_reward })}`; };
  const columns = [
    ["Task", (row) => [el("strong", { class: "wrap" }, row.task_id), el("div", { class: "quiet small" }, `group ${row.group}, rollout ${row.index}`)]],
    ["Outcome", (row) => [outcomeBadge(row.outcome), row.reason && el("div", { class: "quiet small clip", title: row.reason }, row.reason)]],
    ["Reward", (row) => rewardBar(row.reward), true],
    ["Verdict", (row) => [row.reward === null ? el("span", { class: "quiet" }, "none") : successBadge(row.is_success), row.finding && el("div", { class: "quiet small clip", title: row.finding }, row.finding)]],
    ["Turns", (row) => number(row.num_turns), true],
    ["Tokens", (row) => number(row.num_tokens), true],
    ["In loss", (row) => number(row.num_loss_tokens), true],
    ["Version", (row) => (row.policy_version < 0 ? "–" : number(row.policy_version)), true],
  ];
  const pages = el("div", { class: "head" },
    el("button", { type: "button", disabled: offset === 0, onclick: () => go({ offset: Math.max(offset - PAGE, 0) || null }) }, "Before"),
    el("span", { class: "quiet small" }, `${offset + 1} to ${offset + found.rollouts.length} of ${found.total}`),
    el("button", { type: "button", disabled: offset + PAGE >= found.total, onclick: () => go({ offset: offset + PAGE }) }, "After"));
  return [title,
    found.num_broken > 0 && el("p", { class: "notice warn" }, `${found.num_broken} lines of this file are no recorded rollouts and are left out.`),
    found.rollouts.length ? table("Rollouts", columns, found.rollouts, { open, key: (row) => `${row.group}/${row.index}` }) : empty("No rollout of this step matches the filter."),
    found.total > PAGE && pages];
}

/** A reward as a number over a bar; rewards below 0 or above 1 fill nothing or all of it. */
export function rewardBar(reward) {
  if (reward === null) return el("span", { class: "quiet" }, "–");
  const fill = el("span", { class: "meter-fill" });
  fill.style.width = `${100 * Math.min(Math.max(reward, 0), 1)}%`;
  return el("span", { class: "meter-box" }, number(reward), el("span", { class: "meter", "aria-hidden": "true" }, fill));
}
