// Elements made by hand. Text only ever goes in as text: much of it was written by a model.

/**
 * Make an element: `el("p", { class: "quiet", onclick: go }, "text", child)`.
 * Names that begin with "on" are listeners; true and false set and leave out an attribute.
 */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

const SVG = "http://www.w3.org/2000/svg";

/** The same for SVG. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "value") node.value = value;
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  add(node, children);
  return node;
}

/** Append children; lists are flattened, nothing stands for nothing. */
export function add(node, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** Put children in the place of what a node holds. */
export function put(node, ...children) {
  node.replaceChildren();
  return add(node, children);
}

/**
 * Draw rows anew if what they show has changed, or the minute: they say how long ago things were.
 * The focus stays on its row, or on the button of that row.
 */
export function redraw(node, found, draw) {
  const shown = `${Math.floor(Date.now() / 60000)} ${JSON.stringify(found)}`;
  if (node.shown === shown) return;
  node.shown = shown;
  const focused = node.contains(document.activeElement) && document.activeElement;
  const key = focused && focused.closest("tr")?.dataset.key;
  draw();
  const row = key && [...node.querySelectorAll("tr")].find((one) => one.dataset.key === key);
  if (row) ((focused.tagName === "BUTTON" && row.querySelector("button:enabled")) || row).focus({ preventScroll: true });
}

/** A select with options `[[value, text], ...]`. */
export function choice(attributes, options, chosen) {
  const node = el("select", attributes, options.map(([value, text]) => el("option", { value }, text)));
  if (chosen !== undefined && chosen !== null) node.value = String(chosen);
  return node;
}

/** A label above a field. */
export function field(label, control, hint) {
  const hintId = `${control.id}-hint`;
  if (hint) control.setAttribute("aria-describedby", hintId);
  return el("div", {}, el("label", { for: control.id }, label), control, hint && el("p", { class: "quiet small", id: hintId }, hint));
}

/** Say something to a screen reader without moving the focus. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** Let arrow keys move between rows or buttons of a list, of which one at a time is in the tab order. */
export function roving(container, selector, { previous = "ArrowUp", next = "ArrowDown" } = {}) {
  const items = () => [...container.querySelectorAll(selector)];
  const make = (item) => {
    for (const other of container.querySelectorAll(`${selector}[tabindex="0"]`)) other.tabIndex = -1;
    item.tabIndex = 0;
  };
  const first = items()[0];
  for (const item of items()) item.tabIndex = -1;
  if (first) first.tabIndex = 0;
  container.addEventListener("focusin", (event) => {
    const item = event.target.closest(selector);
    if (item) make(item);
  });
  container.addEventListener("keydown", (event) => {
    const item = event.target.closest(selector);
    if (!item || event.altKey || event.ctrlKey || event.metaKey) return;
    const known = items();
    const at = known.indexOf(item);
    const to = { [previous]: at - 1, [next]: at + 1, Home: 0, End: known.length - 1 }[event.key];
    if (to === undefined || !known[to]) return;
    event.preventDefault();
    known[to].focus();
  });
}

/** A table with rows that open something. `columns` are `[title, row => content, isNumber]`. */
export function table(caption, columns, rows, { open, key } = {}) {
  const body = el("tbody", {}, rows.map((row) =>
    el("tr", { tabindex: open ? "-1" : null, "data-key": key && key(row), onclick: open && (() => open(row)) },
      columns.map(([, show, isNumber]) => el("td", { class: isNumber && "number" }, show(row))))));
  if (open) {
    roving(body, "tr");
    body.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target.tagName === "TR") event.target.click();
    });
  }
  return el("div", { class: "scroll" }, el("table", {},
    el("caption", { class: "unseen" }, caption),
    el("thead", {}, el("tr", {}, columns.map(([title, , isNumber]) => el("th", { scope: "col", class: isNumber && "number" }, title)))),
    body));
}
