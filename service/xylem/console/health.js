// What is served and how fast: readiness, versions, and how long requests took.

import { ask, Problem } from "./api.js";
import { count, el, moment, svg, table } from "./dom.js";
import { histogram, quantile, samples, total } from "./metrics.js";
import { notice } from "./notice.js";
import { openModels } from "./open_models.js";

const POLL_MS = 5000;
const WIDTH = 640;
const HEIGHT = 190;
const BASE = 160;

export const heading = "Health";

const SERIAL_DIGITS = 8; // of a request's id; what stands before them is the process's
const PROCESSES_MAX = 100;
const ALIASES_MAX = 200; // rows of the table of what is served

let timer = 0;
let shown = false;
let processes = new Map(); // those that answered while this page was shown: {status, served, at} by their ids

/** Show the page, again every few seconds. */
export async function open(section) {
  shown = true;
  if (!section.hasChildNodes()) processes = new Map();
  const ready = section.querySelector("#ready") ?? el("div", { id: "ready" });
  const figures = section.querySelector("#figures") ?? el("div", { id: "figures" });
  const isNew = !ready.isConnected;
  if (isNew) section.replaceChildren(el("h1", {}, "Health"), ready, el("h2", {}, "How long predictions took"), figures);
  await look(ready, figures);
  if (isNew && shown) figures.after(openModels((await readiness()).models.map((served) => served.model).filter((name, i, all) => name !== all[i - 1])));
}

/** Leave the page. */
export function close() {
  shown = false;
  clearTimeout(timer);
}

async function look(ready, figures) {
  clearTimeout(timer);
  const again = () => look(ready, figures);
  await Promise.all([
    show(ready, readinessShown, again),
    show(figures, async () => latency(samples(await (await ask("metrics")).text())), again),
  ]);
  if (shown) timer = setTimeout(again, POLL_MS);
}

/** Show what `make` returns; a problem in its place, unless it is about a key and the field for it has the focus. */
async function show(place, make, again) {
  try {
    place.replaceChildren(...(await make()));
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (!place.contains(document.activeElement)) place.replaceChildren(notice(problem, again));
  }
}

/** Return what /readyz says, which is an answer also where it is not ready. */
export async function readiness() {
  const response = await ask("readyz", { accepts: 503 });
  const said = { models: [], failures: [], ...(await response.json()) }; // without a key it says the status alone
  seen(response.headers.get("x-request-id"), said);
  return said;
}

async function readinessShown() {
  const said = await readiness();
  const good = said.status === "ready";
  const rows = said.models.map((served) => [served.model, served.alias, served.version]);
  const failures = said.failures.map((failure) => el("li", {}, `${failure.model} ${failure.ref}: ${failure.detail}`));
  return [
    el("p", {}, stateBadge(good, said.status), ` ${said.store_error ?? said.waits_for ?? ""}`),
    failures.length ? el("div", { class: "notice bad" }, el("p", {}, "Not served:"), el("ul", {}, failures)) : null,
    rows.length ? table("What is served", ["Model", "Alias", "Version"], rows.slice(0, ALIASES_MAX), [2]) : el("p", { class: "dim" }, "No model yet."),
    rows.length > ALIASES_MAX ? el("p", { class: "dim" }, `The first ${ALIASES_MAX} of ${count(rows.length)} aliases.`) : null,
    el("h2", {}, "Replicas seen"), replicas(),
  ].filter(Boolean);
}

const stateBadge = (good, status) => el("span", { class: `badge ${good ? "good-badge" : "bad-badge"}` }, status);

function seen(requestId, { status, models }) {
  if (!requestId) return;
  const id = requestId.slice(0, -SERIAL_DIGITS);
  if (processes.size >= PROCESSES_MAX && !processes.has(id)) return;
  const served = models.slice(0, ALIASES_MAX).map((one) => `${one.model} ${one.alias} ${one.version}`).join(", ");
  processes.set(id, { status, served, at: Date.now() / 1000 });
}

function replicas() {
  const rows = [...processes].map(([id, { status, served, at }]) => [el("code", {}, id.slice(0, 8)), stateBadge(status === "ready", status), served, moment(at)]);
  const answers = new Set([...processes.values()].map((one) => one.served));
  return el("div", {}, table("Replicas seen", ["Process", "State", "Serves", "Last answer"], rows),
    answers.size > 1 ? el("p", { class: "notice" }, "They do not serve the same versions. One has not looked at the store yet, or cannot open a version.") : null,
    el("p", { class: "dim" }, "Processes that answered this page since it was opened. Behind a load balancer more are seen the longer it stays open."));
}

const isPredict = (labels) => /\/predict$/.test(labels.route ?? "");

function latency(found) {
  const buckets = histogram(found, "xylem_request_seconds", isPredict);
  const n = buckets.reduce((sum, bucket) => sum + bucket.n, 0);
  const seconds = total(found, "xylem_request_seconds_sum", isPredict);
  const facts = [
    ["requests to predict", count(n)], ["mean", n ? milliseconds(seconds / n) : "–"],
    ["half took at most", shownQuantile(buckets, 0.5)], ["99 of 100", shownQuantile(buckets, 0.99)],
    ["instances predicted", count(total(found, "xylem_rows_total"))], ["refused or failed", count(total(found, "xylem_errors_total"))],
  ];
  return [
    el("div", { class: "tiles" }, facts.map(([says, value]) => el("div", { class: "tile" }, el("b", {}, value), says))),
    n ? chart(buckets) : el("p", { class: "dim" }, "Nothing was predicted since this process started."),
    el("p", { class: "dim" }, "Since the start of the process that answered; seen by the server, without the network."),
  ];
}

function milliseconds(seconds) {
  if (seconds === Infinity) return "more than 30 s";
  return seconds < 1 ? `${Number((seconds * 1000).toPrecision(2))} ms` : `${seconds} s`;
}

function shownQuantile(buckets, share) {
  const found = quantile(buckets, share);
  return found === null ? "–" : milliseconds(found);
}

/** Return a bar for each bucket, as high as its count; those above the slowest request are left out. */
function chart(buckets) {
  const last = buckets.findLastIndex((bucket) => bucket.n > 0);
  const bars = buckets.slice(0, Math.max(last + 2, 6));
  const most = Math.max(...bars.map((bucket) => bucket.n));
  const step = WIDTH / bars.length;
  const parts = bars.flatMap(({ most: bound, n }, i) => {
    const height = n ? Math.max(2, ((BASE - 24) * n) / most) : 0;
    const middle = (i + 0.5) * step;
    return [
      svg("rect", { x: middle - step * 0.36, y: BASE - height, width: step * 0.72, height, rx: 2 }),
      n ? svg("text", { x: middle, y: BASE - height - 5, "text-anchor": "middle" }, count(n)) : "",
      svg("text", { x: middle, y: BASE + 16, "text-anchor": "middle" }, bound === Infinity ? "> 30 s" : milliseconds(bound)),
    ];
  });
  const says = bars.filter((bucket) => bucket.n).map((bucket) => `${bucket.n} took at most ${milliseconds(bucket.most)}`).join(", ");
  return el("div", { class: "card" }, svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Requests by duration: ${says}` },
    svg("line", { x1: 0, x2: WIDTH, y1: BASE, y2: BASE }), parts));
}
