// The corrections that are stored as rows: the newest first, by label and by sender, and how they are deleted.

import { getJson, modelPath, sendJson } from "./api.js";
import { count, el, field, moment, name, oneAtATime } from "./dom.js";
import { namedLabel } from "./label_names.js";
import { models } from "./models.js";
import { confirmation, notice } from "./notice.js";
import { labelPicker, pickerField } from "./picker.js";

const ROWS = 20;
const DEBOUNCE_MS = 150;
const BEGINNING_CHARACTERS = 160;
const STAY = "Thresholds keep what they have learnt from it, and so do versions that are there. This cannot be undone.";

/** Return the part of the page about corrections: {node, start, refresh}. `deleted` is called when rows are gone. */
export function corrections({ base, model }, deleted) {
  const sender = el("input", { id: "correction-key", maxlength: 200, placeholder: "the name of a key", autocomplete: "off" });
  const chosen = el("ul", { class: "chips", id: "correction-filter", "aria-label": "Only corrections with" });
  const told = el("p", { class: "dim", role: "status", id: "corrections-told", tabindex: "-1" });
  const list = el("div", { id: "corrections" });
  const more = el("button", { type: "button", id: "more-corrections", hidden: true, onclick: () => read(next) }, "Load more");
  const deleteAll = el("button", { type: "button", class: "danger", hidden: true, onclick: () => openDeleteAll() }, "Delete all of this sender…");
  let rows = [];
  let next = null;
  let nRows = 0;
  let label = "";
  let asked = 0;
  let timer = 0;

  async function read(before = null) {
    const mine = ++asked;
    const query = new URLSearchParams({ limit: ROWS });
    if (before !== null) query.set("before", before);
    if (label) query.set("label", label.toWellFormed());
    if (sender.value.trim()) query.set("key", sender.value.trim().toWellFormed());
    try {
      const found = await getJson(`${base}/corrections?${query}`);
      if (mine !== asked) return;
      rows = before === null ? found.corrections : [...rows, ...found.corrections];
      [next, nRows] = [found.next, found.n_rows];
      draw();
    } catch (problem) {
      if (mine === asked) list.replaceChildren(notice(problem, () => read(before)));
    }
  }

  function draw() {
    const isFiltered = Boolean(label || sender.value.trim());
    if (next === null && document.activeElement === more) told.focus(); // else the focus goes with the button
    more.hidden = next === null;
    deleteAll.hidden = !sender.value.trim() || !rows.length;
    told.textContent = `${count(rows.length)} ${isFiltered ? "that fit are" : rows.length === 1 ? "is" : "are"} shown. ${count(nRows)} ${nRows === 1 ? "correction is" : "corrections are"} stored.`;
    chosen.replaceChildren(...(label ? [el("li", { class: "chip" }, namedLabel(label), el("button", { type: "button", class: "quiet", "aria-label": `Do not filter by ${label}`, onclick: () => filterBy("") }, "×"))] : []));
    list.replaceChildren(rows.length ? el("ol", { class: "corrections", "aria-label": "Corrections, the newest first" }, rows.map(itemOf))
      : el("p", {}, isFiltered ? "No correction fits." : "No correction is stored. The text of one is stored if the service (XYLEM_FEEDBACK_ROWS), the recipe and the sender's key allow it; the page Predict says so to who corrects."));
  }

  function itemOf(row) {
    const from = row.key === null ? "from a sender that is not known" : ["from ", el("button", { type: "button", class: "label-name", title: `Only corrections of ${row.key}`, onclick: () => fromSender(row.key) }, name(row.key))];
    return el("li", {}, textOf(row),
      el("ul", { class: "chips", "aria-label": "Its labels" }, row.labels.length ? row.labels.map((one) => el("li", { class: "chip" }, labelButton(one, row.gone_labels.includes(one)))) : el("li", { class: "dim" }, "no label")),
      el("div", { class: "row dim" }, moment(row.at), from, el("span", {}, "event ", el("span", { class: "inline" }, name(row.event_id))),
        el("button", { type: "button", class: "danger", "aria-label": `Delete… the correction ${row.event_id}`, onclick: () => openDelete(row) }, "Delete…")));
  }

  /** Return a label as a button that filters by it. One that went away is named as such. */
  const labelButton = (one, isGone) => [el("button", { type: "button", class: "label-name", title: `Only corrections with ${one}`, onclick: () => filterBy(one) }, namedLabel(one)),
    isGone ? el("span", { class: "badge bad-badge", title: "The served version does not have this label. The correction keeps it." }, "gone") : null];

  /** Show those with a label, or "" for any. What was clicked goes with the list, so the focus stays beside it. */
  function filterBy(one) {
    label = one;
    if (list.contains(document.activeElement) || chosen.contains(document.activeElement)) told.focus();
    return read();
  }

  function fromSender(key) {
    sender.value = key;
    told.focus();
    return read();
  }

  const openDelete = (row) => confirmation("Delete this correction?",
    [name(beginningOf(row.text ?? row.event_id)), "It is deleted from the database, and the next run does not learn it.", STAY], "Delete",
    () => sendJson("POST", `${base}/feedback-rows/delete`, { event_ids: [row.event_id] }), async () => {
      rows = rows.filter((one) => one.event_id !== row.event_id);
      nRows--;
      draw();
      told.focus();
      await deleted();
    });

  function openDeleteAll() {
    const key = sender.value.trim();
    confirmation(`Delete all corrections of ${key}?`, [`All rows of ${model} that the key ${key} sent are deleted from the database, whatever their labels.`, STAY], "Delete all",
      () => sendJson("POST", `${base}/feedback-rows/delete`, { key }), async () => {
        await read();
        told.focus();
        await deleted();
      });
  }

  const readFirst = oneAtATime(() => read());
  sender.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(readFirst, DEBOUNCE_MS);
  });
  return {
    node: el("section", { "aria-label": "Corrections" }, el("h2", {}, "Corrections"), el("div", { class: "fields stacked" }, field("Sender", sender), el("span", {}, "With the label"), pickerField("correction-label", "With the label", "Filter")), chosen, told, list,
      el("div", { class: "row" }, more, deleteAll)),
    start() {
      const path = modelPath(model);
      labelPicker("correction-label", { suggest: (part, most) => models.find(path, part, most), takes: (one) => {
        filterBy(one.label);
        return true;
      } });
      return read();
    },
    refresh: () => (rows.length > ROWS ? draw() : read()), // what was loaded more stays
  };
}

const beginningOf = (text) => (text.length > BEGINNING_CHARACTERS ? `${text.slice(0, BEGINNING_CHARACTERS).toWellFormed()} …` : text);

/** Return the text of a correction; a long one is opened by its beginning. */
function textOf({ text }) {
  if (text === null) return el("span", { class: "dim" }, "no text: other features");
  if (text.length <= BEGINNING_CHARACTERS) return el("bdi", {}, text);
  return el("details", {}, el("summary", {}, el("bdi", {}, beginningOf(text))), el("bdi", { class: "long" }, text));
}
