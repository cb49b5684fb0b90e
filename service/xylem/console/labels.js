// The labels of a version: searched and ordered by the service, some at a time.

import { getJson, modelPath, Problem } from "./api.js";
import { count, decimal, el, field, moment, name, oneAtATime, table } from "./dom.js";
import { FEW_MARKS, few, openLabel } from "./label.js";
import { models } from "./models.js";
import { notice } from "./notice.js";

const ROWS = 50;
const DEBOUNCE_MS = 100;

const ORDERS = {
  "most training rows first": "order=training_rows&descending=true",
  "fewest training rows first": "order=training_rows",
  "by name": "order=label",
  "highest threshold first": "order=threshold&descending=true",
  "most marks first": "order=marks&descending=true",
  "fewest marks first": "order=marks",
  "by id": "order=id",
};

export const heading = "Labels";

let place = null;
let asked = 0;
let timer = 0;

/** Show the page. */
export async function open(section) {
  place = section;
  models.addEventListener("change", load);
  await load();
}

/** Leave the page. */
export function close() {
  models.removeEventListener("change", load);
  clearTimeout(timer);
  asked++;
}

async function load() {
  const mine = ++asked;
  clearTimeout(timer);
  if (!models.name) {
    place.replaceChildren(el("h1", {}, "Labels"), el("p", {}, "There is no model yet: ", el("a", { href: "#/train" }, "train one"), "."));
    return;
  }
  const title = el("h1", {}, `Labels of ${models.name}`);
  const path = modelPath(models.name, models.ref);
  place.replaceChildren(title, el("p", { class: "dim", role: "status" }, "Reading the labels …"));
  try {
    const state = await getJson(`${path}/thresholds?limit=0`).catch(untuned);
    if (mine === asked) await show(title, state, path);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (mine === asked) place.replaceChildren(title, notice(problem, load));
  }
}

function untuned(problem) {
  if (problem.code !== "thresholds-not-tuned") throw problem;
  return null;
}

const notTuned = () => el("div", { class: "notice" }, el("p", {}, "This version has no thresholds yet. The first correction on the page ",
  el("a", { href: "#/predict" }, "Predict"), " begins them; a training with validation rows tunes them."));

async function show(title, state, path) {
  const search = el("input", { type: "search", placeholder: "part of a name", maxlength: 200 });
  const order = el("select", {}, Object.keys(ORDERS).map((one) => el("option", {}, one)));
  const onlyFew = el("input", { type: "checkbox", disabled: state === null });
  const rows = el("div", {});
  const told = el("p", { class: "dim", role: "status" });
  const more = el("button", { type: "button", hidden: true }, "Show more");
  let labels = [];
  let next = 0;

  const read = async (offset) => {
    const mine = ++asked;
    const query = [ORDERS[order.value], `limit=${ROWS}`, `offset=${offset}`];
    const wanted = search.value.trim().toWellFormed();
    if (wanted) query.push(`search=${encodeURIComponent(JSON.stringify(wanted))}`);
    if (models.language) query.push(`language=${encodeURIComponent(models.language)}`);
    if (onlyFew.checked) query.push(`marks_below=${FEW_MARKS}`);
    try {
      const found = await getJson(`${path}/labels?${query.join("&")}`);
      if (mine !== asked) return;
      labels = offset ? [...labels, ...found.labels] : found.labels;
      next = found.next_offset;
      more.hidden = next === null;
      told.textContent = `${count(found.n_found)} of ${count(found.n_labels)} labels${next === null ? "" : `, ${count(labels.length)} shown`}.`;
      rows.replaceChildren(labels.length ? labelTable(labels, path) : el("p", {}, "No label fits."));
    } catch (problem) {
      if (mine === asked) rows.replaceChildren(notice(problem, () => read(offset)));
    }
  };
  const readFirst = oneAtATime(() => read(0)); // a search through a million names takes its time
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(readFirst, DEBOUNCE_MS);
  };
  for (const input of [search, order, onlyFew]) input.addEventListener("input", soon);
  more.addEventListener("click", () => read(next));
  place.replaceChildren(title, state ? tiles(state) : notTuned(),
    el("div", { class: "row" }, field("Search", search), field("Order", order), el("span", { class: "row" }, field("Only labels with too little feedback", onlyFew).toReversed())),
    told, rows, more,
    el("p", { class: "dim" }, "Training rows: rows of the training data with the label. Hits: rows in which it was true and predicted. Marks: rows in which it was true, ",
      `plus rows in which it was predicted. With fewer than ${FEW_MARKS} marks a threshold is not reliable.`));
  await read(0);
}

const tiles = (found) => el("div", { class: "tiles" }, [
  ["macro-F so far", `${decimal(found.macro_f)} %`], ["micro-F so far", `${decimal(found.micro_f)} %`],
  ...(found.instance_f === null ? [] : [["instance-F so far", `${decimal(found.instance_f)} %`]]),
  ["corrections counted", count(found.n_events)],
  ["tuned for", `${found.objective}-F${found.limit === null ? "" : `, at most ${count(found.limit)} labels a row`}`],
  ["threshold method", found.method], ["thresholds changed (epoch)", count(found.threshold_epoch)],
  ...(found.shadow ? [["candidate since", moment(found.shadow.created_at)]] : []),
].map(([says, value]) => el("div", { class: "tile" }, el("b", {}, value), says)));

function labelTable(labels, path) {
  const rows = labels.map((label) => [
    [el("button", { type: "button", class: "label-name", title: "More of this label", "aria-haspopup": "dialog", onclick: () => openLabel(path, label) }, name(label.name ?? label.label)),
      label.name ? el("div", { class: "dim" }, label.label) : "",
      label.denied ? el("span", { class: "badge", title: "The alias never answers it" }, "denied") : ""],
    label.training_rows === null ? "" : count(label.training_rows), decimal(label.threshold, 3),
    label.hits === null ? "" : count(label.hits),
    label.marks === null ? "" : few(label) ? el("span", { class: "badge running", title: "Too little feedback: the threshold is not reliable yet" }, `${count(label.marks)}: too few`) : count(label.marks),
    label.marks ? `${decimal((200 * label.hits) / label.marks, 1)} %` : ""]);
  return table("Labels and their thresholds", ["Label", "Training rows", "Threshold", "Hits", "Marks", "F so far"], rows, [1, 2, 3, 4, 5]);
}
