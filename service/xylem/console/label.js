// One label: what its threshold rests on, what speaks for it, and its threshold over time.

import { getJson } from "./api.js";
import { bar, stepChart } from "./charts.js";
import { copied, count, decimal, el, facts, moment, name, table } from "./dom.js";
import { dialog, notice } from "./notice.js";
import { called } from "./picker.js";

export const FEW_MARKS = 10;
const FEATURES_ASKED = 100;
const FEATURES_SHOWN = 8;
const POINTS_LISTED = 10;
const KINDS = { tuned: "tuned", started: "first feedback", restored: "restored", switched: "candidate put in force", kept: "kept", feedback: "feedback" };

/** Return whether a label's threshold rests on too little. */
export const few = (label) => label.marks !== null && label.marks < FEW_MARKS;

/** Open a dialog about a label; `path` is that of its version. */
export function openLabel(path, label) {
  const features = el("div", {}, el("p", { class: "dim" }, "…"));
  const history = el("div", {}, el("p", { class: "dim" }, "…"));
  dialog(el("span", {}, "Label ", name(called(label))), few(label)
    ? el("p", { class: "notice" }, `Its threshold is not reliable yet: it has ${count(label.marks)} marks, and needs at least ${FEW_MARKS}.`) : null,
  label.name ? copied(label.label) : null,
  facts({
    "Training rows": label.training_rows === null ? null : count(label.training_rows),
    Threshold: decimal(label.threshold, 4),
    Hits: label.hits === null ? null : `${count(label.hits)} rows: true and predicted`,
    Marks: label.marks === null ? null : `${count(label.marks)}: true in a row, or predicted in one`,
  }), el("h3", {}, "What speaks for it, and against"), features, el("h3", {}, "Its threshold over time"), history);
  fill(features, async () => featureTables(await getJson(`${path}/label-features?id=${label.id}&top=${FEATURES_ASKED}`)));
  fill(history, async () => historyOf(await getJson(`${path}/threshold-history?id=${label.id}`)));
}

async function fill(place, make) {
  try {
    place.replaceChildren(...(await make()));
  } catch (problem) {
    const says = { "unsupported-option": "The labels of this kind of model have no weights of features.", "thresholds-not-tuned": "It has no threshold yet." }[problem.code];
    place.replaceChildren(says ? el("p", { class: "dim" }, says) : notice(problem, () => fill(place, make)));
  }
}

function featureTables({ features }) {
  const most = Math.max(...features.map((one) => Math.abs(one.weight)), 1e-9);
  const part = (says, fits, kind) => {
    const rows = features.filter(({ weight }) => fits(weight)).slice(0, FEATURES_SHOWN).map(({ feature, weight }) => [el("bdi", {}, feature),
      el("span", { class: `${kind}-text` }, `${weight < 0 ? "−" : "+"}${decimal(Math.abs(weight))}`), bar(kind, Math.abs(weight) / most)]);
    return el("div", {}, rows.length ? table(says, [says, "Weight", "Size"], rows, [1]) : el("p", { class: "dim" }, `${says}: nothing.`));
  };
  return [el("div", { class: "columns" }, part("Speaks for it", (weight) => weight > 0, "adds"), part("Speaks against it", (weight) => weight < 0, "takes")),
    el("p", { class: "dim" }, `Of the ${count(features.length)} features that weigh most.`)];
}

const dayOf = (at) => new Date(at * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });

function historyOf({ points }) {
  if (!points.length) return [el("p", { class: "dim" }, "Nothing of it is kept.")];
  const [first, last] = [points[0], points.at(-1)];
  const moved = points.length > 1 ? `from ${decimal(first.threshold, 4)} to ${decimal(last.threshold, 4)}, ${count(points.length)} states known` : `${decimal(last.threshold, 4)}, as it was first set`;
  const rows = points.slice(-POINTS_LISTED).toReversed().map((point) => [moment(point.at), KINDS[point.kind] ?? point.kind, decimal(point.threshold, 4)]);
  return [stepChart(`The threshold ${moved}`, points, Date.now() / 1000, dayOf), el("p", { class: "dim" }, `The threshold: ${moved}. Of long ago only some states are kept.`),
    table("The last changes", ["When", "What", "Threshold"], rows, [2])];
}
