// Charts as SVG: what is drawn stands beside them in a table or in words too.

import { el, svg } from "./dom.js";

const WIDTH = 360;
const HEIGHT = 240;
const LEFT = 44;
const RIGHT = 12;
const TOP = 10;
const BOTTOM = 34;
const TOPS = [0.05, 0.1, 0.2, 0.5, 1]; // of thresholds: the least that is above all is the top of the chart

const SCALE_STEP = 10; // percent: a scale of runs begins and ends at such a value
const TICKS_MAX = 12;

const across = (share) => LEFT + share * (WIDTH - LEFT - RIGHT);
const up = (share) => HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);

/** Return an axis's words and lines: `ticks` are [share, text]. */
function frame(says, below, ticks) {
  const lines = [0, 0.5, 1].flatMap((share) => [
    svg("line", { x1: across(0), x2: across(1), y1: up(share), y2: up(share) }),
    svg("text", { x: LEFT - 5, y: up(share) + 4, "text-anchor": "end" }, says(share)),
  ]);
  const words = ticks.map(([share, text, anchor = "middle"]) => svg("text", { x: across(share), y: HEIGHT - BOTTOM + 15, "text-anchor": anchor }, text));
  return [...lines, ...words, svg("text", { x: across(0.5), y: HEIGHT - 4, "text-anchor": "middle" }, below)];
}

const picture = (says, ...parts) => svg("svg", { class: "chart small", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": says }, parts);

/** Return which mark stands for which version. */
export const legend = (names) => el("p", { class: "dim key" }, names.map((name, i) => el("span", { class: "row" },
  svg("svg", { viewBox: "0 0 14 14", width: 14, height: 14, "aria-hidden": "true" }, mark(i, 7, 7, 5)), name)));

const mark = (i, x, y, r) => (i ? svg("rect", { class: "second", x: x - r, y: y - r, width: 2 * r, height: 2 * r })
  : svg("circle", { class: "first", cx: x, cy: y, r }));

/** Return score against the share that is true, a line a version; on the diagonal scores are probabilities. */
export function reliabilityChart(says, versions) {
  const path = (bins) => bins.map(({ mean_score: x, share_true: y }, i) => `${i ? "L" : "M"}${across(x)} ${up(y)}`).join("");
  const lines = versions.flatMap((bins, i) => {
    const most = Math.max(...bins.map((bin) => bin.n), 1);
    return [svg("path", { class: i ? "second line" : "first line", d: path(bins) }),
      ...bins.map((bin) => mark(i, across(bin.mean_score), up(bin.share_true), 2 + 3 * Math.sqrt(bin.n / most)))];
  });
  return picture(says, frame((share) => share.toFixed(1), "score", [[0, "0"], [0.5, "0.5"], [1, "1"]]),
    svg("line", { class: "ideal", x1: across(0), y1: up(0), x2: across(1), y2: up(1) }), lines);
}

/** Return bars of percentages, a group a band: `rows` are [name, value of the first, of the second]. */
export function bandChart(says, below, rows) {
  const step = 1 / rows.length;
  const bars = rows.flatMap(([, ...values], row) => values.map((value, i) => (value === null ? "" : svg("rect", {
    class: i ? "second" : "first", x: across((row + 0.16 + 0.36 * i) * step), y: up(value / 100),
    width: Math.max(0.32 * step * (WIDTH - LEFT - RIGHT), 1), height: up(0) - up(value / 100),
  }))));
  return picture(says, frame((share) => `${100 * share} %`, below, rows.map(([name], row) => [(row + 0.5) * step, name])), bars);
}

/** Return a threshold over time as steps: `points` are {at, threshold}, ascending; `until` is now. */
export function stepChart(says, points, until, textOf) {
  const [first, last] = [points[0].at, Math.max(until, points.at(-1).at)];
  const most = TOPS.find((one) => points.every((point) => point.threshold <= one)) ?? 1;
  const y = (threshold) => up(threshold / most);
  const x = (at) => across(last > first ? (at - first) / (last - first) : 0);
  const steps = points.map(({ at, threshold }, i) => (i ? `H${x(at)}V${y(threshold)}` : `M${x(at)} ${y(threshold)}`)).join("");
  const dots = points.length > 60 ? [] : points.map(({ at, threshold }) => svg("circle", { class: "first", cx: x(at), cy: y(threshold), r: 2.5 }));
  return picture(says, frame((share) => String(share * most), "", [[0, textOf(first), "start"], [1, "now", "end"]]),
    svg("path", { class: "first line", d: `${steps}H${across(1)}` }), dots);
}

/** Return a figure of versions over time: `runs` are [version, {a, b, low, high}], the oldest first; a is that of the version before, 0 if there was none. */
export function runsChart(says, runs) {
  const ends = runs.flatMap(([, { a, b, low, high }]) => [b, a + low, a + high, ...(a ? [a] : [])]);
  const least = Math.max(0, SCALE_STEP * Math.floor(Math.min(...ends) / SCALE_STEP));
  const most = Math.max(least + SCALE_STEP, Math.min(100, SCALE_STEP * Math.ceil(Math.max(...ends) / SCALE_STEP)));
  const x = (i) => across((i + 0.5) / runs.length);
  const y = (value) => up(Math.min(Math.max((value - least) / (most - least), 0), 1));
  const every = Math.ceil(runs.length / TICKS_MAX);
  const ticks = runs.map(([version], i) => [(i + 0.5) / runs.length, String(version)]).filter((_, i) => i % every === 0);
  const aside = Math.min(0.2 / runs.length, 0.02) * (WIDTH - LEFT - RIGHT); // documents differ from run to run, so lines join the two of a run alone
  return picture(says, frame((share) => `${least + share * (most - least)} %`, "version", ticks),
    runs.flatMap(([, { a, b, low, high }], i) => [
      svg("line", { class: "interval", x1: x(i) + aside, x2: x(i) + aside, y1: y(a + low), y2: y(a + high) }),
      a ? svg("path", { class: "first line", d: `M${x(i) - aside} ${y(a)}L${x(i) + aside} ${y(b)}` }) : "",
      a ? mark(1, x(i) - aside, y(a), 3) : "", mark(0, x(i) + aside, y(b), 4)]));
}

/** Return a bar of a share of its width, 0 to 1; what it says stands beside it. */
export const bar = (kind, share) => svg("svg", { class: "bar", viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" },
  svg("rect", { class: "bar-all", y: 3, width: 100, height: 8 }), svg("rect", { class: `bar-${kind}`, y: 3, width: 100 * share, height: 8 }));
