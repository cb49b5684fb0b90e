// Training: a file that is uploaded or chosen, a trainer with its parameters, a rule; and the jobs there are.

import { getJson, sendJson } from "./api.js";
import { dataField, withoutData } from "./data_field.js";
import { el, field, moment, table } from "./dom.js";
import { progressText, showJob, stateBadge } from "./job.js";
import { models } from "./models.js";
import { notice } from "./notice.js";
import { schemaForm } from "./schema_form.js";

const SPLIT_SHARE = 0.2;
const JOBS_SHOWN = 50;
const POLL_MS = 3000;
const METRICS = ["P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@5", "macro_f", "micro_f", "instance_f"];
const ROWS = ".jsonl,.ndjson,.csv,.tsv,.parquet,.txt,.svm,.npz,.gz";
const TABLE = /\.(csv|tsv|parquet)(\.gz)?$/;
const TRAINER_FIRST = "label-tree";

export const heading = "Train";

let page = null; // {detail, list} while the page is shown
let timer = 0;
let left = new AbortController();
let unfollow = new AbortController();
let schemas = null;

/** Show the page; `job` is the id of the one whose state is shown. What is in the form stays. */
export async function open(place, job) {
  if (!page) {
    const files = (await getJson("v1/admin/data").catch(withoutData)).files;
    schemas ??= (await getJson("openapi.json"))["x-parameters"];
    page = { detail: el("div", {}), list: el("div", {}) };
    place.replaceChildren(el("h1", {}, "Train a version"),
      el("div", { class: "columns" }, trainForm(files), el("div", {}, page.detail, el("h2", {}, "Jobs"), page.list)));
    left = new AbortController();
    pollJobs(page.list, left.signal);
  }
  unfollow.abort();
  unfollow = new AbortController();
  const { detail, list } = page;
  detail.replaceChildren();
  if (!job) return;
  showJob(job, detail, unfollow.signal, () => listJobs(list).catch(() => {}));
  detail.scrollIntoView({ block: "nearest" });
}

/** Leave the page: nothing is followed any more. */
export function close() {
  left.abort();
  unfollow.abort();
  clearTimeout(timer);
  page = null;
}

async function pollJobs(list, signal) {
  if (signal.aborted) return;
  await listJobs(list).catch((problem) => list.replaceChildren(notice(problem)));
  if (!signal.aborted) timer = setTimeout(pollJobs, POLL_MS, list, signal);
}

async function listJobs(list) {
  const { jobs } = await getJson(`v1/admin/jobs?limit=${JOBS_SHOWN}`);
  if (!jobs.length) {
    list.replaceChildren(el("p", { class: "dim" }, "No jobs yet."));
    return;
  }
  const rows = jobs.map((job) => [stateBadge(job),
    el("a", { href: `#/train/${job.id}`, "aria-label": `${job.kind} of ${job.model}, ${job.id}` }, job.kind),
    job.model, job.version ?? "", job.state === "running" ? progressText(job.progress) : moment(job.created)]);
  const focused = list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  list.replaceChildren(table("Jobs", ["State", "Kind", "Model", "Version", "When"], rows, [3]));
  if (focused) list.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}

/** Return the form that submits a training job. */
function trainForm(files) {
  const names = el("datalist", { id: "model-names" }, models.list.map((model) => el("option", { value: model.name })));
  const model = el("input", { id: "train-model", list: "model-names", required: true, value: models.name, pattern: "[a-z0-9][a-z0-9._\\-]{0,62}", autocomplete: "off" });
  const data = dataField("Training data", "train-data", files, { accept: ROWS, hint: 'One object a line: {"text": "...", "labels": ["..."]}; or a table.' });
  const valid = dataField("Measure on", "train-valid", files, { accept: ROWS, others: [["split", "a fifth of the rows, kept out of the training"], ["none", "nothing: no figures, no thresholds"]] });
  const columns = columnFields();
  data.onChange((name) => (columns.node.hidden = !TABLE.test(name)));
  const parameters = parameterFields();
  const rule = ruleFields();
  const said = el("div", { role: "status" });
  const button = el("button", { class: "primary", id: "train-submit" }, "Train");
  const submit = async (event) => {
    event?.preventDefault();
    button.disabled = true;
    try {
      const request = await requestOf({ model, data, valid, columns, parameters, rule }, said);
      said.replaceChildren(el("p", {}, "Submitting …"));
      const job = await sendJson("POST", "v1/admin/training-jobs", request);
      said.replaceChildren();
      location.hash = `#/train/${job.id}`;
    } catch (problem) {
      said.replaceChildren(notice(problem, problem.isAboutKey ? submit : null));
    } finally {
      button.disabled = false;
    }
  };
  return el("form", { class: "card", onsubmit: submit },
    el("div", { class: "fields" }, field("Model", model), names, el("p", { class: "dim help" }, "A new name makes a new model; one that is there gets a new version.")),
    data.node, columns.node, valid.node, parameters.node, rule.node, el("div", { class: "row" }, button), said);
}

async function requestOf({ model, data, valid, columns, parameters, rule }, said) {
  const name = await data.name(said);
  const measured = valid.choice();
  const request = { model: model.value.trim(), ...parameters.values(), data: name, ...columns.values(name), ...rule.values(measured !== "none") };
  if (measured === "split") request.split = SPLIT_SHARE;
  else if (measured !== "none") request.valid = await valid.name(said);
  if (measured !== "none") request.thresholds = { objective: "instance" };
  return request;
}

function columnFields() {
  const text = el("input", { placeholder: "text" });
  const labels = el("input", { placeholder: "labels" });
  const separator = el("input", { placeholder: "the service's choice" });
  const weight = el("input", { placeholder: "none" });
  const node = el("div", { class: "fields" }, field("Column of the text", text), field("Column of the labels", labels), field("Between two labels", separator), field("Column of the weights", weight));
  const values = (name) => (TABLE.test(name) ? {
    ...(text.value && { text_column: text.value.split(",").map((one) => one.trim()) }),
    ...(labels.value && { label_column: labels.value.trim() }),
    ...(separator.value && { label_separator: separator.value }),
    ...(weight.value && { weight_column: weight.value.trim() }),
  } : {});
  return { node, values };
}

/** Return fields for the trainer and its parameters, from the schemas of the OpenAPI document. */
function parameterFields() {
  const trainers = Object.keys(schemas.trainers);
  const trainer = el("select", { id: "trainer" }, trainers.map((name) => el("option", { value: name }, name)));
  const kind = el("select", {}, el("option", { value: "" }, "as the data needs"), Object.keys(schemas.features).map((one) => el("option", { value: one }, one)));
  const about = el("p", { class: "dim help" });
  const own = el("div", {});
  const features = el("div", {});
  let forms = [];
  const update = () => {
    const chosen = schemas.trainers[trainer.value];
    about.textContent = `${chosen.about}.`;
    forms = [schemaForm(chosen.parameters), ...(kind.value ? [schemaForm(schemas.features[kind.value], "features.")] : [])];
    own.replaceChildren(forms[0].node);
    features.replaceChildren(...(forms[1] ? [forms[1].node] : []));
  };
  for (const input of [trainer, kind]) input.addEventListener("input", update);
  trainer.value = trainers.includes(TRAINER_FIRST) ? TRAINER_FIRST : trainers[0];
  update();
  const values = () => ({
    trainer: trainer.value,
    parameters: Object.assign(kind.value ? { "features.kind": kind.value } : {}, ...forms.map((form) => form.values())),
  });
  return {
    node: el("div", {}, el("div", { class: "fields" }, field("Trainer", trainer), about),
      el("details", { id: "parameters" }, el("summary", {}, "Parameters (their defaults are good)"), own,
        el("div", { class: "fields" }, field("Features", kind)), features)),
    values,
  };
}

/** Return fields for what happens to the new version. */
function ruleFields() {
  const choice = (value, text, checked) => {
    const input = el("input", { type: "radio", name: "rule", value, checked });
    const [label] = field(text, input);
    return el("div", { class: "row" }, input, label);
  };
  const metric = el("select", { "aria-label": "Figure" }, METRICS.map((one) => el("option", { selected: one === "P@5" }, one)));
  const change = el("input", { type: "number", step: "any", value: "-0.2", "aria-label": "Least change, in percent points" });
  const node = el("fieldset", { id: "rule" }, el("legend", {}, "When it is trained"),
    choice("rule", "Let it answer (latest) if it is about as good or better", true),
    el("div", { class: "row" }, metric, el("span", { class: "dim" }, "changes by at least"), change),
    choice("always", "Let it answer in any case", false),
    choice("keep", "Only keep it: I look first", false));
  const values = (isMeasured) => {
    const chosen = node.querySelector("input:checked").value;
    if (chosen === "keep") return { promotion: { alias: null } };
    if (chosen === "always" || !isMeasured) return {};
    return { promotion: { alias: "latest", if: [{ metric: metric.value, least_change: change.valueAsNumber || 0 }] } };
  };
  return { node, values };
}
