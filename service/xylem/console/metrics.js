// Prometheus's text format -> figures. Labels that are not asked for are summed over.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const PAIR = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** Return the samples of a text: {name, labels, value}. */
export function samples(text) {
  return text.split("\n").map((line) => LINE.exec(line)).filter(Boolean).map(([, name, labels, value]) => ({
    name,
    labels: Object.fromEntries([...(labels ?? "").matchAll(PAIR)].map((pair) => [pair[1], pair[2]])),
    value: Number(value.replace("Inf", "Infinity")),
  }));
}

/** Return the sum of the samples of a name whose labels `fits` takes. */
export const total = (found, name, fits = () => true) =>
  found.filter((sample) => sample.name === name && fits(sample.labels)).reduce((sum, sample) => sum + sample.value, 0);

/** Return a histogram's buckets, [{most, n}] ascending: how many took at most so long, and longer than the one before. */
export function histogram(found, name, fits = () => true) {
  const upTo = new Map();
  for (const sample of found) {
    if (sample.name !== `${name}_bucket` || !fits(sample.labels)) continue;
    const most = Number(sample.labels.le.replace("+Inf", "Infinity"));
    upTo.set(most, (upTo.get(most) ?? 0) + sample.value);
  }
  const bounds = [...upTo.keys()].sort((one, other) => one - other);
  return bounds.map((most, i) => ({ most, n: upTo.get(most) - (i ? upTo.get(bounds[i - 1]) : 0) }));
}

/** Return the bound below which a share of a histogram lies, null of an empty one. */
export function quantile(buckets, share) {
  const all = buckets.reduce((sum, bucket) => sum + bucket.n, 0);
  let sum = 0;
  for (const { most, n } of buckets) {
    sum += n;
    if (all && sum >= share * all) return most;
  }
  return null;
}
