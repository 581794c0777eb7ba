// Jobs, runs, the catalogue of environments, and the form that starts a job.

import { ask, path } from "./api.js";
import { announce, el, put, redraw, table } from "./dom.js";
import { ago, number } from "./format.js";
import { startForm } from "./start_form.js";
import { badge, empty, every, failed, jobBadge } from "./states.js";

const ACTIVE = ["pending", "running", "stopping"];

export async function show(main, { signal }) {
  const jobs = el("section", { class: "card", "aria-labelledby": "jobs-title" });
  const runs = el("section", { class: "card", "aria-labelledby": "runs-title" });
  const catalogue = el("section", { class: "card", "aria-labelledby": "catalogue-title" });
  const start = el("section", { class: "card", "aria-labelledby": "start-title", id: "start" });
  const environments = await ask("environments", { signal });
  const drawJobs = async () => {
    try {
      const { jobs: found } = await ask("training", { signal });
      redraw(jobs, found, () => putJobs(jobs, found, drawJobs));
    } catch (error) {
      jobs.shown = null;
      if (!signal.aborted) put(jobs, el("h2", { id: "jobs-title" }, "Jobs"), failed(error, drawJobs));
    }
  };
  const drawRuns = async () => {
    const found = await ask("runs", { signal });
    redraw(runs, found, () => putRuns(runs, found));
  };
  await Promise.all([drawJobs(), drawRuns()]);
  const form = startForm(environments, drawJobs);
  put(start, el("h2", { id: "start-title" }, "Start training"), environments.length ? form.node : empty("No environment is installed."));
  putCatalogue(catalogue, environments, form.choose);
  put(main, el("div", { class: "head" }, el("h1", {}, "Overview")), el("div", { class: "overview" }, el("div", { class: "stack" }, jobs, runs), start), catalogue);
  every(4000, signal, async () => {
    await drawJobs();
    await drawRuns().catch(() => {});
  });
}

function putJobs(node, jobs, again) {
  const cancel = async (event, job) => {
    event.stopPropagation();
    try {
      const now = await ask(`training/${path(job.id)}/cancel`, { method: "POST" });
      announce(`${job.name} is ${now.state}`);
      await again();
    } catch (error) { put(fault, failed(error)); }
  };
  const fault = el("div", {});
  const columns = [
    ["Job", (job) => [el("strong", {}, job.name || job.id), el("div", { class: "quiet small" }, `${job.environment} · ${job.algorithm}`)]],
    ["State", (job) => [jobBadge(job.state), job.reason && el("div", job.state === "failed" ? { class: "small bad wrap" } : { class: "small quiet clip", title: job.reason }, job.reason)]],
    ["Step", (job) => `${number(job.step)} / ${number(job.steps)}`, true],
    ["Submitted", (job) => ago(job.submitted_at)],
    ["", (job) => ACTIVE.includes(job.state) && el("button", { type: "button", onclick: (event) => cancel(event, job), disabled: job.state === "stopping", "aria-label": `Cancel ${job.name || job.id}` }, "Cancel")],
  ];
  const open = (job) => { location.hash = `#/run/${path(job.run)}`; };
  put(node, el("h2", { id: "jobs-title" }, "Jobs"), fault,
    jobs.length ? table("Jobs of this service", columns, jobs, { open, key: (job) => job.id }) : empty("No job has been submitted to this service yet."));
}

function putRuns(node, runs) {
  const columns = [
    ["Run", (run) => el("strong", {}, run.id)],
    ["Family", (run) => run.family ?? "?"],
    ["Algorithm", (run) => run.algorithm ?? "?"],
    ["Step", (run) => `${number(run.last_step)}${run.steps ? ` / ${number(run.steps)}` : ""}`, true],
    ["Written", (run) => ago(run.updated_at)],
  ];
  put(node, el("h2", { id: "runs-title" }, "Runs"),
    runs.length ? table("Run folders", columns, runs, { open: (run) => { location.hash = `#/run/${path(run.id)}`; }, key: (run) => run.id })
      : empty("There is no run folder yet. What is started here, or with skyrl-nat train under the same root, appears here."));
}

function putCatalogue(node, environments, choose) {
  put(node, el("h2", { id: "catalogue-title" }, "Environments"),
    environments.length ? el("ul", { class: "catalogue" }, environments.map((one) => el("li", { class: "entry" },
      el("div", { class: "head" }, el("div", { class: "grow wrap" }, el("h3", {}, one.name), badge(one.kind, "")),
        el("button", { type: "button", "aria-label": `Train ${one.name}`, onclick: () => choose(one.name) }, "Train")),
      el("p", {}, one.description),
      el("p", { class: "quiet small" }, `Algorithms: ${one.algorithms.join(", ")}`),
      one.experiments.length > 0 && el("p", { class: "quiet small" }, `Presets: ${one.experiments.join(", ")}`))))
      : empty("No environment is installed."));
}
