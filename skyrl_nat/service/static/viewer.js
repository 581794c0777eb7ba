// One rollout: its turns, its tokens with all that is known of each, and why it got its reward.

import { ask, path, query } from "./api.js";
import { choice, el, put } from "./dom.js";
import { number, plainSigns, seconds } from "./format.js";
import { rewardBar } from "./rollouts.js";
import { badge, empty, outcomeBadge, successBadge } from "./states.js";

const COLOURS = {
  author: "who wrote it",
  advantage: "advantage",
  rollout_logprob: "rollout log-prob",
  difference: "trainer less rollout log-prob",
  clipped: "clip state",
  policy_version: "policy version",
};
const HEAT = 40;
/** Percent of colour behind the largest number: more would take the text's contrast. */
const TELLS = [
  ["author", "Written by"], ["in_loss", "In the loss"], ["rollout_logprob", "Rollout log-prob"], ["trainer_logprob", "Trainer log-prob"],
  ["difference", "Difference"], ["advantage", "Advantage"], ["clipped", "Clipped"], ["policy_version", "Policy version"], ["id", "Token id"],
];

export async function show(main, { parts, query: asked, signal }) {
  const [id, step, label, group, index] = parts;
  const filter = { outcome: asked.get("outcome"), min_reward: asked.get("min_reward"), max_reward: asked.get("max_reward") };
  const [one, list] = await Promise.all([
    ask(`runs/${path(id)}/rollouts/${path(step, label, group, index)}`, { signal }),
    ask(`runs/${path(id)}/rollouts${query({ ...filter, step, label, limit: 500 })}`, { signal }),
  ]);
  for (const token of one.tokens) token.difference = token.trainer_logprob === null || token.rollout_logprob === null ? null : token.trainer_logprob - token.rollout_logprob;
  const at = list.rollouts.findIndex((row) => row.group === one.group && row.index === one.index);
  const link = (row) => `#/rollout/${path(id, step, label, row.group, row.index)}${query(filter)}`;
  const detail = el("section", { class: "card token-card", "aria-labelledby": "token-title", "aria-live": "polite" });
  const turns = el("div", { class: "turns" });
  const state = { colour: "author", mode: "tokens" };
  drawToken(detail, null);
  const draw = () => drawTurns(turns, one, state, (token, place) => drawToken(detail, token, place));
  put(main,
    el("div", { class: "head" }, el("h1", {}, "Rollout"), el("a", { href: `#/rollouts/${path(id)}${query({ ...filter, step, label })}` }, `${id}, step ${step}`), el("span", { class: "grow" }),
      neighbour("Before", "[", list.rollouts[at - 1], link), el("span", { class: "quiet small" }, at < 0 ? "" : `${at + 1} of ${list.rollouts.length}`), neighbour("After", "]", list.rollouts[at + 1], link)),
    summary(one),
    Object.values(one.notes).filter(Boolean).map((note) => el("p", { class: "notice" }, note)),
    el("div", { class: "viewer" }, el("section", { class: "card", "aria-labelledby": "turns-title" },
      el("div", { class: "head" }, el("h2", { id: "turns-title" }, "Turns"), el("span", { class: "grow" }), modes(state, draw), colours(state, turns, one)), el("div", { class: "legend-place" }), turns),
    el("div", { class: "side" }, detail, rewards(one))));
  draw();
  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName)) return;
    const row = { "[": list.rollouts[at - 1], "]": list.rollouts[at + 1] }[event.key];
    if (row) location.hash = link(row);
  };
  addEventListener("keydown", onKey, { signal });
}

function neighbour(text, key, row, link) {
  return el("button", { type: "button", disabled: !row, "aria-keyshortcuts": key, onclick: () => { location.hash = link(row); } }, text, " ", el("kbd", {}, key));
}

function summary(one) {
  const facts = [["Task", one.task_id], ["Reward", one.reward === null ? "none" : number(one.reward)], ["Turns", number(one.turns.length)], ["Tokens", number(one.num_tokens)], ["In the loss", number(one.num_loss_tokens)], ["Difficulty", number(one.difficulty)]];
  return el("section", { class: "card", "aria-label": "Summary" },
    el("div", { class: "head" }, outcomeBadge(one.outcome), one.reward !== null && successBadge(one.is_success), one.suspicions.length > 0 && badge("suspected", "warn"), one.reason && el("span", { class: "quiet" }, one.reason)),
    el("dl", { class: "figures" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))));
}

function modes(state, draw) {
  const make = (mode, text) => el("button", { type: "button", "aria-pressed": String(state.mode === mode), onclick: (event) => {
    state.mode = mode;
    for (const button of event.target.parentNode.children) button.setAttribute("aria-pressed", String(button === event.target));
    draw();
  } }, text);
  return el("div", { class: "switch", role: "group", "aria-label": "Show" }, make("tokens", "Tokens"), make("text", "Text"));
}

function colours(state, turns, one) {
  return el("div", { class: "check" }, el("label", { for: "colour" }, "Colour"), choice({ id: "colour", onchange: (event) => { state.colour = event.target.value; paint(turns, one, state.colour); } }, Object.entries(COLOURS), state.colour));
}

/** What the colours mean: authors, or the scale of a number. */
function legend(colour, largest, hasNegative) {
  const item = (kind, text, heat) => {
    const sample = el("span", { class: `token ${kind}`, "aria-hidden": "true" }, "ab");
    if (heat) sample.style.setProperty("--heat", `${HEAT}%`);
    return el("li", {}, sample, text);
  };
  const authors = [item("by-policy", "policy"), item("by-environment", "environment"), item("by-template", "template")];
  const numbers = largest === null ? [el("li", {}, "nothing is known")]
    : colour === "clipped" ? [item("heat below", "clipped", true)]
      : colour === "policy_version" ? [item("heat", `version ${number(largest)}, older ones paler`, true)]
        : [hasNegative && item("heat below", number(-largest), true), item("heat", number(largest), true)];
  return el("ul", { class: "legend" }, colour === "author" ? authors : numbers, item("in-loss", "in the loss"), item("in-loss clipped", "clipped"));
}

function drawTurns(node, one, state, onToken) {
  const blocks = one.turns.map((turn, i) => turnBlock(one, turn, i, state));
  put(node, blocks.length ? blocks : empty("The policy was never asked: there is no turn."));
  if (state.mode !== "tokens") return;
  paint(node, one, state.colour);
  const all = [...node.querySelectorAll(".token[data-at]")];
  if (all[0]) all[0].tabIndex = 0;
  const select = (token) => {
    node.querySelector('.token[tabindex="0"]')?.setAttribute("tabindex", "-1");
    node.querySelector('.token[aria-selected="true"]')?.setAttribute("aria-selected", "false");
    token.tabIndex = 0;
    token.setAttribute("aria-selected", "true");
    const place = Number(token.dataset.at);
    onToken(one.tokens[place], place);
  };
  for (const list of node.querySelectorAll(".tokens")) {
    list.addEventListener("focusin", (event) => event.target.dataset.at && select(event.target));
    list.addEventListener("click", (event) => event.target.closest(".token[data-at]")?.focus());
    list.addEventListener("keydown", (event) => moveToken(event, all));
  }
}

function moveToken(event, all) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const at = all.indexOf(event.target);
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1 }[event.key] ?? lineAway(event, all, at);
  if (to === undefined || !all[to]) return;
  event.preventDefault();
  all[to].focus();
}

/** The token above or below, the nearest to the same place in its line. */
function lineAway({ key }, all, at) {
  const way = { ArrowUp: -1, ArrowDown: 1 }[key];
  if (!way) return undefined;
  const from = all[at].getBoundingClientRect();
  let best, nearest = Infinity, line = null;
  for (let i = at + way; all[i]; i += way) {
    const box = all[i].getBoundingClientRect();
    if (Math.abs(box.top - from.top) < 4) continue;
    if (line !== null && Math.abs(box.top - line) > 4) break;
    line = box.top;
    const distance = Math.abs(box.left - from.left);
    if (distance < nearest) { nearest = distance; best = i; }
  }
  return best;
}

function turnBlock(one, turn, i, state) {
  const tokens = one.tokens.map((token, place) => [token, place]).filter(([token]) => token.turn === i);
  const facts = `${number(turn.num_completion_tokens)} sampled · ${turn.finish_reason} · ${seconds(turn.generate_s)} sampling · ${seconds(turn.environment_s)} environment${turn.reward ? ` · reward ${number(turn.reward)}` : ""}`;
  return el("article", { class: "turn", "aria-labelledby": `turn-${i}` },
    el("div", { class: "head" }, el("h3", { id: `turn-${i}` }, `Turn ${turn.number}`), el("span", { class: "quiet small" }, facts)),
    state.mode === "tokens" ? el("div", { class: "tokens", role: "listbox", "aria-label": `Tokens of turn ${turn.number}`, "aria-orientation": "horizontal" }, tokens.map(([token, place]) => tokenNode(token, place))) : messages(one, turn, i));
}

function tokenNode(token, place) {
  const kinds = ["token", token.author ? `by-${token.author}` : "by-nobody", token.in_loss && "in-loss", token.clipped && "clipped"].filter(Boolean);
  return el("span", { class: kinds.join(" "), role: "option", "aria-selected": "false", tabindex: "-1", "data-at": place }, visible(token));
}

/** A token's text; what would not be seen gets a sign. */
function visible(token) {
  if (token.text === null) return `${token.id} `;
  if (token.text === "") return "▯";
  return plainSigns(token.text).replaceAll("\n", "↵\n").replaceAll("\t", "⇥\t");
}

function messages(one, turn, i) {
  const before = i === 0 ? one.prompt : one.turns[i - 1].observations;
  const message = (role, text, kind) => el("div", { class: `message ${kind}` }, el("p", { class: "small quiet" }, role), el("pre", {}, plainSigns(text) || "(empty)"));
  return [before.map((told) => message(told.role, told.content, "from-environment")), message("policy", turn.text, "from-policy"),
    i === one.turns.length - 1 && turn.observations.map((told) => message(`${told.role} (never shown to the policy)`, told.content, "from-environment"))];
}

/** Colour tokens: a share from -1 to 1 of the largest value, as a custom property that the style sheet reads. */
function paint(node, one, colour) {
  node.dataset.colour = colour;
  const worth = (token) => (colour === "clipped" ? (token.clipped === null ? null : -Number(token.clipped)) : token[colour]);
  const values = one.tokens.map(worth).filter((value) => typeof value === "number");
  const low = Math.min(...values), largest = Math.max(...values.map(Math.abs), 1e-12);
  const place = node.parentNode?.querySelector(".legend-place");
  if (place) put(place, legend(colour, values.length ? largest : null, low < 0));
  for (const item of node.querySelectorAll(".token[data-at]")) {
    const value = worth(one.tokens[item.dataset.at]);
    item.classList.toggle("unknown", colour !== "author" && typeof value !== "number");
    if (colour === "author" || typeof value !== "number") { item.style.removeProperty("--heat"); item.classList.remove("below"); continue; }
    const heat = colour === "policy_version" ? (value - low + 1) / (largest - low + 1) : value / largest;
    item.style.setProperty("--heat", `${Math.round(HEAT * Math.abs(heat))}%`);
    item.classList.toggle("below", heat < 0);
  }
}

function drawToken(node, token, place) {
  const title = el("h2", { id: "token-title" }, token ? `Token ${place}` : "Token");
  if (!token) return void put(node, title, el("p", { class: "quiet" }, "Choose a token, by pointer or with Tab and the arrow keys."));
  const tell = (name) => {
    const value = token[name];
    if (name === "in_loss") return value ? "yes" : "no";
    if (value === null || value === undefined) return name === "author" ? "not known" : "–";
    if (name === "clipped") return value ? "yes" : "no";
    return typeof value === "number" && !["id", "policy_version"].includes(name) ? number(value, 6) : String(value);
  };
  put(node, title, el("p", { class: "token-text mono" }, token.text === "" ? "(first bytes of a character that a later token completes)" : token.text === null ? `#${token.id}` : JSON.stringify(token.text)),
    el("dl", { class: "facts" }, TELLS.map(([name, text]) => [el("dt", {}, text), el("dd", {}, tell(name))])));
}

function rewards(one) {
  const parts = Object.entries(one.reward_parts);
  return el("section", { class: "card", "aria-labelledby": "reward-title" },
    el("div", { class: "head" }, el("h2", { id: "reward-title" }, "Reward"), el("span", { class: "grow" }), el("strong", {}, one.reward === null ? "none" : number(one.reward))),
    one.reward === null && el("p", { class: "quiet" }, "There is no verdict: this rollout counts for nothing, which is not a reward of 0."),
    one.is_by_turn && el("p", { class: "quiet small" }, "The sum of what the turns earned."),
    parts.length > 0 && el("dl", { class: "parts" }, parts.map(([name, value]) => [el("dt", {}, name), el("dd", { class: "number" }, rewardBar(value))])),
    one.findings.length > 0 && el("div", {}, el("h3", {}, "Findings"), el("ul", { class: "plain" }, one.findings.map((text) => el("li", {}, text)))),
    one.suspicions.length > 0 && el("div", { class: "notice warn" }, el("h3", {}, "Suspicions"), el("ul", { class: "plain" }, one.suspicions.map((text) => el("li", {}, text)))),
    el("h3", {}, "Checks of the validator"),
    one.stages.length ? el("ol", { class: "stages" }, one.stages.map((stage) => el("li", {},
      el("div", { class: "head" }, badge(stage.name, stage.is_ok ? "good" : "bad"), stage.seconds ? el("span", { class: "quiet small" }, seconds(stage.seconds)) : null),
      stage.evidence && el("pre", { class: "evidence" }, plainSigns(stage.evidence))))) : el("p", { class: "quiet" }, "This family's validator names no single checks."));
}
