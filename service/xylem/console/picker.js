// A field in which labels are looked for by their names, and the list of those that were chosen.

import { byId, el, name, oneAtATime } from "./dom.js";

const SUGGESTED_MAX = 50;

/** Return how a label is called: by its name, or as it is. */
export const called = (one) => one.name ?? one.label;

/**
 * Join a field to its suggestions and to the labels that were chosen in it.
 *
 * id       of the field; its suggestions, its list and its button are `${id}-names`, `${id}-chosen`, `${id}-button`
 * suggest  returns labels that fit a text, at most so many: [{label, name}]; null where the page has gone on
 * takes    called with a label that is added; returns whether the list need not have it
 * changed  called when the list has changed
 */
export function labelPicker(id, { suggest, takes = () => false, changed = () => {} }) {
  const input = byId(id);
  const chosen = new Map(); // names by labels
  let suggested = new Map(); // labels by what is shown of them

  function show() {
    byId(`${id}-chosen`).replaceChildren(...[...chosen].map(([label, text]) => el("li", { class: "chip", title: label }, name(text),
      el("button", { type: "button", class: "quiet", "aria-label": `Remove ${text}`, onclick: () => remove(label) }, "×"))));
    changed();
  }

  function remove(label) {
    chosen.delete(label);
    show();
  }

  const fill = oneAtATime(async () => {
    const fits = await suggest(input.value.trim(), SUGGESTED_MAX);
    if (fits === null) return;
    suggested = new Map();
    for (const one of fits) suggested.set(suggested.has(called(one)) ? `${called(one)} (${one.label})` : called(one), one);
    byId(`${id}-names`).replaceChildren(...[...suggested].map(([says, one]) => el("option", { value: says, label: one.name ? one.label : null })));
  });

  /** Return the label that a text means: one of the suggestions, one that is called so, or the text itself. */
  async function meant(text) {
    if (suggested.has(text)) return suggested.get(text);
    const fits = (await suggest(text, SUGGESTED_MAX)) ?? [];
    return fits.find((one) => called(one).toLowerCase() === text.toLowerCase()) ?? { label: text };
  }

  async function add() {
    const text = input.value.trim();
    if (!text) return;
    const one = await meant(text);
    input.value = "";
    if (!takes(one)) {
      chosen.set(one.label, called(one));
      show();
    }
  }

  byId(`${id}-button`).addEventListener("click", async () => {
    await add();
    input.focus();
  });
  input.addEventListener("focus", fill);
  input.addEventListener("input", fill);
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !input.value.trim()) return;
    event.preventDefault();
    add();
  });
  return {
    add,
    labels: () => [...chosen.keys()],
    clear() {
      input.value = "";
      suggested = new Map();
      if (!chosen.size) return;
      chosen.clear();
      show();
    },
  };
}
