// One job: how far it is, its log, what came of it.

import { ask, getJson, Problem, sendJson } from "./api.js";
import { announce, count, decimal, el, facts, moment } from "./dom.js";
import { follow, hasEnded } from "./events.js";
import { readiness } from "./health.js";
import { models } from "./models.js";
import { notice } from "./notice.js";
import { openPromote } from "./versions.js";

const OPENING_MS_MAX = 300_000;
const LOOK_MS = 250;
const FIRST = ["P@1", "P@5", "R@5", "macro_f", "micro_f"];

export const stateBadge = (job) => el("span", { class: `badge ${job.state}` }, job.cancel_asked && !hasEnded(job) ? "being cancelled" : job.state);

/** Return how far a job is, in words. */
export function progressText(progress) {
  if (!progress) return "";
  const { phase, done, total, seconds_left: left } = progress;
  const share = total ? ` ${Math.floor((100 * done) / total)} %` : done ? ` ${count(done)}` : "";
  return `${phase}${share}${left ? `, ${Math.ceil(left)} s left` : ""}`;
}

/** Show a job in an element, live until it ends or `signal` says so; `changed` is called at each new state. */
export async function showJob(id, place, signal, changed) {
  const path = `v1/admin/jobs/${encodeURIComponent(id)}`;
  const head = el("div", { class: "row between" });
  const bar = el("progress", { max: 1, "aria-label": "Progress" });
  const says = el("p", { class: "dim status" });
  const rest = el("div", {});
  const log = el("pre", { tabindex: "0", "aria-label": "Log" });
  const logs = el("details", { ontoggle: () => readLog() }, el("summary", {}, "Log"), log);
  const fault = el("div", {});
  place.replaceChildren(el("section", { class: "card", id: "job", "aria-label": "Job" }, head, bar, says, rest, fault, logs));
  let state = "";

  const readLog = async () => {
    if (!logs.open) return;
    try {
      log.textContent = await (await ask(`${path}/log`)).text();
      log.scrollTop = log.scrollHeight;
    } catch {
      // what is there stays: the next event reads it again
    }
  };
  const act = (method, what) => async () => {
    try {
      await sendJson(method, what);
      if (method === "POST") showJob(id, place, signal, changed);
    } catch (problem) {
      fault.replaceChildren(notice(problem));
    }
  };
  const show = (job) => {
    head.replaceChildren(el("h2", {}, `${job.kind} of ${job.model}`), stateBadge(job));
    bar.hidden = hasEnded(job);
    if (job.progress?.total) bar.value = job.progress.done / job.progress.total;
    else bar.removeAttribute("value");
    says.textContent = hasEnded(job) ? "" : progressText(job.progress) || (job.state === "running" ? "starts" : "waits for a worker");
    rest.replaceChildren(...outcome(job, signal), buttons(job));
    if (job.state !== state) {
      state = job.state;
      announce(`The job ${stateText(job)}`);
      changed(job);
      if (state === "succeeded") models.load().catch(() => {});
    }
    readLog();
  };
  const buttons = (job) => el("div", { class: "row" },
    hasEnded(job) ? null : el("button", { type: "button", class: "danger", onclick: act("DELETE", path) }, "Cancel"),
    job.state === "failed" || job.state === "cancelled" ? el("button", { type: "button", onclick: act("POST", `${path}/retry`) }, "Retry") : null);

  try {
    show(await getJson(path));
    await follow(id, show, signal, () => (says.textContent = "The server does not answer; it is asked again."));
  } catch (problem) {
    fault.replaceChildren(notice(problem, () => showJob(id, place, signal, changed)));
  }
}

const stateText = (job) => ({ queued: "waits", running: "runs", succeeded: "is done", failed: "failed", cancelled: "was cancelled" })[job.state];

/** Return what came of a job: why it failed, its figures, the verdict of its rule, and where to go from here. */
function outcome(job, signal) {
  if (job.state === "failed") return [el("div", { class: "notice bad" }, el("p", {}, job.error ?? "It failed."))];
  if (job.state !== "succeeded") return [];
  if (!job.result?.metrics) return [facts({ Model: job.version === null ? job.model : `${job.model}, version ${job.version}`, Ended: moment(job.ended), ...plain(job.result) })];
  const metrics = Object.entries(job.result?.metrics ?? {}).map(([name, value]) => [name, decimal(value)]);
  const rest = metrics.filter(([name]) => !FIRST.includes(name));
  const first = FIRST.map((name) => metrics.find(([one]) => one === name)).filter(Boolean);
  return [verdict(job, signal), facts({ Model: `${job.model}, version ${job.version}`, Rows: job.result.rows === undefined ? null : count(job.result.rows), Labels: count(job.result.labels ?? 0),
    ...understood(job.result.data), ...Object.fromEntries(first), Ended: moment(job.ended) }),
  ...(job.result.findings ?? []).map((one) => el("div", { class: "notice" }, el("p", {}, `${one.message}. ${one.mend} (${one.code})`))),
  ...(rest.length ? [el("details", {}, el("summary", {}, "More figures"), facts(Object.fromEntries(rest)))] : [])];
}

/** Return what the service has understood of the training rows, as facts. */
function understood(data) {
  if (!data) return {};
  const lacking = [[data.without_text, "text"], ...Object.entries(data.without_fields ?? {}).map(([name, n]) => [n, name]), [data.without_labels, "labels"]].filter(([n]) => n).map(([n, what]) => `${count(n)} without ${what}`);
  return { "Read as": [`${count(data.labels)} labels, ${data.labels_a_row.median} a row (the most: ${count(data.labels_a_row.most)})`, ...lacking].join(", "),
    "Most frequent": data.examples.map(({ label, rows, row }) => `${label} (${count(rows)}, row ${count(row)})`).join(", "),
    ...(data.options.length ? { "Read with": data.options.join(" ") } : {}) };
}

const plain = (result) => Object.fromEntries(Object.entries(result ?? {}).filter(([, value]) => typeof value !== "object").map(([name, value]) => [name, String(value)]));

/**
 * Choose the model of a job, once its version is served; return false when the page was left meanwhile.
 *
 * The service first opens a version. That takes a minute where kernels must be compiled for it.
 */
async function untilServed(job, signal, onWait) {
  const end = Date.now() + OPENING_MS_MAX;
  while (!signal.aborted) {
    await models.load(job.model);
    if (models.name === job.model && models.details?.versions.includes(job.version)) break;
    const { failures } = await readiness();
    const failed = failures.find((one) => one.model === job.model && one.ref === String(job.version));
    if (failed) throw new Problem(503, "model-unavailable", `Version ${job.version} cannot be served: ${failed.detail}`);
    if (Date.now() > end) throw new Problem(503, "timed-out", `Version ${job.version} is not served yet. The page Health tells what is.`);
    onWait(`The service opens version ${job.version}. This may take a minute.`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
  return !signal.aborted;
}

function verdict(job, signal) {
  const { promotion } = job;
  const kept = promotion ? !promotion.promoted : job.request.promotion?.alias === null && job.version > 1;
  const where = promotion?.alias ?? "latest";
  const says = kept ? `Version ${job.version} is kept, and not promoted: ${where} stays as it was.`
    : `Version ${job.version} is promoted: ${where} names it now.`;
  const status = el("div", { role: "status" });
  const see = (page) => async () => {
    status.replaceChildren();
    try {
      if (!await untilServed(job, signal, (text) => status.replaceChildren(el("p", { class: "dim" }, text)))) return;
    } catch (problem) {
      status.replaceChildren(notice(problem, see(page)));
      return;
    }
    models.choose(models.details.aliases[where] === job.version ? `alias:${where}` : `version:${job.version}`);
    location.hash = `#/${page}`;
  };
  return el("div", { class: "notice", id: "verdict" }, el("p", {}, el("b", {}, says)),
    promotion ? el("ul", {}, promotion.reasons.map((reason) => el("li", {}, reason))) : null,
    el("div", { class: "row" }, el("button", { type: "button", class: kept ? null : "primary", onclick: see("predict") }, "Try it"), el("button", { type: "button", onclick: see("versions") }, "Compare"),
      kept ? el("button", { type: "button", class: "primary", onclick: () => openPromote(job.model, job.version, () => models.load()) }, "Promote…") : null), status);
}
