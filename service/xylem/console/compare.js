// Two versions of a model side by side: figures, bands, reliability, labels.

import { getJson, modelPath } from "./api.js";
import { bandChart, legend, reliabilityChart } from "./charts.js";
import { count, decimal, el, field, name, table } from "./dom.js";
import { notice } from "./notice.js";

const FIRST = ["P@1", "P@3", "P@5", "nDCG@5", "R@5", "PSP@5", "macro_f", "micro_f", "instance_f"];
const MOST_TOLD = FIRST.length;
const LABELS_SHOWN = 20;
const THRESHOLDS_MAX = 1000;
const LARGEST = "largest difference first";
const ORDERS = {
  [LARGEST]: (one, other) => Math.abs(other.gain) - Math.abs(one.gain),
  "most gained first": (one, other) => other.gain - one.gain,
  "most lost first": (one, other) => one.gain - other.gain,
  "true most often first": (one, other) => other.support - one.support,
};

const percent = (share) => `${decimal(100 * share, 1)} %`;
const named = (version) => `version ${version.version}`;

/** Return an element that compares versions of a model, two of which are chosen in it. */
export function comparison(details) {
  const good = details.version_details.filter((version) => !version.error).map((version) => version.version);
  const served = details.aliases.latest;
  const select = (id, chosen) => {
    const made = el("select", { id, oninput: () => load() }, good.map((version) => el("option", { value: version }, `${version}${version === served ? " (latest)" : ""}`)));
    made.value = chosen;
    return made;
  };
  const newer = select("compare-new", good[0]);
  const older = select("compare-old", good.includes(served) && served !== good[0] ? served : good[1]);
  const inside = el("div", { id: "comparison", "aria-live": "polite" });
  let asked = 0;
  async function load() {
    const mine = ++asked;
    const chosen = [older.value, newer.value];
    if (chosen[0] === chosen[1]) {
      inside.replaceChildren(el("p", { class: "dim" }, "Choose two different versions."));
      return;
    }
    try {
      const found = await Promise.all(chosen.map((version) => getJson(modelPath(details.name, `version:${version}`))));
      const thresholds = await Promise.all(chosen.map((version) => thresholdsOf(details.name, version)));
      if (mine === asked) inside.replaceChildren(...parts(found, thresholds));
    } catch (problem) {
      if (mine === asked) inside.replaceChildren(notice(problem, load));
    }
  }
  load();
  return el("section", { "aria-labelledby": "compare-heading" }, el("h2", { id: "compare-heading" }, "Two versions compared"),
    el("div", { class: "row" }, el("span", { class: "row" }, field("Version", newer)), el("span", { class: "row" }, field("against", older))), inside);
}

/** Return the thresholds by name of the labels that were seen most often; a version that cannot be opened has none. */
async function thresholdsOf(model, version) {
  const path = `${modelPath(model, `version:${version}`)}/labels?order=training_rows&descending=true&limit=${THRESHOLDS_MAX}`;
  const { labels } = await getJson(path).catch(() => ({ labels: [] }));
  return new Map(labels.map((label) => [label.label, label.threshold]));
}

function parts(versions, thresholds) {
  const figures = versions.map((version) => version.validation);
  const missing = versions.filter((version) => !version.validation);
  const without = missing.length ? [el("p", { class: "notice" }, `Not measured: ${missing.map(named).join(" and ")}. `,
    "By band, score and label there are figures only of versions that this release trained with validation rows (“Measure on” on the page Train).")] : [];
  return [metricTable(versions), rowsNote(figures), ...without,
    ...(missing.length === versions.length ? [] : [el("div", { class: "columns" }, bands(versions), reliability(versions)), labels(versions, thresholds)])]
    .filter(Boolean);
}

/** Say whether the two were measured on the same rows, as far as that can be seen. */
function rowsNote([one, other]) {
  if (!one || !other) return null;
  const supports = new Map(one.labels.map((label) => [label.label, label.support]));
  const differ = one.rows !== other.rows || other.labels.some((label) => supports.has(label.label) && supports.get(label.label) !== label.support);
  return el("p", { class: differ ? "notice" : "dim" }, differ
    ? `They were measured on different rows (${count(one.rows)} and ${count(other.rows)}): differences may come from these.`
    : `Both were measured on ${count(one.rows)} rows, with the same labels; labels count as predicted from a score of ${other.threshold} on.`);
}

/** Return a difference with its sign, green where it is better and red where it is worse. */
function difference(value, digits = 2) {
  if (value === null) return "";
  const says = decimal(Math.abs(value), digits);
  const isNothing = Number(says) === 0;
  return el("span", { class: isNothing ? "dim" : value > 0 ? "adds-text" : "fault" }, isNothing ? "±0" : `${value > 0 ? "+" : "−"}${says}`);
}

const minus = (one, other) => (typeof one === "number" && typeof other === "number" ? one - other : null);

function metricTable([older, newer]) {
  const both = new Set([...Object.keys(older.metrics), ...Object.keys(newer.metrics)]);
  const metrics = [...FIRST.filter((metric) => both.delete(metric)), ...both].filter((metric) => !metric.includes(" in "));
  if (!metrics.length) return el("p", { class: "dim" }, "Neither has figures: they were trained without validation rows.");
  const rows = metrics.map((metric) => [metric, decimal(older.metrics[metric]), decimal(newer.metrics[metric]), difference(minus(newer.metrics[metric], older.metrics[metric]))]);
  const made = (says, some) => table(says, ["Percent", `Version ${older.version}`, `Version ${newer.version}`, "Difference"], some, [1, 2, 3]);
  if (rows.length <= MOST_TOLD) return made("Figures", rows);
  return el("div", {}, made("Figures", rows.slice(0, MOST_TOLD)), el("details", {}, el("summary", {}, "More figures"), made("More figures", rows.slice(MOST_TOLD))));
}

function bands([older, newer]) {
  const of = (version, key) => new Map((version.validation?.bands ?? []).map((band) => [band.band, band[key]]));
  const names = [...new Set([newer, older].flatMap((version) => (version.validation?.bands ?? []).map((band) => band.band)))]
    .sort((one, other) => parseInt(one, 10) - parseInt(other, 10));
  const heading = el("h3", {}, "Rare and frequent labels");
  if (!names.length) return el("div", {}, heading, el("p", { class: "dim" }, "Not measured."));
  const values = (key) => names.map((band) => [band, of(older, key).get(band) ?? null, of(newer, key).get(band) ?? null]);
  const found = values("macro_f");
  const recall = values("R@5");
  const rows = found.map(([band, one, other], i) => [band, count(of(newer, "labels").get(band) ?? of(older, "labels").get(band)),
    decimal(one, 1), decimal(other, 1), decimal(recall[i][1], 1), decimal(recall[i][2], 1)]);
  return el("div", {}, heading, legend([named(older), named(newer)]),
    bandChart("Mean F of the labels, by how often they were seen in training: the table says the same", "mean F of labels with so many training rows", found),
    table("Figures by training rows", ["Training rows", "Labels", `F v${older.version}`, `F v${newer.version}`, `R@5 v${older.version}`, `R@5 v${newer.version}`], rows, [1, 2, 3, 4, 5]));
}

function reliability(versions) {
  const apart = versions.map((version) => {
    const error = version.validation?.calibration_error;
    return typeof error === "number" ? `version ${version.version} ${decimal(100 * error, 1)} points` : `version ${version.version} not measured`;
  });
  return el("div", {}, el("h3", {}, "Are scores probabilities?"), legend(versions.map(named)),
    reliabilityChart(`Score against the share that is true. Apart on average: ${apart.join(", ")}.`, versions.map((version) => version.validation?.reliability ?? [])),
    el("p", { class: "dim" }, "On the dashed line a score of 0.7 is right seven times in ten; above it the model is too careful, below it too sure."),
    el("p", {}, `Apart on average: ${apart.join(", ")} (expected calibration error).`));
}

const fOf = ({ support, hits, predicted }) => (support + predicted ? (2 * hits) / (support + predicted) : null);

function labels(versions, thresholds) {
  const [older, newer] = versions.map((version) => new Map((version.validation?.labels ?? []).map((label) => [label.label, label])));
  const rows = [...newer.keys()].filter((label) => older.has(label)).map((label) => {
    const [one, other] = [older.get(label), newer.get(label)];
    return { label, support: other.support, one, other, gain: fOf(other) - fOf(one) };
  });
  const heading = el("h3", {}, "Label by label");
  if (!rows.length) return el("div", {}, heading, el("p", { class: "dim" }, "No label was measured in both."));
  const order = el("select", {}, Object.keys(ORDERS).map((one) => el("option", {}, one)));
  const search = el("input", { type: "search", placeholder: "part of a name" });
  const shown = el("div", {});
  const more = el("button", { type: "button" }, "Show more");
  let most = LABELS_SHOWN;
  const list = () => {
    const wanted = search.value.trim().toLowerCase();
    const fits = rows.filter((row) => row.label.toLowerCase().includes(wanted)).sort(ORDERS[order.value]);
    more.hidden = fits.length <= most;
    shown.replaceChildren(labelTable(fits.slice(0, most), versions, thresholds), el("p", { class: "dim" }, `${count(Math.min(most, fits.length))} of ${count(fits.length)} labels`));
  };
  const again = () => {
    most = LABELS_SHOWN;
    list();
  };
  for (const input of [order, search]) input.addEventListener("input", again);
  more.addEventListener("click", () => {
    most += 5 * LABELS_SHOWN;
    list();
  });
  list();
  return el("div", { id: "label-differences" }, heading, el("div", { class: "row" }, field("Order", order), field("Search", search)), shown, more);
}

function labelTable(rows, [older, newer], [before, after]) {
  const head = ["Label", "True in", `F v${older.version}`, `F v${newer.version}`, "Difference", `Threshold v${older.version}`, `Threshold v${newer.version}`];
  return table("Labels of both versions", head, rows.map(({ label, support, one, other, gain }) => [name(label), count(support),
    percent(fOf(one)), percent(fOf(other)), difference(100 * gain, 1), ...[before, after].map((known) => decimal(known.get(label), 2) || "none")]), [1, 2, 3, 4, 5, 6]);
}
