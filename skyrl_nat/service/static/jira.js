// The Jira simulation by hand.

import { ask, path } from "./api.js";
import { announce, choice, el, field, put, table } from "./dom.js";
import { number } from "./format.js";
import { badge, failed } from "./states.js";

const VERDICTS = [
  ["is_complete", "all of the plan was done"], ["is_in_order", "in its order"], ["has_no_duplicate", "no tool twice"],
  ["has_nothing_needless", "nothing needless"], ["is_final_state_right", "ended with the goal reached"],
];

export async function show(main, { signal }) {
  const environments = await ask("jira/environments", { signal });
  const stage = el("div", { class: "stack" });
  const environment = choice({ id: "jira-environment" }, environments.map((one) => [one.id, one.id]));
  const seed = el("input", { id: "jira-seed", inputmode: "numeric", value: "0", autocomplete: "off" });
  const issue = choice({ id: "jira-issue" }, []);
  const fault = el("p", { class: "fault wide", role: "alert" });
  const fillIssues = () => put(issue, el("option", { value: "" }, "as the seed draws it"),
    environments.find((one) => one.id === environment.value).issues.map((one) => el("option", { value: one.key }, `${one.key}: ${one.summary}`)));
  const begin = async (event) => {
    event?.preventDefault();
    const isSeed = /^\d+$/.test(seed.value.trim()) && Number(seed.value) < 2 ** 32;
    seed.setAttribute("aria-invalid", String(!isSeed));
    fault.textContent = isSeed ? "" : "The seed must be a whole number from 0 to 4,294,967,295.";
    if (!isSeed) return void seed.focus();
    try {
      const session = await ask("jira/sessions", { method: "POST", body: { environment: environment.value, seed: Number(seed.value), issue: issue.value || null } });
      draw(stage, session, begin);
      announce(`Episode with issue ${session.issue.key} began`);
    } catch (error) { put(stage, failed(error, begin)); }
  };
  environment.addEventListener("change", () => { fillIssues(); begin(); });
  fillIssues();
  put(main, el("div", { class: "head" }, el("h1", {}, "Jira console"), el("span", { class: "quiet" }, "The simulation that agents are trained on, by hand.")),
    el("form", { class: "card", onsubmit: begin, novalidate: true }, el("div", { class: "fields roomy" }, field("Environment", environment), field("Issue", issue), field("Seed", seed),
      el("div", { class: "reset" }, el("button", { type: "submit", class: "primary" }, "New episode")), fault)), stage);
  await begin();
}

function draw(stage, session, begin, focus = null) {
  const isOver = session.verdict !== null;
  const fault = el("div", {});
  const use = async (action) => {
    try {
      const after = await ask(`jira/sessions/${path(session.id)}/step`, { method: "POST", body: { action } });
      const last = after.steps.at(-1);
      announce(`${action}: ${last.is_valid ? "done" : last.reason}, reward ${number(last.reward)}${after.verdict ? `. The episode is over, ${after.verdict.is_ok ? "solved" : "not solved"}` : ""}`);
      draw(stage, after, begin, action);
    } catch (error) { put(fault, failed(error, error.status === 404 ? begin : null)); }
  };
  put(stage,
    el("div", { class: "console" },
      el("div", { class: "stack" }, issueCard(session), tools(session, isOver, use, fault)),
      el("div", { class: "stack" }, isOver && verdictCard(session, begin), stepsCard(session))));
  if (focus) (stage.querySelector(isOver ? "[data-again]" : `[data-tool="${CSS.escape(focus)}"]`) ?? stage).focus();
}

function issueCard(session) {
  const { issue, state } = session;
  const facts = [["Type", issue.type], ["Priority", issue.priority], ["Status", el("strong", {}, state.status)], ["Target", issue.target || "–"], ["Facts", state.facts.length ? state.facts.map((fact) => [badge(fact, ""), " "]) : "none"]];
  return el("section", { class: "card", "aria-labelledby": "issue-title" },
    el("div", { class: "head" }, el("h2", { id: "issue-title" }, `${issue.key}: ${issue.summary}`), session.is_goal_reached && badge("goal holds", "good")),
    el("p", { class: "quiet" }, session.task), el("dl", { class: "facts" }, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    el("details", {}, el("summary", {}, "Rules and plan"), el("p", { class: "quiet small" }, session.rules), el("p", { class: "mono small" }, session.plan.join(" → "))));
}

function tools(session, isOver, use, fault) {
  return el("section", { class: "card", "aria-labelledby": "tools-title" },
    el("div", { class: "head" }, el("h2", { id: "tools-title" }, "Tools"), el("span", { class: "quiet small" }, isOver ? "The episode is over." : "A tool that is not possible costs a penalty and changes nothing.")),
    el("ul", { class: "tools-list" }, session.tools.map((tool) => el("li", {},
      el("button", { type: "button", "data-tool": tool.name, disabled: isOver, class: tool.is_possible ? "possible" : "impossible", onclick: () => use(tool.name), "aria-describedby": `tool-${tool.name}` }, el("code", {}, tool.name)),
      el("span", { class: "small", id: `tool-${tool.name}` }, tool.does, !tool.is_possible && el("span", { class: "warn" }, ` · not possible: ${tool.reason}`))))), fault);
}

function stepsCard(session) {
  const columns = [["", (step) => step.number, true], ["Tool", (step) => [el("code", {}, step.action), step.reason && el("div", { class: "warn small" }, step.reason)]], ["Status", (step) => step.status], ["Reward", (step) => number(step.reward), true]];
  return el("section", { class: "card", "aria-labelledby": "steps-title" },
    el("h2", { id: "steps-title" }, "Episode"),
    el("dl", { class: "figures" }, [["Return", number(session.return)], ["Best possible", number(session.optimal_return)], ["Steps", `${session.steps.length} / ${session.max_steps}`], ["Plan", `${session.num_progress} / ${session.plan.length}`]].map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    session.steps.length ? table("Steps", columns, session.steps.map((step, i) => ({ ...step, number: i + 1 }))) : el("p", { class: "quiet" }, "No tool has been used yet."));
}

function verdictCard({ verdict, truncated, terminated }, begin) {
  return el("section", { class: "card", "aria-labelledby": "verdict-title" },
    el("div", { class: "head" }, el("h2", { id: "verdict-title" }, "Verdict"), verdict.is_ok ? badge("solved", "good") : badge("not solved", "bad"), el("span", { class: "grow" }), el("button", { type: "button", class: "primary", "data-again": true, onclick: () => begin() }, "Play again")),
    truncated && !terminated && el("p", { class: "warn" }, "The step limit was reached."),
    el("ul", { class: "stages" }, VERDICTS.map(([name, text]) => el("li", {}, badge(text, verdict[name] ? "good" : "bad")))),
    verdict.findings.length > 0 && el("ul", {}, verdict.findings.map((text) => el("li", {}, text))));
}
