// Which view is shown, the theme, and the keys that work everywhere.

import { announce, el, put } from "./dom.js";
import { failed } from "./states.js";
import * as compare from "./compare.js";
import * as jira from "./jira.js";
import * as overview from "./overview.js";
import * as rollouts from "./rollouts.js";
import * as run from "./run.js";
import * as viewer from "./viewer.js";

const VIEWS = {
  "": { title: "Overview", nav: "overview", show: overview.show },
  run: { title: "Run", nav: "run", show: run.show },
  rollouts: { title: "Rollouts", nav: "rollouts", show: rollouts.show },
  rollout: { title: "Rollout", nav: "rollouts", show: viewer.show },
  compare: { title: "Compare", nav: "compare", show: compare.show },
  jira: { title: "Jira console", nav: "jira", show: jira.show },
};
const GO = { o: "#/", r: "#/run", l: "#/rollouts", c: "#/compare", j: "#/jira" };
const THEMES = ["auto", "light", "dark"];
const main = document.getElementById("main");
let leaving = new AbortController();
let shown = null;

function parse() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = path.split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return { name, parts, query: new URLSearchParams(query) };
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const { name, parts, query } = parse();
  const view = VIEWS[name];
  // The first view leaves the focus at the top, where the way past the bar is.
  const isOther = shown !== null && shown !== name;
  shown = name;
  for (const link of document.querySelectorAll(".bar nav a")) {
    if (view && link.dataset.view === view.nav) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${view?.title ?? "Not found"} · SkyRL-NAT`;
  if (!view) {
    put(main, el("h1", {}, "Not found"), el("p", {}, "There is no such view. ", el("a", { href: "#/" }, "Go to the overview"), "."));
    return;
  }
  put(main, el("p", { class: "quiet", role: "status" }, "Loading…"));
  try {
    await view.show(main, { parts, query, signal });
    if (signal.aborted) return;
    announce(`${view.title} loaded`);
    if (isOther && document.activeElement === document.body) main.focus({ preventScroll: true });
  } catch (error) {
    if (!signal.aborted) put(main, el("h1", {}, view.title), failed(error, show), el("p", {}, el("a", { href: "#/" }, "Go to the overview")));
  }
}

function setTheme(name) {
  const button = document.getElementById("theme");
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  button.textContent = `Theme: ${name}`;
  button.setAttribute("aria-label", `Colour theme: ${name === "auto" ? "as the system has it" : name}`);
  try { localStorage.setItem("theme", name); } catch { /* a browser that keeps nothing */ }
}

function nextTheme() {
  const now = document.documentElement.dataset.theme ?? "auto";
  setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
}

function isTyping(target) {
  return target.isContentEditable || ["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName);
}

let isGoing = 0;
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  const help = document.getElementById("help");
  if (help.open) return;
  if (Date.now() - isGoing < 1500 && GO[event.key]) {
    location.hash = GO[event.key];
    isGoing = 0;
  } else if (event.key === "?") help.showModal();
  else if (event.key === "t") nextTheme();
  else if (event.key === "g") isGoing = Date.now();
}

let stored = "auto";
try { stored = localStorage.getItem("theme") ?? "auto"; } catch { /* as above */ }
setTheme(THEMES.includes(stored) ? stored : "auto");
document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("help-open").addEventListener("click", () => document.getElementById("help").showModal());
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("keydown", onKey);
addEventListener("hashchange", show);
show();
