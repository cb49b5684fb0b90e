// Another file for the vocabulary: first a job says what is new, changed and gone, then another one publishes a version with it.

import { getJson, sendJson } from "./api.js";
import { dataField, withoutData } from "./data_field.js";
import { count, el, name } from "./dom.js";
import { notice } from "./notice.js";

const VOCABULARIES = /\.(ttl|rdf|xml|nt|n3|jsonld|json|csv|tsv)(\.gz)?$/;
const SUFFIXES = ".ttl,.rdf,.xml,.nt,.n3,.jsonld,.json,.csv,.tsv,.gz";

/** Return the part of the page about the vocabulary: {node, start, refresh}. */
export function newVocabulary({ base, model, follow }, state) {
  const form = el("form", { class: "card", onsubmit: look });
  const said = el("div", { role: "status", id: "vocabulary-said", tabindex: "-1" });
  const pane = el("div", { id: "vocabulary-job" });
  const now = el("p", {});
  let recipe = state.recipe;
  let file = null;

  function refresh(fresh) {
    ({ recipe } = fresh);
    now.replaceChildren("The recipe reads ", el("code", {}, recipe.vocabulary), ".");
  }

  async function start() {
    try {
      const { files } = await getJson("v1/admin/data").catch(withoutData);
      file = dataField("Vocabulary", "vocabulary-file", files.filter((one) => VOCABULARIES.test(one.name)), { accept: SUFFIXES, hint: "A SKOS file, or a table of URIs and names." });
      form.replaceChildren(file.node, el("button", { id: "vocabulary-look" }, "See what changes"));
    } catch (problem) {
      form.replaceChildren(notice(problem, start));
    }
  }

  async function look(event) {
    event?.preventDefault();
    pane.replaceChildren();
    try {
      const vocabulary = await file.name(said);
      const job = await sendJson("POST", "v1/admin/vocabulary-jobs", { model, vocabulary, compare: true });
      said.replaceChildren(el("p", { class: "dim" }, "A job reads the vocabulary …"));
      follow(job.id, pane, ({ state: end, result }) => {
        if (end === "succeeded") pane.replaceChildren(); // else it shows why not
        said.replaceChildren(...(end === "succeeded" ? [...changesOf(result), useButton(vocabulary)] : []));
      });
    } catch (problem) {
      said.replaceChildren(notice(problem, problem.isAboutKey ? look : null));
    }
  }

  const useButton = (vocabulary) => el("button", { type: "button", class: "primary", id: "vocabulary-submit", onclick: () => replace(vocabulary) }, `Use ${vocabulary} from now on`);

  /** Let the recipe name the file, so that the next run does not bring the old one back, and publish a version with it. */
  async function replace(vocabulary) {
    try {
      if (recipe.vocabulary !== vocabulary) await sendJson("PUT", `${base}/recipe`, { ...recipe, vocabulary });
      const job = await sendJson("POST", "v1/admin/vocabulary-jobs", { model, vocabulary });
      refresh({ recipe: { ...recipe, vocabulary } });
      said.replaceChildren(el("p", { class: "good" }, "A version with it is being published."));
      said.focus(); // the button is gone
      follow(job.id, pane);
    } catch (problem) {
      said.replaceChildren(notice(problem, problem.isAboutKey ? () => replace(vocabulary) : null));
    }
  }

  refresh(state);
  return {
    node: el("section", { "aria-label": "Another vocabulary" }, el("h2", {}, "Another vocabulary"), now, form, said, pane),
    start,
    refresh,
  };
}

/** Return what is new, changed and gone, as lists that open. */
function changesOf({ n_added: nAdded, n_changed: nChanged, n_removed: nRemoved, added, changed, removed }) {
  const [kinds, total] = [[["new", nAdded, added], ["changed", nChanged, changed], ["gone", nRemoved, removed]], nAdded + nChanged + nRemoved];
  if (!total) return [el("p", {}, "It has the same concepts with the same names.")];
  return [el("p", { id: "vocabulary-changes" }, kinds.map(([says, n]) => `${count(n)} ${says}`).join(", "), ". Corrections with labels that are gone are kept."),
    ...kinds.filter(([, n]) => n).map(([says, n, some]) => el("details", { class: `changes-${says}` }, el("summary", {}, `${count(n)} ${n === 1 ? "concept is" : "concepts are"} ${says}`),
      el("ul", {}, some.map((one) => el("li", {}, el("span", { class: "inline" }, one.old_name ? [name(one.old_name), " → "] : "", name(one.name ?? one.key)), " ", el("span", { class: "dim inline" }, one.name ? name(one.key) : "")))),
      n > some.length ? el("p", { class: "dim" }, `and ${count(n - some.length)} more`) : ""))];
}
