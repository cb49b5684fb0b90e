// The page that predicts while one types, says why, and takes corrections.

import { modelPath, sendJson, Problem } from "./api.js";
import { correction } from "./correct.js";
import { announce, byId, copied, decimal, el, name, oneAtATime, svg } from "./dom.js";
import { explained } from "./explain.js";
import { fieldsOf, hintOf, instanceOf, kindOf, NoInstance, numbersOf } from "./instance.js";
import { models } from "./models.js";
import { showProblem } from "./notice.js";
import { called, labelPicker } from "./picker.js";
import { showText, snippet } from "./snippets.js";
import { thresholdsOf } from "./thresholds.js";

const DEBOUNCE_MS = 15; // an answer stands there 50 ms after the last key
const RETRY_MS = 2000;
const ANNOUNCE_MS = 800;
const GONE = new Set(["model-not-found", "version-not-found", "alias-not-found"]);

let timer = 0;
let announcing = 0;
let failed = false; // whether the page shows why the last request had no answer
let shown = null; // {body, answer, thresholds} of what the page shows
let chosenLabel = null;

/** Return the request that the page stands for, null without an instance. Throws NoInstance. */
function requestOf() {
  const instance = instanceOf(byId("kind").value, byId("text").value, textsOfFields());
  if (instance === null) return null;
  const body = { instances: [instance], top_r: within("top") };
  const threshold = byId("threshold").value;
  if (threshold) body.threshold = threshold === "tuned" ? threshold : within("threshold-number");
  const beam = within("beam");
  if (beam !== 10) body.beam_width = beam;
  if (byId("exact").checked) body.exact = true;
  if (denied.labels().length) body.deny_labels = denied.labels();
  if (models.language) body.language = models.language;
  const weigh = byId("weigh").value;
  if (weigh === "propensity") body.label_weights = weigh;
  if (weigh === "own" && byId("weights").value.trim()) body.label_weights = numbersOf(byId("weights").value);
  return body;
}

/** Return the texts of the fields, by name. */
const textsOfFields = () => Object.fromEntries([...byId("text-fields").querySelectorAll("textarea")].map((area) => [area.name, area.value]));

/** Show a text area for each field of the chosen version, or the one for a text, as its kind is. */
function showKind() {
  const names = fieldsOf(models.chosen);
  const before = textsOfFields();
  const areFields = byId("kind").value === "fields";
  const areas = names.map((name, i) => [
    el("label", { for: `field-${i}` }, name),
    el("textarea", { id: `field-${i}`, name, rows: 2, dir: "auto", spellcheck: "false", oninput: predictSoon }, before[name] ?? ""),
  ]);
  if (Object.keys(before).join("\n") !== names.join("\n")) byId("text-fields").replaceChildren(...areas.flat());
  byId("text-fields").hidden = !areFields;
  byId("text").hidden = areFields;
  byId("kind").querySelector("[value=fields]").hidden = !names.length;
  byId("text-hint").textContent = hintOf(byId("kind").value);
}

/** Return the number of a field, within its bounds. */
function within(id) {
  const input = byId(id);
  const value = input.value === "" ? Number(input.defaultValue) : input.valueAsNumber;
  const bounded = Math.min(Math.max(value, Number(input.min)), Number(input.max));
  return input.step === "0.05" ? bounded : Math.round(bounded);
}

/** Predict soon; of several calls within a moment the last counts. */
export function predictSoon() {
  clearTimeout(timer);
  timer = setTimeout(predict, DEBOUNCE_MS);
}

/** Predict what stands there. One request is on its way at a time; the newest waits for it. */
const predict = oneAtATime(async () => {
  clearTimeout(timer);
  try {
    await predictNow();
  } catch (error) {
    fail(error);
  }
});

async function predictNow() {
  const model = models.name;
  const ref = models.ref;
  let body;
  try {
    body = model ? requestOf() : null;
  } catch (error) {
    if (!(error instanceof NoInstance)) throw error;
    show(null, error.message);
    return;
  }
  if (body === null) {
    show(null, model ? "" : "There is no model yet: ");
    if (!model) byId("predict-status").append(el("a", { href: "#/train" }, "train one from a file"), ".");
    return;
  }
  const began = performance.now();
  const answer = await sendJson("POST", `${modelPath(model, ref)}/predict`, body).catch((error) => {
    error.asked = { model, ref };
    throw error;
  });
  const took = performance.now() - began;
  if (failed) showProblem(byId("notice"), null);
  failed = false;
  const sameVersion = shown?.answer.version === answer.version && shown.answer.threshold_epoch === answer.threshold_epoch;
  show({ model, body, answer, took, thresholds: sameVersion && shown.model === model ? shown.thresholds : new Map() });
  await addThresholds(shown);
  await explainChosen(shown);
}

async function addThresholds(mine) {
  const { model, answer, thresholds } = mine;
  if (isWeighed(mine)) return;
  const ids = answer.predictions[0].labels.map((label) => label.id).filter((id) => !thresholds.has(id));
  if (!ids.length) return;
  const found = await thresholdsOf(model, answer.version, answer.threshold_epoch, ids);
  if (mine !== shown || !found.size) return;
  for (const [id, threshold] of found) thresholds.set(id, threshold);
  show(mine);
}

function fail(error) {
  if (!(error instanceof Problem)) {
    if (error.name !== "AbortError") throw error;
    return;
  }
  const { model, ref } = error.asked ?? { model: models.name, ref: models.ref };
  // another request has met the same, and the page has gone on
  if (GONE.has(error.code) && (model !== models.name || ref !== models.ref)) return;
  show(null);
  failed = showProblem(byId("notice"), error, predict);
  if (error.isServerGone) timer = setTimeout(predict, RETRY_MS);
  if (GONE.has(error.code)) modelGone().catch((problem) => showProblem(byId("notice"), problem, predict));
}

/** The model was deleted while it was shown: look at what there is, and go on with that. */
async function modelGone() {
  const gone = models.name;
  const ref = models.ref;
  await models.load();
  const now = models.name;
  failed = false; // the next answer leaves this where it is
  const says = now === gone ? `${gone}, ${ref.replace(":", " ")}, is gone.` : `The model ${gone} is gone.`;
  byId("notice").replaceChildren(el("div", { class: "notice", role: "alert" }, el("p", {}, says, " ", now ? `This is ${now} now.` : "")));
}

/** Show an answer, or nothing and why. */
function show(found, says = "") {
  shown = found;
  const prediction = found?.answer.predictions[0];
  const labels = prediction?.labels ?? [];
  byId("took").textContent = found ? `version ${found.answer.version}, ${decimal(found.took, 1)} ms` : "";
  byId("predict-status").textContent = found ? statusOf(found, prediction) : says;
  rows(labels, found);
  correct.show(isWeighed(found) ? null : found);
  if (!found) byId("why").hidden = true;
  clearTimeout(announcing);
  if (found) announcing = setTimeout(() => announce(spoken(labels)), ANNOUNCE_MS);
}

const spoken = (labels) => (labels.length ? `${labels.length} labels, the best: ${called(labels[0])}, ${decimal(labels[0].score)}` : "No labels");

/** Return whether scores are weighted: then they are no probabilities, and thresholds do not apply to them. */
const isWeighed = (found) => Boolean(found?.body.label_weights);

function statusOf(found, prediction) {
  const { answer, thresholds } = found;
  if (prediction.no_known_features) return "The model knows nothing of this input: these are its labels for an empty text.";
  if (!prediction.labels.length) return "No label reaches the threshold, or all are left out by the options.";
  if (isWeighed(found)) return "Weighted scores: bars are as long as the best, and thresholds do not apply.";
  if (answer.threshold_epoch === null) return "No thresholds yet: the first correction begins them.";
  return thresholds.size ? "The line on a bar is the label's threshold." : "";
}

/** Fill the list, row by row: what has the focus keeps it. */
function rows(labels, found) {
  const list = byId("predictions");
  while (list.children.length > labels.length) list.lastChild.remove();
  while (list.children.length < labels.length) list.append(emptyRow());
  const weighed = isWeighed(found);
  const most = weighed ? Math.max(...labels.map((label) => label.score), 1e-9) : 1;
  labels.forEach((label, i) => fillRow(list.children[i], label, weighed ? null : found.thresholds.get(label.id), most));
  list.classList.toggle("weighed", weighed);
}

function emptyRow() {
  const tick = el("input", { type: "checkbox" });
  const why = el("button", { type: "button", class: "label-name", "aria-controls": "why" });
  const bar = svg("svg", { class: "bar", viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "bar-all", y: 3, width: 100, height: 8 }), svg("rect", { class: "bar-score", y: 3, height: 8 }),
    svg("rect", { class: "bar-threshold", width: 1.6, height: 14 }));
  const row = el("li", {}, tick, why, el("span", { class: "score" }), bar, el("span", { class: "threshold dim" }));
  why.addEventListener("click", () => {
    chosenLabel = row.dataset.label;
    const mine = shown;
    explainChosen(mine).catch((error) => {
      if (mine === shown || !(error instanceof Problem)) fail(error); // else the page has gone on
    });
  });
  tick.addEventListener("change", () => correct.tick(row.dataset.label, tick.checked));
  return row;
}

/** `most` is the score of a whole bar. */
function fillRow(row, label, threshold, most) {
  const [tick, why, score, bar, below] = row.children;
  const holds = label.score >= (threshold?.threshold ?? 0.5);
  row.dataset.label = label.label;
  row.classList.toggle("holds", holds);
  tick.checked = correct.isTicked(label.label, holds);
  tick.setAttribute("aria-label", `${called(label)} holds`);
  why.replaceChildren(name(called(label)));
  why.title = label.name ? `${label.label}: why this label?` : "Why this label?";
  score.textContent = decimal(label.score);
  bar.children[1].setAttribute("width", Math.min(Math.max((100 * label.score) / most, 0), 100));
  bar.children[2].setAttribute("x", threshold ? Math.min(100 * threshold.threshold, 99) : -9);
  below.textContent = threshold ? `≥ ${decimal(threshold.threshold)}` : "";
  below.title = threshold ? "The label's threshold" : "";
}

/** Ask why the chosen label, or else the best one, has its score, and show it. */
async function explainChosen(mine) {
  if (mine === null || mine !== shown) return;
  const labels = mine.answer.predictions[0].labels;
  if (!labels.length) {
    byId("why").hidden = true;
    return;
  }
  const best = labels.find((one) => one.label === chosenLabel) ?? labels[0];
  const { label } = best;
  for (const row of byId("predictions").children) row.children[1].setAttribute("aria-pressed", row.dataset.label === label);
  const body = { instances: mine.body.instances, allow_labels: [label], top_r: 1, explain: true, language: mine.body.language };
  const answer = await sendJson("POST", `${modelPath(mine.model, `version:${mine.answer.version}`)}/predict`, body);
  if (mine !== shown) return;
  const explanation = answer.predictions[0].labels[0]?.explanation;
  const { text = null, fields } = mine.body.instances[0];
  byId("why-heading").replaceChildren("Why ", name(called(best)));
  byId("why-text").replaceChildren(...(best.name ? [copied(label)] : []), ...broaderPath(explanation?.broader_path ?? []), ...(explanation ? explained(explanation, fields ? Object.values(fields).join("\n") : text, models.chosen) : []));
  byId("why").hidden = !explanation;
}

/** Return the concepts above a label, from the top down, as a line. */
const broaderPath = (concepts) => (concepts.length ? [el("p", { class: "dim broader" }, "Under ",
  concepts.flatMap((concept, i) => [i ? " › " : "", el("span", { title: concept.uri }, name(concept.name ?? concept.uri))]))] : []);

/** Return labels, those that fit the text best first; at most a thousand: [{label, name}]. */
async function labelNames({ model, body, answer }) {
  const asked = { instances: body.instances, top_r: 1000, beam_width: 100, language: body.language };
  const ranked = await sendJson("POST", `${modelPath(model, `version:${answer.version}`)}/predict`, asked).catch(() => null);
  return ranked?.predictions[0].labels ?? [];
}

/** Return labels of the version that answered which have a part, at most so many; null if the server does not say. */
const findLabels = ({ model, answer }, part, most) => models.find(modelPath(model, `version:${answer.version}`), part, most);

async function copyAs(way) {
  let body = null;
  try {
    body = requestOf();
  } catch {
    // what stands there is no instance yet
  }
  body ??= { instances: [{ text: "a text editor" }], top_r: within("top") };
  showText(`The request as ${way === "python" ? "Python" : way}`, snippet(way, models.name, models.ref, body));
}

const denied = labelPicker("deny", { suggest: (part, most) => models.find(modelPath(models.name, models.ref), part, most), changed: predictSoon });
const correct = correction({ labelNames, findLabels, again: predict, fail });

/** Join the page's fields to what they do. */
export function start() {
  for (const id of ["text", "top", "threshold", "threshold-number", "beam", "exact", "weigh", "weights", "kind"]) {
    byId(id).addEventListener("input", predictSoon);
  }
  byId("threshold").addEventListener("input", () => (byId("threshold-number").disabled = byId("threshold").value !== "number"));
  byId("weigh").addEventListener("input", () => (byId("weights").disabled = byId("weigh").value !== "own"));
  byId("kind").addEventListener("input", showKind);
  for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copyAs(button.dataset.copy));
  let model = models.name;
  models.addEventListener("change", () => {
    if (model !== models.name) denied.clear();
    model = models.name;
    byId("kind").value = kindOf(models.chosen);
    showKind();
    if (!byId("page-predict").hidden) predictSoon();
  });
  if (models.chosen) models.tell();
}

export const heading = "Predict";
export const open = () => predictSoon();
