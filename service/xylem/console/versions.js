// Versions of a model side by side, where each came from, and what its aliases named.

import { adminPath, getJson, sendJson } from "./api.js";
import { comparison } from "./compare.js";
import { bytes, count, decimal, el, facts, field, moment, table } from "./dom.js";
import { models } from "./models.js";
import { dialog, notice } from "./notice.js";

const METRICS = ["P@1", "P@5", "nDCG@5", "PSP@5", "macro_f", "micro_f"];
const HISTORY_ROWS = 50;
const SHOWN = new Set(["name", "versions", "aliases", "version_details"]);

export const heading = "Versions";

let place = null;
let compared = { of: "", node: null }; // stays while the versions and `latest` are the same: so does what was chosen

/** Show the page. */
export async function open(section) {
  place = section;
  models.addEventListener("change", show);
  await models.load();
}

/** Leave the page. */
export function close() {
  models.removeEventListener("change", show);
  compared = { of: "", node: null };
}

function show() {
  const details = models.details;
  if (!details) {
    place.replaceChildren(el("h1", {}, "Versions"), el("p", {}, "There is no model yet: ", el("a", { href: "#/train" }, "train one"), "."));
    return;
  }
  const history = el("div", { id: "history" }, el("p", { class: "dim" }, "…"));
  const back = el("button", { type: "button", onclick: () => openRollback(details, reload) }, "Roll back…");
  place.replaceChildren(
    el("div", { class: "row between" }, el("h1", {}, `Versions of ${details.name}`), back),
    versionsTable(details), others(details), comparisonOf(details),
    el("h2", {}, "What the aliases named"), history);
  showHistory(details.name, history);
}

const reload = () => models.load();

/** Return what else the service tells of a model, as it tells it: what stands beside its aliases. */
export function others(details) {
  const rows = Object.entries(details).filter(([what]) => !SHOWN.has(what))
    .flatMap(([what, values]) => Object.entries(Object(values)).map(([of, value]) => [what, of, plain(value)]));
  return rows.length ? table("Beside the aliases", ["What", "Of", "Says"], rows) : "";
}

const plain = (value) => (value !== null && typeof value === "object"
  ? Object.entries(value).filter(([, one]) => one !== null).map(([name, one]) => `${name}: ${typeof one === "object" ? `(${plain(one)})` : one}`).join(", ") : String(value));

/** Return the comparison of versions, "" where there are no two. */
function comparisonOf(details) {
  const good = details.version_details.filter((version) => !version.error).map((version) => version.version);
  if (good.length < 2) return "";
  const of = JSON.stringify([details.name, details.aliases.latest, good]);
  if (compared.of !== of) compared = { of, node: comparison(details) };
  return compared.node;
}

function versionsTable(details) {
  const good = details.version_details.filter((version) => !version.error);
  const metrics = METRICS.filter((metric) => good.some((version) => metric in version.metrics));
  const figure = (version, metric) => {
    const value = version.metrics[metric];
    const all = good.map((one) => one.metrics[metric]).filter((one) => one !== undefined);
    const isBest = value === Math.max(...all) && value > Math.min(...all);
    return el("span", { class: isBest ? "better" : null }, decimal(value));
  };
  const rows = details.version_details.map((version) => (version.error
    ? [String(version.version), "", "", el("span", { class: "fault" }, version.error.detail)]
    : [el("b", {}, version.version), badges(details, version.version), actions(details, version.version), version.trainer.name,
        ...metrics.map((metric) => figure(version, metric)), count(version.n_labels), bytes(version.model_bytes), moment(version.created_at)]));
  const head = ["Version", "Aliases", "", "Trainer", ...metrics, "Labels", "Size", "Made"];
  const numeric = [...metrics.keys()].map((i) => i + 4).concat(metrics.length + 4, metrics.length + 5);
  const made = [table(`Versions of ${details.name}`, head, rows, numeric)];
  if (!metrics.length) made.push(el("p", { class: "dim" }, "No figures: these versions were trained without a validation file."));
  else if (good.length > 1) made.push(el("p", { class: "dim" }, "Percent, each on the validation rows of its own training; the best of a column is green and bold."));
  return el("div", {}, made);
}

const badges = (details, version) => el("span", { class: "row" }, Object.entries(details.aliases)
  .filter(([, named]) => named === version).map(([alias]) => el("span", { class: "badge good-badge" }, alias)));

function actions(details, version) {
  return el("span", { class: "actions" },
    details.aliases.latest === version ? null
      : el("button", { type: "button", "aria-label": `Promote… version ${version}`, onclick: () => openPromote(details.name, version, reload) }, "Promote…"),
    el("button", { type: "button", class: "quiet", "aria-label": `Origin of version ${version}`, onclick: () => showProvenance(details.name, version) }, "Origin"));
}

async function showHistory(model, into) {
  try {
    const { changes } = await getJson(`${adminPath(model)}/history?limit=${HISTORY_ROWS}`);
    const rows = changes.map((change) => [moment(change.at), change.alias, change.action,
      `${change.from_version ?? "–"} → ${change.to_version ?? "–"}`, change.who, change.why || (change.verdict?.reasons ?? []).join(" ")]);
    into.replaceChildren(changes.length
      ? table("History of the aliases", ["When", "Alias", "What", "Version", "Who", "Why"], rows)
      : el("p", { class: "dim" }, "Nothing was promoted or rolled back yet."));
  } catch (problem) {
    into.replaceChildren(notice(problem, () => showHistory(model, into)));
  }
}

/** Ask for an alias and a reason, and let it name a version; `done` is called after. */
export function openPromote(model, version, done) {
  const alias = el("input", { value: "latest", required: true });
  openMove(`Promote version ${version} of ${model}`, "Promote", [field("Alias", alias)],
    (reason) => sendJson("POST", `${adminPath(model)}/promote`, { version, alias: alias.value.trim(), reason }), done);
}

function openRollback(details, done) {
  const alias = el("select", {}, Object.keys(details.aliases).map((one) => el("option", {}, one)));
  alias.value = "latest";
  openMove(`Roll back ${details.name}`, "Roll back", [field("Alias", alias), [el("p", { class: "dim help" }, "It names again what it named before.")]],
    (reason) => sendJson("POST", `${adminPath(details.name)}/rollback`, { alias: alias.value, to: null, reason }), done);
}

/** Open a dialog with some fields and a reason; `move` does it, and returns what an alias names now. */
function openMove(title, verb, fields, move, done) {
  const reason = el("input", { maxlength: 1024, autofocus: true, placeholder: "kept in the history" });
  const said = el("div", { role: "status" });
  const submit = async (event) => {
    event?.preventDefault();
    try {
      const moved = await move(reason.value);
      said.replaceChildren(el("p", { class: "good" }, `${moved.alias} names version ${moved.version} now; before it named ${moved.previous_version ? `version ${moved.previous_version}` : "none"}.`));
      form.replaceChildren(el("button", { type: "button", class: "primary", onclick: () => box.close() }, "Done"));
      form.firstChild.focus();
      await done();
    } catch (problem) {
      said.replaceChildren(notice(problem, problem.isAboutKey ? submit : null));
    }
  };
  const form = el("form", { onsubmit: submit }, el("div", { class: "fields" }, fields.flat(), field("Reason", reason)),
    el("button", { class: "primary" }, verb));
  const box = dialog(title, form, said);
}

async function showProvenance(model, version) {
  const inside = el("div", {});
  dialog(`Where version ${version} of ${model} comes from`, inside);
  try {
    const found = await getJson(`${adminPath(model)}/versions/${version}/provenance`);
    inside.replaceChildren(facts({
      Data: `${found.data.source}, ${count(found.data.rows)} rows`,
      "SHA-256": found.data.sha256,
      Trainer: found.trainer.name,
      Parameters: settings(found.trainer.parameters),
      Features: settings(found.features),
      Seed: String(found.seed),
      Made: moment(found.created),
      By: `Xylem ${found.code_version}${found.job ? `, job ${found.job}` : ""}`,
      After: found.parent ? `version ${found.parent.version}` : "no version",
      Rule: found.rule ? ruleText(found.rule) : "none",
      Content: found.content,
    }));
  } catch (problem) {
    inside.replaceChildren(notice(problem));
  }
}

const settings = (values) => Object.entries(values).map(([name, value]) => `${name}=${value}`).join(" ");
const ruleText = (rule) => `${rule.alias}, if ${(rule.if ?? []).map((one) => `${one.metric} changes by at least ${one.least_change}`).join(" and ") || "trained"}`;
