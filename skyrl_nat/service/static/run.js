// One run: live curves, where the GPU-seconds went, its config.

import { ask, path, query } from "./api.js";
import { lineChart, stackedBars } from "./chart.js";
import { choice, el, field, put, table } from "./dom.js";
import { ago, number, percent, plain, seconds } from "./format.js";
import { badge, empty, every, jobBadge } from "./states.js";

const PARTS = ["rollout", "train", "push", "offload", "idle"];
const GROUPS = {
  "Reward": ["rollout/reward/mean", "rollout/success/mean", "eval/rollout/reward/mean", "eval/rollout/success/mean", "rollout/reward/std"],
  "Loss": ["loss/total", "loss/grad_norm", "loss/token_entropy", "loss/clip_fraction", "loss/log_ratio_mean", "loss/rollout_logprob_diff", "loss/lr", "loss/kl"],
  "Rollouts": ["rollout/turns/mean", "rollout/completion_tokens/mean", "rollout/truncated/count", "rollout/staleness/mean", "batch/signal_groups/share"],
  "Speed": ["time/step_s", "time/rollout_s", "time/train_s", "time/push_s", "throughput/trained_tokens_per_gpu_s", "throughput/engine_tokens_per_gpu_s", "train/mfu"],
};
const BARS = 60;

/** The select of runs that several views begin with. */
export function runChoice(runs, chosen, go, { id = "run", label = "Run" } = {}) {
  const node = choice({ id, onchange: (event) => go(event.target.value) },
    runs.map((run) => [run.id, runTitle(run)]), chosen);
  return el("div", { class: "run-choice" }, el("label", { class: "unseen", for: id }, label), node);
}

const runTitle = (run) => `${run.id} · ${run.family ?? "?"} · step ${run.last_step ?? 0}`;

export const noRuns = () => empty("There are no runs yet. ", el("a", { href: "#/" }, "Start one"), ", or train with skyrl-nat train under this root folder.");

export async function show(main, { parts, signal }) {
  const [runs, { jobs }] = await Promise.all([ask("runs", { signal }), ask("training", { signal }).catch(() => ({ jobs: [] }))]);
  const id = parts[0] || runs[0]?.id;
  if (!id) return void put(main, el("h1", {}, "Run"), noRuns());
  const job = jobs.find((one) => one.run === id);
  if (job && !runs.some((run) => run.id === id)) return void showJob(main, job, signal, () => show(main, { parts, signal }));
  const base = `runs/${path(id)}`;
  const about = await ask(base, { signal });
  const head = el("div", { class: "card" });
  const gpu = el("section", { class: "card", "aria-labelledby": "gpu-title" });
  const curves = el("section", { class: "curves-groups" });
  const state = { isLog: false, weight: 0, filter: "", table: { steps: [], series: {}, not_finite: {} }, job };
  const controls = curveControls(state, () => drawCurves(curves, state));
  put(main,
    el("div", { class: "head" }, el("h1", {}, "Run"), runChoice(runs, id, (to) => { location.hash = `#/run/${path(to)}`; }), el("span", { class: "grow" }),
      el("a", { href: `#/rollouts/${path(id)}` }, "Rollouts"), el("a", { href: `#/compare?a=${encodeURIComponent(id)}` }, "Compare with…")),
    head, el("section", { class: "card", "aria-labelledby": "curves-title" }, el("div", { class: "head" }, el("h2", { id: "curves-title" }, "Curves"), el("span", { class: "grow" }), controls), curves),
    gpu, configCard(about));
  const refresh = oneAtATime(signal, async () => {
    const first = state.table.steps.at(-1) ?? 0;
    merge(state.table, await ask(`${base}/metrics${query({ from: first })}`, { signal }));
    put(main.querySelector("#run option:checked"), runTitle({ ...about, last_step: state.table.steps.at(-1) }));
    drawHead(head, about, state);
    drawCurves(curves, state);
    drawGpu(gpu, state.table);
  });
  await refresh();
  follow(state, signal, refresh);
}

/** A job that has written no run yet, or never will: its state and why, until there is a run to show. */
function showJob(main, job, signal, showRun) {
  const card = el("section", { class: "card", "aria-labelledby": "job-title" });
  const words = { pending: "It waits for its turn; its curves appear here.", running: "It starts; its curves appear here." };
  const draw = (now) => put(card, el("div", { class: "head" }, el("h2", { id: "job-title" }, now.name || now.id), aboutJob(now)),
    empty(words[now.state] ?? "It has written no run."));
  const over = new AbortController();
  draw(job);
  put(main, el("div", { class: "head" }, el("h1", {}, "Run")), card);
  every(2000, AbortSignal.any([signal, over.signal]), async () => {
    const [now, runs] = await Promise.all([ask(`training/${path(job.id)}`, { signal }), ask("runs", { signal })]).catch(() => [job, []]);
    if (runs.some((run) => run.id === job.run)) { over.abort(); await showRun(); } else if (now.state !== job.state || now.reason !== job.reason) draw(job = now);
  });
}

/** State, reason and log of a job. */
function aboutJob(job) {
  return [jobBadge(job.state), job.reason && el("span", { class: job.state === "failed" ? "bad" : "quiet" }, job.reason),
    el("a", { href: `training/${path(job.id)}/logs` }, "Log")];
}

/** Let what is asked for while it runs be one more run after it: answers that overtake each other would take points back. */
function oneAtATime(signal, act) {
  let isBusy = false, isAsked = false;
  return async () => {
    isAsked = true;
    if (isBusy) return;
    isBusy = true;
    try {
      while (isAsked && !signal.aborted) { isAsked = false; await act(); }
    } finally { isBusy = false; }
  };
}

/** Add what is new; the last known step may have got more lines. */
function merge(known, fresh) {
  for (const key of Object.keys(fresh.series)) known.series[key] ??= known.steps.map(() => null);
  const later = known.steps.findIndex((step) => step >= fresh.steps[0]);
  const at = later < 0 ? known.steps.length : later;
  known.steps.splice(at, known.steps.length, ...fresh.steps);
  for (const [key, values] of Object.entries(known.series)) {
    values.splice(at, values.length, ...(fresh.series[key] ?? fresh.steps.map(() => null)));
  }
  for (const [key, reasons] of Object.entries(fresh.not_finite)) known.not_finite[key] = reasons;
}

/** Look again whenever the job says so, and now and then for runs that no job of this service trains. */
function follow(state, signal, refresh) {
  every(state.job ? 15000 : 3000, signal, () => refresh().catch(() => {}));
  if (!state.job || !["pending", "running", "stopping"].includes(state.job.state)) return;
  const events = new EventSource(`training/${path(state.job.id)}/events`);
  events.addEventListener("metrics", () => refresh().catch(() => {}));
  events.addEventListener("state", (event) => {
    state.job = JSON.parse(event.data);
    refresh().catch(() => {});
    if (!["pending", "running", "stopping"].includes(state.job.state)) events.close();
  });
  signal.addEventListener("abort", () => events.close());
}

function drawHead(head, about, { table: { steps, series }, job }) {
  const last = (key) => series[key]?.filter((value) => value !== null).at(-1) ?? null;
  const facts = [
    ["Step", `${number(steps.at(-1) ?? 0)}${about.steps ? ` of ${number(about.steps)}` : ""}`],
    ["Reward", number(last("rollout/reward/mean"))],
    ["Solved", percent(last("rollout/success/mean"))],
    ["Held-out reward", number(last("eval/rollout/reward/mean"))],
    ["Seconds per step", seconds(last("time/step_s"))],
    ["Alarms", number(last("alarm/count") ?? 0)],
  ];
  put(head, el("div", { class: "head" }, el("h2", {}, about.id), el("span", { class: "quiet" }, [job?.name, about.family ?? "?", about.algorithm ?? "?"].filter(Boolean).join(" · ")),
    job ? aboutJob(job) : badge(`written ${ago(about.updated_at)}`, "")),
  about.steps && el("progress", { max: about.steps, value: steps.at(-1) ?? 0, "aria-label": "Steps trained" }),
  el("dl", { class: "figures" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))));
}

function curveControls(state, draw) {
  const log = el("button", { type: "button", "aria-pressed": "false", onclick: (event) => { state.isLog = !state.isLog; event.target.setAttribute("aria-pressed", state.isLog); draw(); } }, "Log axis");
  const smoothing = el("input", { type: "range", id: "smoothing", min: "0", max: "0.95", step: "0.05", value: "0", oninput: (event) => { state.weight = Number(event.target.value); draw(); } });
  const filter = el("input", { type: "search", id: "filter", placeholder: "all metrics, for instance gpu/", oninput: (event) => { state.filter = event.target.value.trim(); draw(); } });
  return el("div", { class: "curve-controls" },
    el("div", { class: "check" }, el("label", { for: "smoothing" }, "Smoothing"), smoothing), log,
    el("div", { class: "check" }, el("label", { for: "filter" }, "Find"), filter));
}

function drawCurves(node, state) {
  const focused = node.contains(document.activeElement) ? document.activeElement.closest("figure")?.dataset.key : null;
  // A chart that somebody reads with the keyboard is not taken from under their hands.
  if (focused) return;
  const { steps, series, not_finite: reasons } = state.table;
  if (!steps.length) return void put(node, empty("No step has been trained yet; curves appear here as soon as there is one."));
  const known = Object.keys(series).sort();
  const groups = state.filter
    ? { [`Metrics with “${state.filter}”`]: known.filter((key) => key.includes(state.filter)).slice(0, 40) }
    : Object.fromEntries(Object.entries(GROUPS).map(([name, keys]) => [name, keys.filter((key) => series[key])]));
  const parts = Object.entries(groups).filter(([, keys]) => keys.length).map(([name, keys]) =>
    el("div", { class: "curves-group" }, el("h3", {}, name), el("div", { class: "curves" },
      keys.map((key) => lineChart(key, [{ name: key, steps, values: series[key] }], { isLog: state.isLog, weight: state.weight, reasons: reasons[key] ?? {} })))));
  put(node, parts.length ? parts : empty("No metric has that in its name."));
}

function drawGpu(node, { steps, series }) {
  if (node.contains(document.activeElement)) return;
  const title = el("h2", { id: "gpu-title" }, "Where the GPU-seconds go");
  const share = (part) => series[`gpu/${part}/share`];
  const rows = steps.map((step, i) => ({ step, size: (series["time/step_s"]?.[i] ?? 0) * (series["gpu/count"]?.[i] ?? 0), i })).filter(({ size, i }) => size && share("idle")?.[i] !== null);
  if (!rows.length) return void put(node, title, empty("No step has been accounted for yet."));
  const bars = rows.slice(-BARS).map(({ step, size, i }) => ({ name: `step ${step}`, parts: Object.fromEntries(PARTS.map((part) => [part, size * (share(part)?.[i] ?? 0)])) }));
  const sums = Object.fromEntries(PARTS.map((part) => [part, rows.reduce((sum, { size, i }) => sum + size * (share(part)?.[i] ?? 0), 0)]));
  const total = Object.values(sums).reduce((a, b) => a + b, 0) || 1;
  const gpus = series["gpu/count"].filter((count) => count !== null).at(-1);
  put(node, el("div", { class: "head" }, title, el("span", { class: "quiet small" }, `${seconds(total)} on ${number(gpus)} ${gpus === 1 ? "device" : "devices"} in ${rows.length} steps; a rank or engine stands for one where there is no GPU`)),
    el("div", { class: "total", role: "img", "aria-label": PARTS.map((part) => `${part} ${percent(sums[part] / total)}`).join(", ") },
      PARTS.filter((part) => sums[part] > 0).map((part) => {
        const piece = el("span", { class: `piece part-${part}` });
        piece.style.flexGrow = String(sums[part] / total);
        return piece;
      })),
    table("GPU-seconds by part", [["Part", (row) => [el("span", { class: `swatch part-${row.part}`, "aria-hidden": "true" }), row.part]], ["GPU-seconds", (row) => seconds(row.size), true], ["Share", (row) => percent(row.size / total), true]],
      PARTS.map((part) => ({ part, size: sums[part] }))),
    el("h3", {}, rows.length > BARS ? `The last ${BARS} steps` : "By step"), stackedBars("GPU-seconds by step", PARTS, bars, seconds));
}

function configCard(about) {
  const flat = flatten(about.config);
  const search = el("input", { type: "search", id: "config-filter", placeholder: "for instance optimizer" });
  const body = el("div", {});
  const draw = () => put(body, table("Config", [["Setting", (row) => el("code", {}, row[0])], ["Value", (row) => el("code", { class: "wrap" }, plain(row[1]))]], flat.filter(([key]) => key.includes(search.value.trim()))));
  search.addEventListener("input", draw);
  draw();
  return el("details", { class: "card" }, el("summary", {}, el("h2", {}, "Config and versions")),
    el("p", { class: "quiet small" }, Object.entries(about.versions ?? {}).map(([name, version]) => `${name} ${version}`).join(" · ")),
    field("Find a setting", search), body);
}

function flatten(value, prefix = "") {
  return Object.entries(value ?? {}).flatMap(([key, item]) =>
    item && typeof item === "object" && !Array.isArray(item) ? flatten(item, `${prefix}${key}.`) : [[`${prefix}${key}`, item]]);
}
