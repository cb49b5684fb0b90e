// Thresholds of labels, read some hundreds at a time and kept until the epoch changes.

import { getJson, modelPath } from "./api.js";

const PAGE_LABELS = 500;
const PAGES_MAX = 64;

let keptFor = "";
let pages = new Map();

/** Return {threshold, hits, marks} by id for some labels of a version; empty while it has no thresholds. */
export async function thresholdsOf(model, version, epoch, ids) {
  const found = new Map();
  if (epoch === null) return found;
  const wanted = `${model} ${version} ${epoch}`;
  if (keptFor !== wanted || pages.size > PAGES_MAX) {
    keptFor = wanted;
    pages = new Map();
  }
  const mine = pages;
  for (const page of new Set(ids.map((id) => Math.floor(id / PAGE_LABELS)))) {
    if (!mine.has(page)) mine.set(page, read(model, version, page));
  }
  for (const id of ids) {
    const page = Math.floor(id / PAGE_LABELS);
    try {
      const label = (await mine.get(page)).find((one) => one.id === id);
      if (label) found.set(id, label);
    } catch (problem) {
      mine.delete(page);
      if (problem.code !== "thresholds-not-tuned") throw problem;
    }
  }
  return found;
}

/** Forget all: they have moved. */
export function forgetThresholds() {
  keptFor = "";
}

async function read(model, version, page) {
  const path = `${modelPath(model, `version:${version}`)}/thresholds?offset=${page * PAGE_LABELS}&limit=${PAGE_LABELS}`;
  return (await getJson(path)).labels;
}
