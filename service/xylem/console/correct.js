// Corrections of a prediction: ticks and added labels become feedback, and the thresholds that moved are shown.

import { getJson, key, modelPath, Problem, sendJson } from "./api.js";
import { byId, count, decimal, el, name, table } from "./dom.js";
import { labelPicker } from "./picker.js";
import { forgetThresholds, thresholdsOf } from "./thresholds.js";

const THRESHOLDS_TOLD_MAX = 6;

/** Return an id that no other event has; crypto.randomUUID is only there on https and this machine. */
function newId() {
  const parts = crypto.getRandomValues(new Uint32Array(4));
  return `console-${[...parts].map((part) => part.toString(16).padStart(8, "0")).join("")}`;
}

const rules = new Map(); // whether texts are stored, by model and key

/** Return whether the text of a correction would be stored, and why not: {rows_stored, because}; null where the service does not say. */
function storedRule(model) {
  const of = JSON.stringify([model, key.get()]);
  if (!rules.has(of)) {
    rules.set(of, getJson(`${modelPath(model)}/feedback`).catch((problem) => {
      if (!(problem instanceof Problem)) throw problem;
      if (problem.isServerGone || problem.status >= 500) rules.delete(of); // another time it may say
      return null;
    }));
  }
  return rules.get(of);
}

/**
 * Join the form to what it does.
 *
 * labelNames  labels that fit what is shown, the best first: [{label, name}]
 * findLabels  labels that have a part, at most so many; null if the server does not say
 * again       predicts again
 * fail        shows a problem
 */
export function correction({ labelNames, findLabels, again, fail }) {
  let shown = null;
  let textOf = "";
  let ticks = new Map();
  let names = null;
  let eventId = newId();

  const form = byId("correct");
  const added = labelPicker("add-label", { suggest, takes });

  function reset() {
    [ticks, names, eventId] = [new Map(), null, newId()];
    added.clear();
    byId("moved").replaceChildren();
  }

  /** Take what is shown now; ticks are forgotten with another instance. */
  function show(found) {
    const text = found ? JSON.stringify([found.model, found.answer.version, found.body.instances, found.body.language]) : "";
    if (text !== textOf) reset();
    [shown, textOf] = [found, text];
    form.hidden = !found;
    if (found) sayWhetherStored(found);
  }

  /** Say to who corrects, before they send, what becomes of the text. */
  async function sayWhetherStored({ model }) {
    const rule = await storedRule(model);
    if (shown?.model !== model) return;
    byId("text-stored").textContent = rule === null ? "" : rule.rows_stored
      ? "The text is stored with its labels, and the model learns from it."
      : `The text is not stored, only thresholds learn${rule.because ? `: ${rule.because}` : "."}`;
  }

  async function suggest(part, most) {
    const mine = shown;
    if (!mine) return null;
    names ??= labelNames(mine);
    const wanted = part.toLowerCase();
    const known = await names;
    if (mine !== shown) return null;
    const fits = known.filter((one) => `${one.label} ${one.name ?? ""}`.toLowerCase().includes(wanted));
    if (!wanted) return fits.slice(0, most);
    const more = await findLabels(mine, part, most); // also by other names, which only the server knows
    if (mine !== shown || more === null) return null;
    const best = fits.slice(0, most / 2); // those that fit the text come first, and leave room
    const there = new Set(best.map((one) => one.label));
    return [...best, ...more.filter((one) => !there.has(one.label))].slice(0, most);
  }

  /** Tick a label that is shown: then it need not be added. */
  function takes({ label }) {
    const row = [...byId("predictions").children].find((one) => one.dataset.label === label);
    if (!row) return false;
    row.children[0].checked = true;
    tick(label, true);
    return true;
  }

  function tick(label, holds) {
    ticks.set(label, holds);
  }

  async function send(event) {
    event.preventDefault();
    if (!(await added.add())) return;
    const mine = shown;
    const rows = [...byId("predictions").children];
    const labels = [...rows.filter((row) => row.children[0].checked).map((row) => row.dataset.label), ...added.labels()];
    const body = { event_id: eventId, prediction_id: mine.answer.predictions[0].prediction_id, labels };
    const button = byId("send-correction");
    button.disabled = true;
    try {
      if ((await storedRule(mine.model))?.rows_stored) [body.instance] = mine.body.instances; // the service stores what it is sent
      const before = new Map(mine.thresholds);
      const answer = await sendJson("POST", `${modelPath(mine.model, `version:${mine.answer.version}`)}/feedback`, body);
      const [result] = answer.results;
      if (result.result === "applied") {
        for (const row of rows) ticks.set(row.dataset.label, row.children[0].checked); // also where thresholds move
        eventId = newId();
        await showMoves(mine, answer, before, labels);
        again();
      } else say(refusal(result));
    } catch (error) {
      fail(error);
    } finally {
      button.disabled = false;
    }
  }

  async function showMoves(mine, answer, before, labels) {
    const ids = mine.answer.predictions[0].labels.map((label) => label.id);
    forgetThresholds();
    const after = await thresholdsOf(mine.model, answer.version, answer.threshold_epoch, ids);
    const moveOf = (id) => (after.get(id)?.threshold ?? 0) - (before.get(id)?.threshold ?? 0);
    const moved = ids.filter((id) => after.has(id) && moveOf(id) !== 0);
    moved.sort((one, other) => Math.abs(moveOf(other)) - Math.abs(moveOf(one)));
    const held = labels.length === 1 ? "1 label is right" : `${count(labels.length)} labels are right`;
    const first = before.size ? null : el("p", { class: "dim" }, "The first correction gave every label a threshold. They start low, and move with each correction.");
    const says = el("p", { class: "good" }, `Thank you, this is counted: ${held}, the others here are wrong. `,
      moved.length ? "Their thresholds moved, most of all:" : "No threshold of these labels moved.");
    byId("moved").replaceChildren(says, ...(first ? [first] : []), ...(moved.length ? [movesTable(moved.slice(0, THRESHOLDS_TOLD_MAX), before, after, (id) => mine.answer.predictions[0].labels.find((one) => one.id === id)?.name)] : []));
  }

  function say(text) {
    byId("moved").replaceChildren(el("p", { class: "fault" }, text));
  }

  form.addEventListener("submit", send);
  return { show, tick, isTicked: (label, holds) => ticks.get(label) ?? holds };
}

function refusal({ result, reason, detail }) {
  const why = detail ?? reason ?? "";
  return result === "duplicate" ? "This correction was counted before." : `Not counted (${result}): ${why}`;
}

function movesTable(ids, before, after, nameOf) {
  const shown = (threshold) => (threshold ? decimal(threshold.threshold, 4) : "none");
  const way = (id) => (after.get(id).threshold > (before.get(id)?.threshold ?? 0) ? "↑" : "↓");
  const rows = ids.map((id) => [name(nameOf(id) ?? after.get(id).label), shown(before.get(id)), `${way(id)} ${shown(after.get(id))}`]);
  return table("Thresholds that moved", ["Label", "Before", "Now"], rows, [1, 2]);
}
