// Elements, and how values are written. Nothing here or elsewhere makes markup of text: it is always textContent.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element. Attributes: `on...` are listeners, true and false set or leave out, the rest is text. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Return an element of SVG, as `el`. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);

let ids = 0;

/** Return a label and its input as two elements: [label, input]. */
export function field(says, input) {
  if (!input.id) input.id = `field-${++ids}`;
  return [el("label", { for: input.id }, says), input];
}

/** Return the text of a label: names may be written from right to left, or be very long. */
export const name = (text) => el("bdi", { class: "name", title: text.length > 60 ? text.slice(0, 500) : null }, text);

/** Return a text, such as the URI of a label, with a button that copies it. */
export function copied(text) {
  const copy = el("button", { type: "button", class: "quiet", onclick: async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
  } }, "Copy");
  return el("p", { class: "row dim" }, el("code", {}, name(text)), navigator.clipboard ? copy : null); // only on https and this machine
}

/** Return a table in a box of its own that scrolls; `head` has texts, `rows` arrays of texts and elements. */
export function table(caption, head, rows, numeric = []) {
  const cell = (tag, more) => (value, i) =>
    el(tag, { ...more, class: numeric.includes(i) ? "number" : null }, value ?? "");
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", { class: "visually-hidden" }, caption),
      el("thead", {}, el("tr", {}, head.map((text) => text || el("span", { class: "visually-hidden" }, "Actions")).map(cell("th", { scope: "col" })))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map(cell("td", {})))))));
}

/** Say something to those who listen to the page. */
export function announce(text) {
  byId("announcer").textContent = text;
}

export const count = (n) => Number(n).toLocaleString("en");
export const decimal = (x, digits = 2) => (x === null || x === undefined ? "" : Number(x).toFixed(digits));

export function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  for (; n >= 1000 && i < units.length - 1; i++) n /= 1000;
  return `${i && n < 10 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

/** Return a moment (RFC 3339, or seconds since 1970) as the reader's clock has it. */
export function moment(when) {
  if (when === null || when === undefined) return "";
  const date = new Date(typeof when === "number" ? when * 1000 : when);
  const full = date.toISOString();
  return el("time", { datetime: full, title: full },
    date.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" }));
}

/** Return a list of facts by name. */
export const facts = (values) => el("dl", { class: "facts" },
  Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));

/** Return a function that does `work`, one at a time: of the calls that come meanwhile one waits for its end. */
export function oneAtATime(work) {
  let running = false;
  let waits = false;
  return async function run() {
    if (running) {
      waits = true;
      return;
    }
    running = true;
    try {
      await work();
    } finally {
      running = false;
      if (waits) {
        waits = false;
        await run();
      }
    }
  };
}
