// Names of labels that a page has without them, as those of corrections: looked up one by one, a few at a time.

import { getJson, modelPath } from "./api.js";
import { name } from "./dom.js";
import { models } from "./models.js";

const AT_ONCE_MAX = 4;
const FOUND_MAX = 20; // labels that contain the one looked for; by name it is the first
const CHARACTERS_MAX = 200; // of a search

let namesOf = "";
let names = new Map(); // promises of names by labels
let running = 0;
const waiting = [];

/** Return an element that says a label of the chosen model: the label itself, and its name in the chosen language once that is there. */
export function namedLabel(label) {
  const node = name(label);
  nameOf(label).then((found) => {
    if (!found) return;
    node.textContent = found;
    node.title = label;
  });
  return node;
}

/** Return the name of a label, null where it has none, or the service does not say. */
async function nameOf(label) {
  if (!models.language || label.length > CHARACTERS_MAX) return null;
  const of = JSON.stringify([models.name, models.language, models.details?.aliases]);
  if (of !== namesOf) [namesOf, names] = [of, new Map()];
  const mine = names;
  if (!mine.has(label)) mine.set(label, inTurn(() => lookUp(label)));
  const found = await mine.get(label);
  if (found === null) mine.delete(label); // label info may come after its version
  return found;
}

async function lookUp(label) {
  const query = `search=${encodeURIComponent(JSON.stringify(label.toWellFormed()))}&order=label&limit=${FOUND_MAX}&language=${encodeURIComponent(models.language)}`;
  const found = await getJson(`${modelPath(models.name)}/labels?${query}`).catch(() => null);
  return found?.labels.find((one) => one.label === label)?.name ?? null;
}

async function inTurn(work) {
  if (running >= AT_ONCE_MAX) await new Promise((resolve) => waiting.push(resolve));
  running++;
  try {
    return await work();
  } finally {
    running--;
    waiting.shift()?.();
  }
}

/** Return the name of a concept in the chosen language, else in any: `names` are lists by language. */
export function nameIn(names) {
  const wanted = models.language.split(",").filter((language) => names[language]?.length);
  return names[wanted[0]]?.[0] ?? Object.values(names).flat()[0] ?? null;
}
