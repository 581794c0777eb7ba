// The form that submits a job. What can be told wrong here is told before anything is sent; the rest the service tells.

import { ask, freshId } from "./api.js";
import { announce, choice, el, field, put } from "./dom.js";
import { failed } from "./states.js";

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const OVERRIDE = /^[A-Za-z_][\w./@-]*=.*$/;
const DEFAULT_ALGORITHM = "grpo";
const MOST_STEPS = 1e7, LARGEST_SEED = 2 ** 31 - 1;

/** What is wrong with each field, `{ field: sentence }`. */
export function faults(values) {
  const found = {};
  const whole = (text) => /^\d+$/.test(text);
  if (!whole(values.steps) || Number(values.steps) < 1 || Number(values.steps) > MOST_STEPS) found.steps = `Steps must be a whole number from 1 to ${MOST_STEPS.toLocaleString("en")}.`;
  if (!whole(values.seed) || Number(values.seed) > LARGEST_SEED) found.seed = `The seed must be a whole number from 0 to ${LARGEST_SEED.toLocaleString("en")}.`;
  if (values.name && !NAME.test(values.name)) found.name = "A name has letters, digits, “.”, “_” and “-”, begins with a letter or digit and is 64 characters at most.";
  if (values.resume && !values.name) found.name = "Name the run that is to go on.";
  const wrong = lines(values.overrides).find((line) => !OVERRIDE.test(line));
  if (wrong) found.overrides = `Each line must be key=value, got “${wrong.slice(0, 40)}”.`;
  return found;
}

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

export function startForm(environments, onStarted) {
  const names = ["environment", "algorithm", "experiment", "steps", "seed", "name", "overrides", "resume"];
  const controls = {
    environment: choice({ id: "f-environment" }, environments.map((one) => [one.name, one.name])),
    algorithm: choice({ id: "f-algorithm" }, []),
    experiment: choice({ id: "f-experiment" }, []),
    steps: el("input", { id: "f-steps", inputmode: "numeric", value: "10", autocomplete: "off" }),
    seed: el("input", { id: "f-seed", inputmode: "numeric", value: "0", autocomplete: "off" }),
    name: el("input", { id: "f-name", autocomplete: "off", placeholder: "made for you" }),
    overrides: el("textarea", { id: "f-overrides", rows: "3", spellcheck: "false", placeholder: "optimizer.lr=1e-4" }),
    resume: el("input", { id: "f-resume", type: "checkbox" }),
  };
  const places = Object.fromEntries(names.map((name) => [name, el("p", { class: "fault", id: `f-${name}-fault` })]));
  const result = el("div", { "aria-live": "polite" });
  const submit = el("button", { type: "submit", class: "primary" }, "Start");
  let key = freshId();
  const fillChoices = () => {
    const chosen = environments.find((one) => one.name === controls.environment.value) ?? { algorithms: [], experiments: [] };
    const algorithm = controls.algorithm.value || DEFAULT_ALGORITHM;
    put(controls.algorithm, chosen.algorithms.map((name) => el("option", { value: name }, name)));
    if (chosen.algorithms.includes(algorithm)) controls.algorithm.value = algorithm;
    put(controls.experiment, el("option", { value: "" }, "none"), chosen.experiments.map((name) => el("option", { value: name }, name)));
  };
  const read = () => ({
    ...Object.fromEntries(names.map((name) => [name, controls[name].value.trim()])), resume: controls.resume.checked,
  });
  const tell = (found) => {
    for (const name of names) {
      put(places[name], found[name] ?? "");
      if (found[name]) controls[name].setAttribute("aria-invalid", "true");
      else controls[name].removeAttribute("aria-invalid");
      controls[name].setAttribute("aria-describedby", `f-${name}-fault`);
    }
    const first = names.find((name) => found[name]);
    if (first) { controls[first].focus(); announce(found[first]); }
    return !first;
  };
  const send = async (event) => {
    event.preventDefault();
    const values = read();
    put(result);
    if (!tell(faults(values))) return;
    submit.disabled = true;
    try {
      const job = await ask(`train/${values.environment.split("/").map(encodeURIComponent).join("/")}`, {
        method: "POST", headers: { "Idempotency-Key": key },
        body: { algorithm: values.algorithm, experiment: values.experiment || null, steps: Number(values.steps), seed: Number(values.seed), name: values.name || null, overrides: lines(values.overrides), resume: values.resume },
      });
      key = freshId();
      put(result, el("p", { class: "notice good" }, `${job.name || job.id} is ${job.state}. `, el("a", { href: `#/run/${encodeURIComponent(job.run)}` }, "Watch it")));
      await onStarted();
    } catch (error) {
      // Another try with other words is another request.
      if (error.status) key = freshId();
      // A key of the config was named by an override, unless it is a field here.
      const name = names.find((one) => error.field === one) ?? (error.status === 422 && error.field ? "overrides" : undefined);
      if (name) tell({ [name]: error.message });
      else put(result, failed(error));
    } finally { submit.disabled = false; }
  };
  controls.environment.addEventListener("change", fillChoices);
  fillChoices();
  const shown = (name, label) => el("div", { class: ["overrides", "environment"].includes(name) ? "wide" : "" }, field(label, controls[name]), places[name]);
  const node = el("form", { novalidate: true, onsubmit: send },
    el("div", { class: "fields" }, shown("environment", "Environment"), shown("algorithm", "Algorithm"), shown("experiment", "Preset"),
      shown("steps", "Steps"), shown("seed", "Seed"), shown("name", "Name (may be left out)"), shown("overrides", "Overrides, one key=value a line"),
      el("div", { class: "wide" }, el("div", { class: "check" }, controls.resume, el("label", { for: "f-resume" }, "Go on from the newest checkpoint of that name")), places.resume)),
    el("div", { class: "head form-end" }, submit), result);
  const choose = (name) => {
    controls.environment.value = name;
    fillChoices();
    controls.environment.focus();
    controls.environment.scrollIntoView({ block: "center" });
  };
  return { node, choose };
}
