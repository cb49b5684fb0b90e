// The labels of a version: their thresholds, and what these rest on.

import { getJson, modelPath, Problem } from "./api.js";
import { count, decimal, el, field, moment, name, table } from "./dom.js";
import { models } from "./models.js";
import { notice } from "./notice.js";

const PAGE_LABELS = 10_000;
const LABELS_MAX = 200_000;
const ROWS_MAX = 100;

const ORDERS = {
  "by id": (one, other) => one.id - other.id,
  "by name": (one, other) => (one.label < other.label ? -1 : 1),
  "highest threshold first": (one, other) => other.threshold - one.threshold,
  "most marks first": (one, other) => other.marks - one.marks,
  "fewest marks first": (one, other) => one.marks - other.marks,
};

export const heading = "Labels";

let place = null;
let asked = 0;

/** Show the page. */
export async function open(section) {
  place = section;
  models.addEventListener("change", load);
  await load();
}

/** Leave the page. */
export function close() {
  models.removeEventListener("change", load);
  asked++;
}

async function load() {
  const mine = ++asked;
  if (!models.name) {
    place.replaceChildren(el("h1", {}, "Labels"), el("p", {}, "There is no model yet: train one on the page Train."));
    return;
  }
  const title = el("h1", {}, `Labels of ${models.name}`);
  const path = `${modelPath(models.name, models.ref)}/thresholds`;
  place.replaceChildren(title, el("p", { class: "dim", role: "status" }, "Reading the labels …"));
  try {
    const first = await getJson(`${path}?limit=${PAGE_LABELS}`);
    const labels = first.labels;
    for (let next = first.next_offset; next !== null && labels.length < LABELS_MAX && mine === asked;) {
      const page = await getJson(`${path}?limit=${PAGE_LABELS}&offset=${next}`);
      labels.push(...page.labels);
      next = page.next_offset;
    }
    if (mine === asked) show(title, first, labels);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (mine === asked) place.replaceChildren(title, problem.code === "thresholds-not-tuned" ? notTuned() : notice(problem, load));
  }
}

const notTuned = () => el("div", { class: "notice" }, el("p", {}, "This version has no thresholds yet. The first correction on the page Predict begins them; ",
  "a training with validation rows tunes them."));

function show(title, found, labels) {
  const search = el("input", { type: "search", placeholder: "part of a name" });
  const order = el("select", {}, Object.keys(ORDERS).map((one) => el("option", {}, one)));
  const rows = el("div", {});
  const told = el("p", { class: "dim", role: "status" });
  const list = () => {
    const wanted = search.value.trim().toLowerCase();
    const fits = labels.filter((label) => label.label.toLowerCase().includes(wanted)).sort(ORDERS[order.value]);
    const more = fits.length > ROWS_MAX ? `, the first ${ROWS_MAX} shown` : "";
    told.textContent = `${count(fits.length)} of ${count(found.n_labels)} labels${more}.`;
    rows.replaceChildren(labelTable(fits.slice(0, ROWS_MAX)));
  };
  for (const input of [search, order]) input.addEventListener("input", list);
  place.replaceChildren(title, tiles(found),
    el("div", { class: "row" }, field("Search", search), field("Order", order)), told, rows);
  list();
}

const tiles = (found) => el("div", { class: "tiles" }, [
  ["macro-F so far", `${decimal(found.macro_f)} %`], ["corrections counted", count(found.n_events)],
  ["method", found.method], ["state (epoch)", count(found.threshold_epoch)],
  ...(found.shadow ? [["candidate since", moment(found.shadow.created_at)]] : []),
].map(([says, value]) => el("div", { class: "tile" }, el("b", {}, value), says)));

function labelTable(labels) {
  const rows = labels.map((label) => [name(label.label), decimal(label.threshold, 3), count(label.hits), count(label.marks),
    label.marks ? `${decimal((200 * label.hits) / label.marks, 1)} %` : ""]);
  return table("Labels and their thresholds", ["Label", "Threshold", "Hits", "Marks", "F so far"], rows, [1, 2, 3, 4]);
}
