// Versions over time: each was measured beside the one before it, on the same held-out documents.

import { runsChart } from "./charts.js";
import { count, decimal, el, facts, field, moment, table } from "./dom.js";
import { namedLabel } from "./label_names.js";
import { dialog } from "./notice.js";

const USUAL = "F1@5";

/** Return the part of the page about versions: {node, refresh}. */
export function runs(state) {
  const figure = el("select", { id: "run-figure" });
  const shown = el("div", {});
  let all = [];

  function refresh({ runs: newestFirst }) {
    all = newestFirst;
    const names = [...new Set(all.flatMap((run) => Object.keys(run.figures ?? {})))];
    const wanted = names.includes(figure.value) ? figure.value : USUAL;
    figure.replaceChildren(...(names.length ? names : [USUAL]).map((one) => el("option", { selected: one === wanted }, one)));
    draw();
  }

  function draw() {
    if (!all.length) {
      shown.replaceChildren(el("p", { class: "dim" }, "No version of this model was made by a recipe yet."));
      return;
    }
    const measured = all.filter((run) => run.figures?.[figure.value]).toReversed();
    const says = `${figure.value} of each version: ${measured.map((run) => `version ${run.version} ${decimal(run.figures[figure.value].b, 1)}`).join(", ")}`;
    shown.replaceChildren(
      measured.length ? el("div", { class: "card" }, runsChart(says, measured.map((run) => [run.version, run.figures[figure.value]]))) : "",
      table("Runs of the recipe", ["Version", "", "Made", `${figure.value} before`, "now", "Change, 95% interval", "Documents", "Answers"],
        all.map((run) => row(run, figure.value)), [0, 3, 4, 6]),
      el("p", { class: "dim" }, "Both versions of a row are measured on the same held-out documents, which no version learns. In the chart the circle is the version, the square the one before it, and the line the 95% interval of the change: if it reaches the height of the square, the change may be chance. Later runs may have more documents, so compare the two of a run."));
  }

  figure.addEventListener("input", draw);
  refresh(state);
  return { node: el("section", { id: "runs", "aria-label": "Versions over time" }, el("div", { class: "row between" }, el("h2", {}, "Versions over time"), el("span", { class: "row" }, field("Figure", figure))), shown), refresh };
}

const signed = (x) => `${x > 0 ? "+" : ""}${decimal(x, 1)}`;

/** Return the change of a figure with its interval, in words. */
const change = ({ difference, low, high }) => `${signed(difference)} (${signed(low)} to ${signed(high)})`;

function row(run, name) {
  const figure = run.figures?.[name];
  return [el("b", {}, run.version),
    el("button", { type: "button", class: "quiet", "aria-label": `Details of version ${run.version}`, onclick: () => openRun(run) }, "Details"), moment(run.at), hasOld(figure) ? decimal(figure.a, 1) : "", figure ? decimal(figure.b, 1) : "not measured",
    hasOld(figure) ? change(figure) : "", count(run.judges),
    el("div", { class: "reasons" }, badge(run), ...run.reasons.map((reason) => el("div", { class: "dim" }, reason)),
      run.concepts?.new ? el("div", { class: "dim" }, `New: ${count(run.concepts.new)} concepts learnt for the first time.`) : "")];
}

/** Return whether there was a version before; for a first version it is 0, and the change the figure itself. */
const hasOld = (figure) => Boolean(figure && figure.a);

const badge = (run) => el("span", { class: `badge ${run.promoted ? "good-badge" : ""}` }, run.promoted ? "promoted" : "not promoted");

/** Open a dialog with all that a run has reported. */
function openRun(run) {
  const { learnt, new: nNew, new_names: newNames = [], by_name: byName, never } = run.concepts ?? {};
  dialog(`Version ${run.version}`,
    el("p", {}, badge(run)), el("ul", {}, run.reasons.map((reason) => el("li", {}, reason))),
    figuresTable(`Figures on ${count(run.judges)} held-out documents`, run.figures),
    figuresTable("Figures on held-out corrections, which decide nothing", run.corrections?.figures),
    el("h3", {}, "Concepts"),
    facts({ "Learnt from rows": counted(learnt), "Learnt for the first time": counted(nNew), "Found by their names alone": counted(byName), "Labels of rows that are never answered": counted(never) }),
    newNames.length ? el("p", { id: "new-concepts" }, "For the first time: ", newNames.flatMap((label, i) => [i ? ", " : "", el("span", { class: "inline" }, namedLabel(label))]), nNew > newNames.length ? " …" : "") : "",
    run.sources?.length ? table("Rows by source", ["Source", "Rows", "Learnt", "Weak rows", "Held out", "Left out"],
      run.sources.map((one) => [one.source, ...[one.rows, one.learnt, one.members, one.held_out, one.left_out].map(counted)]), [1, 2, 3, 4, 5]) : "");
}

const counted = (n) => (n === undefined || n === null ? "" : count(n));

function figuresTable(caption, figures) {
  const all = Object.entries(figures ?? {});
  return all.length ? [el("h3", {}, caption), table(caption, ["Figure", "Before", "Now", "Change, 95% interval"],
    all.map(([name, figure]) => [name, hasOld(figure) ? decimal(figure.a) : "", decimal(figure.b), hasOld(figure) ? change(figure) : ""]), [1, 2])]
    : el("p", { class: "dim" }, `${caption}: not measured.`);
}
