// What a model with a recipe learns: the next run, its versions, corrections, concepts of the service's own, and its vocabulary.

import { adminPath, getJson, modelPath, Problem } from "./api.js";
import { concepts } from "./concepts.js";
import { corrections } from "./corrections.js";
import { byId, el } from "./dom.js";
import { hasEnded } from "./events.js";
import { showJob } from "./job.js";
import { models } from "./models.js";
import { nextRun } from "./next_run.js";
import { newVocabulary } from "./new_vocabulary.js";
import { notice, showProblem } from "./notice.js";
import { runs } from "./runs.js";

const SERVED_MS_MAX = 60_000;
const LOOK_MS = 500;

export const heading = "Learning";

let place = null;
let asked = 0;
let shown = null; // {model, refresh} of the model that is shown
let followed = null; // {pane, controller} of the job that is shown

/** Show the page. */
export async function open(section) {
  place = section;
  models.addEventListener("change", load);
  await load();
}

/** Leave the page. */
export function close() {
  models.removeEventListener("change", load);
  unfollow();
  shown = null;
  asked++;
}

/** Show the chosen model; if it is shown already, read anew what may have changed, and let forms and the job be. */
async function load() {
  const model = models.name;
  const mine = ++asked;
  if (!model) {
    place.replaceChildren(el("h1", {}, heading), el("p", {}, "There is no model yet: ", el("a", { href: "#/train" }, "train one"), "."));
    return;
  }
  const isNew = shown?.model !== model;
  const title = el("h1", {}, `Learning of ${model}`);
  if (isNew) {
    unfollow();
    shown = null;
    place.replaceChildren(title, el("p", { class: "dim", role: "status" }, "Reading what it has learnt …"));
  }
  try {
    const state = await getJson(`${adminPath(model)}/learning`);
    if (mine !== asked) return;
    showProblem(byId("notice"), null);
    if (isNew || Boolean(state.recipe) !== shown.hasRecipe) show(model, title, state);
    else await shown.refresh(state);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (mine !== asked) return;
    if (shown && (problem.isServerGone || problem.status >= 500)) { // forms keep what was typed
      showProblem(byId("notice"), problem, load);
      return;
    }
    unfollow();
    shown = null;
    place.replaceChildren(title, notice(problem, load));
  }
}

function show(model, title, state) {
  const base = adminPath(model);
  const tools = { base, model, follow };
  const sent = corrections(tools, load);
  const parts = state.recipe ? [nextRun(tools, state), runs(state), sent, concepts(tools, state), newVocabulary(tools, state)] : [sent];
  place.replaceChildren(title, state.recipe ? "" : withoutRecipe(model), ...parts.map((part) => part.node));
  for (const part of parts) part.start?.();
  shown = { model, hasRecipe: Boolean(state.recipe), refresh: (now) => Promise.all(parts.map((part) => part.refresh(now))) };
  if (state.job && state.recipe) parts[0].show(state.job.id);
}

/** Show a job in an element, live; that which was shown before goes. `ended` takes the job, where it publishes no version. */
function follow(id, pane, ended = null) {
  unfollow();
  const controller = new AbortController();
  followed = { pane, controller };
  showJob(id, pane, controller.signal, (job) => {
    if (!hasEnded(job)) return;
    if (ended) {
      ended(job);
      return;
    }
    load();
    if (job.state === "succeeded") chooseServed(job, controller.signal);
  });
}

/** Read the models once more when the version of a job is served, which is a moment after the job has ended. */
async function chooseServed({ model, version }, signal) {
  const end = Date.now() + SERVED_MS_MAX;
  while (!signal.aborted && Date.now() < end) {
    const details = await getJson(modelPath(model)).catch(() => null);
    if (signal.aborted) return;
    if (details?.versions.includes(version)) {
      await models.load().catch(() => {}); // what is shown stays
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

function unfollow() {
  followed?.controller.abort();
  followed?.pane.replaceChildren();
  followed = null;
}

const withoutRecipe = (model) => el("div", { class: "notice", id: "no-recipe" },
  el("p", {}, "This model has no recipe, so nothing is learnt by itself. A recipe says from which files a model learns. This command makes one, and a version that was learnt by it:"),
  el("pre", {}, `xylem learn ${model} --vocabulary FILE.ttl --data DOCUMENTS.jsonl --language en`),
  el("p", { class: "dim" }, "On the service a recipe is set with PUT ", el("code", {}, `/${adminPath(model)}/recipe`), ". The page ", el("a", { href: "#/train" }, "Train"), " trains without one."));
