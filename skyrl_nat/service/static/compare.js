// Two runs beside each other.

import { ask, query } from "./api.js";
import { lineChart } from "./chart.js";
import { el, put, table } from "./dom.js";
import { ago, number, plain } from "./format.js";
import { noRuns, runChoice } from "./run.js";
import { empty } from "./states.js";

export async function show(main, { query: asked, signal }) {
  const runs = await ask("runs", { signal });
  if (!runs.length) return void put(main, el("h1", {}, "Compare"), noRuns());
  const a = asked.get("a") || runs[0].id;
  const b = asked.get("b") || (runs.find((run) => run.id !== a) ?? runs[0]).id;
  const keys = asked.get("keys");
  const go = (changes) => { location.hash = `#/compare${query({ a, b, keys, ...changes })}`; };
  const found = await ask(`compare${query({ a, b, keys })}`, { signal });
  put(main,
    el("div", { class: "head" }, el("h1", {}, "Compare"),
      side("A", 0, runChoice(runs, a, (to) => go({ a: to }), { id: "run-a", label: "Run A" })), el("span", { class: "quiet" }, "with"),
      side("B", 1, runChoice(runs, b, (to) => go({ b: to }), { id: "run-b", label: "Run B" })),
      el("button", { type: "button", onclick: () => go({ a: b, b: a }) }, "Swap")),
    a === b && el("p", { class: "notice warn" }, "Both sides are the same run. Choose another one."),
    el("section", { class: "card", "aria-labelledby": "about-title" }, el("h2", { id: "about-title" }, "The two runs"), about(found)),
    el("section", { class: "card", "aria-labelledby": "curves-title" }, el("h2", { id: "curves-title" }, "Curves"), curves(found)),
    figures(found), settings(found));
}

function side(name, number_, control) {
  return el("div", { class: "check" }, el("span", { class: `swatch series-${number_}`, "aria-hidden": "true" }), el("strong", {}, name), control);
}

function about({ a, b }) {
  const row = (name, tell) => ({ name, a: tell(a), b: tell(b) });
  return table("The two runs", [["", (one) => one.name], ["A", (one) => one.a], ["B", (one) => one.b]],
    [row("Run", (run) => run.id), row("Family", (run) => run.family ?? "?"), row("Algorithm", (run) => run.algorithm ?? "?"), row("Step", (run) => `${number(run.last_step)} of ${number(run.planned_steps)}`), row("Written", (run) => ago(run.updated_at))]);
}

function curves({ a, b }) {
  const known = Object.keys(a.series).filter((key) => [...a.series[key], ...(b.series[key] ?? [])].some((value) => value !== null));
  if (!known.length) return empty("Neither run has these metrics yet.");
  return el("div", { class: "curves" }, known.map((key) => lineChart(key, [
    { name: "A", steps: a.steps, values: a.series[key] },
    { name: "B", steps: b.steps, values: b.series[key] ?? b.steps.map(() => null), isDashed: true },
  ])));
}

function figures({ final }) {
  const filter = el("input", { type: "search", id: "figure-filter", placeholder: "for instance reward" });
  const body = el("div", {});
  const sign = (value) => (value === null ? "–" : `${value > 0 ? "+" : ""}${number(value)}`);
  const draw = () => {
    const rows = final.filter((row) => row.key.includes(filter.value.trim()));
    put(body, rows.length ? table("Newest figures", [["Metric", (row) => el("code", {}, row.key)], ["A", (row) => number(row.a), true], ["B", (row) => number(row.b), true], ["B less A", (row) => sign(row.difference), true]], rows) : empty("No metric has that in its name."));
  };
  filter.value = "reward";
  filter.addEventListener("input", draw);
  draw();
  return el("section", { class: "card", "aria-labelledby": "figures-title" },
    el("div", { class: "head" }, el("h2", { id: "figures-title" }, "Newest figures"), el("span", { class: "grow" }), el("div", { class: "check" }, el("label", { for: "figure-filter" }, "Find"), filter)), body);
}

function settings({ config }) {
  return el("section", { class: "card", "aria-labelledby": "settings-title" }, el("h2", { id: "settings-title" }, "Settings that differ"),
    config.length ? table("Settings that differ", [["Setting", (row) => el("code", {}, row.key)], ["A", (row) => el("code", { class: "wrap" }, plain(row.a))], ["B", (row) => el("code", { class: "wrap" }, plain(row.b))]], config) : empty("None: both runs have the same config."));
}
