// Line charts and stacked bars in SVG.

import { el, put, svg } from "./dom.js";
import { number } from "./format.js";

const WIDTH = 420, HEIGHT = 190, LEFT = 58, RIGHT = 12, TOP = 12, BOTTOM = 26;

/** Exponential smoothing that starts without a bias; gaps stay gaps. */
export function smooth(values, weight) {
  if (!weight) return values;
  let sum = 0, total = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return null;
    sum = sum * weight + value * (1 - weight);
    total = total * weight + (1 - weight);
    return sum / total;
  });
}

/** Round numbers between two bounds, about `count` of them. */
export function ticks(low, high, count = 4) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    if (10 ** power >= low * 0.999 && 10 ** power <= high * 1.001) found.push(10 ** power);
  }
  return found.length > 1 ? found : [low, high];
}

function scale(low, high, from, to, isLog) {
  const place = isLog ? Math.log10 : (value) => value;
  const [a, b] = [place(low), place(high)];
  return (value) => (b === a ? (from + to) / 2 : from + ((place(value) - a) / (b - a)) * (to - from));
}

function bounds(values) {
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low === high) {
    if (low === 0) return [0, 1];
    const room = Math.abs(low) * 0.1;
    [low, high] = [low - room, high + room];
  }
  return [low, high];
}

/** What is known of all series of one chart, as points. */
function readPoints(lines, isLog, weight) {
  return lines.map((line) => {
    const shownValues = smooth(line.values, weight);
    const points = line.steps.map((step, i) => ({ step, value: shownValues[i], exact: line.values[i] }));
    const isKnown = ({ value }) => value !== null && value !== undefined && (!isLog || value > 0);
    return { ...line, points, known: points.filter(isKnown), isKnown };
  });
}

function pathOf(line, x, y) {
  let isOpen = false, path = "";
  for (const point of line.points) {
    if (!line.isKnown(point)) {
      // Metrics of evaluations have no number in most steps: a line goes on over those.
      continue;
    }
    path += `${isOpen ? "L" : "M"}${x(point.step).toFixed(1)} ${y(point.value).toFixed(1)}`;
    isOpen = true;
  }
  return path;
}

/**
 * A line chart with a cursor that follows the pointer and the arrow keys.
 * `lines` are `{ name, colour, steps, values, isDashed }`; `reasons` says why numbers are missing.
 */
export function lineChart(title, lines, { isLog = false, weight = 0, reasons = {} } = {}) {
  const read = readPoints(lines, isLog, weight);
  const all = read.flatMap((line) => line.known);
  const figure = el("figure", { class: "chart" });
  const values = read.map((line) => line.known.at(-1)?.exact);
  const caption = el("figcaption", {}, el("span", { class: "chart-title", title }, title),
    el("span", { class: "chart-value" }, values.map((value, i) => el("span", { class: `series-${i}` }, number(value)))));
  if (!all.length) {
    const why = Object.keys(reasons).length ? `no number: ${[...new Set(Object.values(reasons))].join(", ")}` : isLog ? "nothing above 0 to show on a log axis" : "no numbers yet";
    return put(figure, caption, el("p", { class: "chart-empty quiet small" }, why));
  }
  const steps = all.map((point) => point.step);
  const x = scale(Math.min(...steps), Math.max(...steps), LEFT, WIDTH - RIGHT, false);
  const [low, high] = bounds(all.map((point) => point.value));
  const isUsable = isLog && low > 0;
  const y = scale(low, high, HEIGHT - BOTTOM, TOP, isUsable);
  const readout = el("p", { class: "chart-readout small", "aria-live": "polite" });
  const cursor = svg("g", { class: "cursor", visibility: "hidden" });
  const picture = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: "0",
    "aria-label": `${title}, ${all.length} points, last ${values.map((value) => number(value)).join(" and ")}. Arrow keys read single steps.`,
  },
  axes(x, y, [Math.min(...steps), Math.max(...steps)], isUsable ? logTicks(low, high) : ticks(low, high, 5)),
  read.map((line, i) => [
    svg("path", { class: `line series-${i} ${line.isDashed ? "dashed" : ""}`, d: pathOf(line, x, y) }),
    line.known.length < 40 && line.known.map((point) => svg("circle", { class: `dot series-${i}`, cx: x(point.step), cy: y(point.value), r: line.known.length < 15 ? 2.6 : 1.6 })),
  ]), cursor);
  const known = [...new Set(steps)].sort((a, b) => a - b);
  const missing = Object.entries(reasons).map(([step, reason]) => `step ${step} is ${reason}`);
  const numLeftOut = isLog ? allValues(lines).filter((value) => value !== null && value <= 0).length : 0;
  if (numLeftOut) missing.push(`${numLeftOut} of 0 or less are not on a log axis`);
  const rest = missing.length ? `${missing.slice(0, 3).join(", ")}${missing.length > 3 ? ` and ${missing.length - 3} more` : ""}` : " ";
  put(readout, rest);
  let at = -1;
  const move = (to) => {
    at = to;
    if (at < 0) { cursor.setAttribute("visibility", "hidden"); put(readout, rest); return; }
    const step = known[at];
    const found = read.map((line, i) => [line, i, line.known.find((point) => point.step === step)]).filter(([, , point]) => point);
    cursor.setAttribute("visibility", "visible");
    put(cursor, svg("line", { x1: x(step), x2: x(step), y1: TOP, y2: HEIGHT - BOTTOM }),
      found.map(([, i, point]) => svg("circle", { class: `dot series-${i}`, cx: x(step), cy: y(point.value), r: 4 })));
    put(readout, `step ${step}: `, found.map(([line, , point], i) => `${i ? ", " : ""}${lines.length > 1 ? `${line.name} ` : ""}${number(point.exact, 6)}${weight ? ` (smoothed ${number(point.value)})` : ""}`));
  };
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width) * WIDTH;
    let best = 0;
    known.forEach((step, i) => { if (Math.abs(x(step) - place) < Math.abs(x(known[best]) - place)) best = i; });
    move(best);
  });
  picture.addEventListener("pointerleave", () => move(-1));
  picture.addEventListener("blur", () => move(-1));
  picture.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: at < 0 ? known.length - 1 : at - 1, ArrowRight: at + 1, Home: 0, End: known.length - 1, Escape: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    if (to >= -1 && to < known.length) move(event.key === "ArrowLeft" ? Math.max(to, 0) : to);
  });
  return put(figure, caption, picture, readout);
}

const allValues = (lines) => lines.flatMap((line) => line.values).filter((value) => value !== undefined);

function axes(x, y, [first, last], marks) {
  const across = [...new Set(ticks(first, last, 5).map(Math.round))];
  return svg("g", { class: "axes" },
    marks.map((mark) => [
      svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(mark), y2: y(mark) }),
      svg("text", { x: LEFT - 7, y: y(mark) + 4, "text-anchor": "end" }, number(mark, 3)),
    ]),
    across.map((mark) => svg("text", { x: x(mark), y: HEIGHT - 8, "text-anchor": "middle" }, mark)));
}

/**
 * Stacked bars: `bars` are `{ name, parts: { part: size } }`, all parts in the order of `parts`.
 * `unit` turns a size into text.
 */
export function stackedBars(title, parts, bars, unit) {
  const width = 1180, height = 230, left = 62, bottom = 26, top = 8;
  const tallest = Math.max(...bars.map((bar) => parts.reduce((sum, part) => sum + (bar.parts[part] ?? 0), 0)), 1e-9);
  const y = scale(0, tallest, height - bottom, top, false);
  const room = (width - left - 8) / bars.length;
  const readout = el("p", { class: "chart-readout small", "aria-live": "polite" }, " ");
  const say = (bar) => put(readout, bar ? `${bar.name}: ${parts.map((part) => `${part} ${unit(bar.parts[part] ?? 0)}`).join(", ")}` : " ");
  const every = Math.max(1, Math.ceil(bars.length / 14));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0", "aria-label": `${title}, ${bars.length} bars. Arrow keys read single bars.` },
    svg("g", { class: "axes" }, ticks(0, tallest, 4).map((mark) => [
      svg("line", { x1: left, x2: width - 8, y1: y(mark), y2: y(mark) }),
      svg("text", { x: left - 7, y: y(mark) + 4, "text-anchor": "end" }, unit(mark)),
    ])),
    bars.map((bar, i) => {
      let sum = 0;
      const middle = left + room * (i + 0.5), thick = Math.min(room * 0.78, 46);
      return svg("g", { class: "bar-stack" },
        parts.map((part) => {
          const size = bar.parts[part] ?? 0;
          const from = y(sum), to = y(sum + size);
          sum += size;
          return size > 0 && svg("rect", { class: `part-${part}`, x: middle - thick / 2, width: thick, y: to, height: Math.max(from - to, 0) });
        }),
        i % every === 0 && svg("text", { class: "bar-name", x: middle, y: height - 8, "text-anchor": "middle" }, bar.name.replace(/^step /, "")),
        svg("rect", { class: "hit", x: middle - room / 2, width: room, y: top, height: height - bottom - top, onpointerenter: () => { at = i; mark(); } }));
    }));
  let at = -1;
  const stacks = [...picture.querySelectorAll(".bar-stack")];
  const mark = () => { stacks.forEach((stack, i) => stack.classList.toggle("marked", i === at)); say(bars[at]); };
  picture.addEventListener("pointerleave", () => { at = -1; mark(); });
  picture.addEventListener("blur", () => { at = -1; mark(); });
  picture.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: at < 0 ? bars.length - 1 : Math.max(at - 1, 0), ArrowRight: Math.min(at + 1, bars.length - 1), Home: 0, End: bars.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    at = to;
    mark();
  });
  return el("figure", { class: "chart wide" }, picture, readout,
    el("ul", { class: "legend" }, parts.map((part) => el("li", {}, el("span", { class: `swatch part-${part}`, "aria-hidden": "true" }), part))));
}
