// Concepts of the service's own, beside those of the vocabulary's file: answered at once by name, and learnt from their examples.

import { getJson, modelPath, sendJson } from "./api.js";
import { count, el, field, moment, name, table } from "./dom.js";
import { nameIn, namedLabel } from "./label_names.js";
import { models } from "./models.js";
import { confirmation, notice } from "./notice.js";
import { labelPicker, pickerField } from "./picker.js";

/** Return the part of the page about concepts: {node, start, refresh}. */
export function concepts({ base, model, follow }, { recipe }) {
  const list = el("div", { id: "own-concepts" });
  const pane = el("div", { id: "concept-job" });
  const said = el("div", { role: "status", id: "concept-said", tabindex: "-1" });
  const key = el("input", { id: "concept-key", required: true, maxlength: 2000, placeholder: "the label that rows have", autocomplete: "off" });
  const names = el("div", { id: "concept-names" });
  const examples = el("textarea", { rows: 4, id: "concept-examples", dir: "auto", spellcheck: "false" });
  const button = el("button", { class: "primary", id: "concept-submit" }, "Add the concept");
  let broader = null;

  /** Add fields for the names in a language; return the first one. */
  function addLanguage(language = "") {
    const tag = el("input", { class: "tag", maxlength: 20, value: language, placeholder: "en", autocomplete: "off", "aria-label": "Language" });
    const area = el("textarea", { rows: 2, dir: "auto", spellcheck: "false", "aria-label": "Names, one a line" });
    names.append(el("div", { class: "named-in" }, tag, area));
    return tag;
  }

  function clear() {
    key.value = examples.value = "";
    names.replaceChildren();
    addLanguage(recipe.language ?? models.language.split(",")[0]);
    broader?.clear();
  }

  async function read() {
    try {
      const found = (await getJson(`${base}/concepts`)).concepts;
      list.replaceChildren(found.length ? table("Concepts, and the version that answers each", ["Concept", "Broader", "Examples", "Added", "Answered since", ""], found.map(rowOf), [2]) : el("p", { class: "dim" }, "There are none yet."));
    } catch (problem) {
      list.replaceChildren(notice(problem, read));
    }
  }

  function rowOf(one) {
    const called = nameIn(one.names) ?? one.key;
    return [[name(called), el("div", { class: "dim" }, name(one.key))],
      el("ul", { class: "chips" }, one.broader.map((label) => el("li", {}, namedLabel(label)))), count(one.examples.length), moment(one.at),
      one.version === null ? el("span", { class: "badge running" }, "being published") : `version ${one.version}`,
      el("button", { type: "button", class: "danger", "aria-label": `Remove… ${called}`, onclick: () => openRemove(one, called) }, "Remove…")];
  }

  const openRemove = (one, called) => confirmation(`Remove ${called}?`,
    ["A version without it is published at once, and the next run does not learn its examples. Versions that are there keep it. Corrections with this label are kept, and say that it is gone."], "Remove",
    async () => {
      const job = await sendJson("POST", `${base}/concepts/delete`, { key: one.key });
      said.replaceChildren(el("p", { class: "good" }, "It is removed. A version without it is being published."));
      follow(job.id, pane);
    }, async () => {
      said.focus(); // the button goes with its row
      await read();
    });

  async function submit(event) {
    event?.preventDefault();
    if (!(await broader.add())) return; // what is typed is no label: the field says so
    button.disabled = true;
    said.replaceChildren();
    try {
      const job = await sendJson("POST", `${base}/concepts`, { key: key.value.trim(), names: namesOf(), broader: broader.labels(), examples: examplesOf(examples.value) });
      clear();
      said.replaceChildren(el("p", { class: "good" }, "It is stored. A version that answers it by name is being published."));
      follow(job.id, pane);
      await read();
    } catch (problem) {
      said.replaceChildren(notice(problem, problem.isAboutKey ? submit : null));
    } finally {
      button.disabled = false;
    }
  }

  function namesOf() {
    const pairs = [...names.children].map(({ children: [tag, area] }) => [tag.value.trim(), linesOf(area.value)]).filter(([, lines]) => lines.length);
    if (!pairs.length) throw Object.assign(new Error("Write at least one name."), { errors: [] });
    return Object.fromEntries(pairs);
  }

  const form = el("form", { class: "card", onsubmit: submit }, el("h3", {}, "A new concept"),
    el("div", { class: "fields stacked" }, field("URI", key),
      el("span", {}, "Names by language"), el("div", {}, names, el("button", { type: "button", class: "quiet", onclick: () => addLanguage().focus() }, "Another language"), el("p", { class: "dim" }, "One name a line. The first is shown, all are looked for in texts.")),
      el("span", {}, "Broader concepts"), pickerField("concept-broader", "Broader concepts"),
      ...field("Examples", examples), el("p", { class: "dim help" }, "Texts about it, with an empty line between two. The next run learns from them. They may be left out.")),
    button, said, pane);
  return {
    node: el("section", { "aria-label": "Concepts of your own" }, el("h2", {}, "Concepts of your own"),
      el("p", { class: "dim" }, "They are joined to the vocabulary's file at each run, also when the file is replaced. For a key that the file has, the file counts."), list, form),
    start() {
      broader = labelPicker("concept-broader", { suggest: (part, most) => models.find(modelPath(model), part, most) });
      clear();
      return read();
    },
    refresh: read,
  };
}

const linesOf = (text) => text.split("\n").map((line) => line.trim().toWellFormed()).filter(Boolean);
const examplesOf = (text) => text.split(/\n\s*\n/).map((one) => one.trim().toWellFormed()).filter(Boolean);
