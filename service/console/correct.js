// Corrections of a prediction: ticks and added labels become feedback, and the thresholds that moved are shown.

import { modelPath, sendJson } from "./api.js";
import { byId, count, decimal, el, name, oneAtATime, table } from "./dom.js";
import { forgetThresholds, thresholdsOf } from "./thresholds.js";

const SUGGESTED_MAX = 50;
const THRESHOLDS_TOLD_MAX = 6;

/** Return an id that no other event has; crypto.randomUUID is only there on https and this machine. */
function newId() {
  const parts = crypto.getRandomValues(new Uint32Array(4));
  return `console-${[...parts].map((part) => part.toString(16).padStart(8, "0")).join("")}`;
}

/**
 * Join the form to what it does.
 *
 * labelNames  names of labels that fit what is shown, the best first
 * findLabels  names of labels that have a part, at most so many
 * again       predicts again
 * fail        shows a problem
 */
export function correction({ labelNames, findLabels, again, fail }) {
  let shown = null;
  let textOf = "";
  let ticks = new Map();
  let added = new Set();
  let names = null;
  let eventId = newId();

  const form = byId("correct");
  const input = byId("add-label");

  function reset() {
    [ticks, added, names, eventId] = [new Map(), new Set(), null, newId()];
    input.value = "";
    byId("moved").replaceChildren();
    showAdded();
  }

  /** Take what is shown now; ticks are forgotten with another instance. */
  function show(found) {
    const text = found ? JSON.stringify([found.model, found.answer.version, found.body.instances]) : "";
    if (text !== textOf) reset();
    [shown, textOf] = [found, text];
    form.hidden = !found;
  }

  function showAdded() {
    byId("added").replaceChildren(...[...added].map((label) => el("li", { class: "chip" }, name(label),
      el("button", { type: "button", class: "quiet", "aria-label": `Remove ${label}`, onclick: () => { added.delete(label); showAdded(); } }, "×"))));
  }

  const suggest = oneAtATime(async () => {
    const mine = shown;
    if (!mine) return;
    names ??= labelNames(mine);
    const wanted = input.value.trim().toLowerCase();
    const known = await names;
    if (mine !== shown) return;
    let fits = known.filter((label) => label.toLowerCase().includes(wanted)).slice(0, SUGGESTED_MAX);
    if (wanted && fits.length < SUGGESTED_MAX) {
      const more = await findLabels(mine, wanted, SUGGESTED_MAX);
      if (mine !== shown) return;
      fits = [...new Set([...fits, ...more])].slice(0, SUGGESTED_MAX);
    }
    byId("label-names").replaceChildren(...fits.map((label) => el("option", { value: label })));
  });

  function add() {
    const label = input.value.trim();
    const row = [...byId("predictions").children].find((one) => one.dataset.label === label);
    if (row) {
      row.children[0].checked = true;
      tick(label, true);
    } else if (label) {
      added.add(label);
      showAdded();
    }
    input.value = "";
    input.focus();
  }

  function tick(label, holds) {
    ticks.set(label, holds);
  }

  async function send(event) {
    event.preventDefault();
    if (input.value.trim()) add();
    const mine = shown;
    const rows = [...byId("predictions").children];
    const labels = [...rows.filter((row) => row.children[0].checked).map((row) => row.dataset.label), ...added];
    const body = { event_id: eventId, prediction_id: mine.answer.predictions[0].prediction_id, labels };
    const button = byId("send-correction");
    button.disabled = true;
    try {
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
    const held = labels.length === 1 ? "1 label holds" : `${count(labels.length)} labels hold`;
    const first = before.size ? null : el("p", { class: "dim" }, "The first correction gave every label a threshold. They start low, and move with each correction.");
    const says = el("p", { class: "good" }, `Thank you, it is counted: ${held}, the others shown do not. `,
      moved.length ? "Their thresholds moved, most of all:" : "No threshold of a label shown moved.");
    byId("moved").replaceChildren(says, ...(first ? [first] : []), ...(moved.length ? [movesTable(moved.slice(0, THRESHOLDS_TOLD_MAX), before, after)] : []));
  }

  function say(text) {
    byId("moved").replaceChildren(el("p", { class: "fault" }, text));
  }

  byId("add-button").addEventListener("click", add);
  input.addEventListener("focus", suggest);
  input.addEventListener("input", suggest);
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !input.value.trim()) return;
    event.preventDefault();
    add();
  });
  form.addEventListener("submit", send);
  return { show, tick, isTicked: (label, holds) => ticks.get(label) ?? holds };
}

function refusal({ result, reason, detail }) {
  const why = detail ?? reason ?? "";
  return result === "duplicate" ? "This correction was counted before." : `Not counted (${result}): ${why}`;
}

function movesTable(ids, before, after) {
  const shown = (threshold) => (threshold ? decimal(threshold.threshold, 4) : "none");
  const way = (id) => (after.get(id).threshold > (before.get(id)?.threshold ?? 0) ? "↑" : "↓");
  const rows = ids.map((id) => [name(after.get(id).label), shown(before.get(id)), `${way(id)} ${shown(after.get(id))}`]);
  return table("Thresholds that moved", ["Label", "Before", "Now"], rows, [1, 2]);
}
