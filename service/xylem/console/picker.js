// A field in which labels are looked for by their names, and the list of those that were chosen.

import { byId, el, name, oneAtATime } from "./dom.js";

const SUGGESTED_MAX = 50;
const MEANT_MAX = 1000; // a text may be a part of many labels before it is one of them

/** Return how a label is called: by its name, or as it is. */
export const called = (one) => one.name ?? one.label;

/** Return the elements of a picker, for pages that are made anew: they must be on the page before `labelPicker` joins them. */
export const pickerField = (id, says, verb = "Add") => el("div", {},
  el("ul", { id: `${id}-chosen`, class: "chips", "aria-label": `${says}: chosen` }),
  el("div", { class: "row" },
    el("span", { class: "suggests" },
      el("input", { id, role: "combobox", "aria-label": says, "aria-expanded": "false", "aria-controls": `${id}-names`, "aria-autocomplete": "list",
        "aria-describedby": `${id}-fault`, placeholder: "a label", autocomplete: "off" }),
      el("ul", { id: `${id}-names`, class: "suggested", role: "listbox", "aria-label": "Labels to choose from", hidden: true })),
    el("button", { type: "button", id: `${id}-button` }, verb)),
  el("p", { id: `${id}-fault`, class: "fault", role: "status" }));

/**
 * Join a field to its suggestions and to the labels that were chosen in it.
 *
 * The suggestions are a list of the page: a browser's own list (datalist) would hide those that were found by another name.
 *
 * id       of the field; its suggestions, its list, its button and what is wrong with it are `${id}-names`, `${id}-chosen`, `${id}-button`, `${id}-fault`
 * suggest  returns labels that fit a text, at most so many: [{label, name}]; null where the page has gone on, or the server does not say
 * takes    called with a label that is added; returns whether the list need not have it
 * changed  called when the list has changed
 */
export function labelPicker(id, { suggest, takes = () => false, changed = () => {} }) {
  const input = byId(id);
  const list = byId(`${id}-names`);
  const chosen = new Map(); // names by labels
  let suggested = []; // labels, as the list shows them
  let active = -1; // the suggestion that Enter takes

  function show() {
    byId(`${id}-chosen`).replaceChildren(...[...chosen].map(([label, text]) => el("li", { class: "chip", title: label }, name(text),
      el("button", { type: "button", class: "quiet", "aria-label": `Remove ${text}`, onclick: () => remove(label) }, "×"))));
    changed();
  }

  function remove(label) {
    chosen.delete(label);
    show();
  }

  /** Show suggestions, none of them active. */
  function offer(fits) {
    suggested = fits;
    const isCalledAlike = (one) => fits.some((other) => other !== one && called(other) === called(one));
    list.replaceChildren(...fits.map((one, i) => el("li", { id: `${id}-name-${i}`, role: "option", "aria-selected": "false", title: one.name ? one.label : null,
      onmousedown: (event) => event.preventDefault(), onclick: () => take(one) }, name(isCalledAlike(one) ? `${called(one)} (${one.label})` : called(one)))));
    list.hidden = !fits.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
    activate(-1);
  }

  function activate(i) {
    active = i;
    [...list.children].forEach((option, place) => option.setAttribute("aria-selected", String(place === i)));
    list.children[i]?.scrollIntoView({ block: "nearest" });
    if (i < 0) input.removeAttribute("aria-activedescendant");
    else input.setAttribute("aria-activedescendant", list.children[i].id);
  }

  function refuse(says) {
    byId(`${id}-fault`).textContent = says;
    input.setAttribute("aria-invalid", String(Boolean(says)));
  }

  const fill = oneAtATime(async () => {
    const text = input.value.trim();
    const fits = await suggest(text, SUGGESTED_MAX);
    if (fits !== null && document.activeElement === input && text === input.value.trim()) offer(fits);
  });

  /** Return the label that a text means: the one that is this very text, or the only one that is called so or was found by it. Throws Error with why there is none. */
  async function meant(text) {
    const fits = await suggest(text, MEANT_MAX);
    if (fits === null) throw new Error("The labels could not be looked up: try again.");
    const exact = fits.find((one) => one.label === text);
    if (exact) return exact;
    const same = fits.filter((one) => called(one).toLowerCase() === text.toLowerCase());
    if (same.length === 1) return same[0];
    if (fits.length === 1) return fits[0];
    throw new Error(fits.length ? `“${text.slice(0, 80)}” is not the name of one label: choose one of the list.` : `No label is called “${text.slice(0, 80)}”.`);
  }

  function take(one) {
    input.value = "";
    refuse("");
    offer([]);
    if (takes(one)) return;
    chosen.set(one.label, called(one));
    show();
  }

  /** Add the label that the field means; return whether nothing is left in it. A text that means none stays, with why. */
  async function add() {
    const text = input.value.trim();
    if (!text && active < 0) return true;
    try {
      take(suggested[active] ?? (await meant(text)));
      return true;
    } catch (error) {
      refuse(error.message);
      return false;
    }
  }

  const KEYS = {
    ArrowDown: () => (suggested.length ? activate(Math.min(active + 1, suggested.length - 1)) : fill()),
    ArrowUp: () => activate(Math.max(active - 1, -1)),
    Escape: () => offer([]),
    Enter: add,
  };

  byId(`${id}-button`).addEventListener("click", async () => {
    await add();
    input.focus();
  });
  input.addEventListener("blur", () => offer([]));
  input.addEventListener("input", () => {
    refuse("");
    if (input.value.trim()) fill();
    else offer([]);
  });
  input.addEventListener("keydown", (event) => {
    if (!(event.key in KEYS) || (event.key === "Enter" && !input.value.trim() && active < 0)) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  return {
    add,
    labels: () => [...chosen.keys()],
    clear() {
      input.value = "";
      refuse("");
      offer([]);
      if (!chosen.size) return;
      chosen.clear();
      show();
    },
  };
}
