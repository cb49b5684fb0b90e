// Which words of a text added to a label, and which took away.

import { decimal, el, table } from "./dom.js";

export const TEXT_SHOWN_MAX = 20_000;
const STRENGTHS = 4;
const WORDS_LISTED = 8;
const DIVIDED = /[-\u2010\u00ad][^\S\r\n]*[\r\n]\s*(?!\p{Lu}|\p{Lt})(?=\p{L})/u; // as the service reads texts that were set in lines
const WORD = new RegExp(`[\\p{L}\\p{N}_](?:\\u00ad|${DIVIDED.source}|[\\p{L}\\p{N}_])+`, "gu");
const STOP_WORDS = new Set((
  "a an and are as at be but by can for from has have in is it its not of on or that the their these this to was were which will with you your "
  + "als am auf aus bei das dass dem den der des die ein eine einen einer es für im ist mit nicht oder sich sie sind und von wird zu zum zur "
  + "au aux avec ce dans de des du elle en est et il la le les leur ou par pas pour que qui se sont sur un une "
  + "al como con del el en es las lo los más no para por que se sin su una un y o che di e gli i il nel non per sono della delle dei "
  + "aan dat door een het naar niet om te van voor zijn att av den det för från i med och om på som till är af at og er ikke på til "
  + "ei en ja joka jotka kuin mutta myös ne on ovat se sekä tai että"
).split(" "));

/**
 * Return what each feature added to a label's margins, by name, a mean over the trees. The service tells the
 * features of each node that counted most. Of decision trees it is how much a feature decided, not which way.
 */
export function contributionsOf(explanation) {
  const sums = new Map();
  const paths = explanation.trees ?? explanation.leaves ?? [];
  for (const { path } of paths) {
    for (const node of path) {
      for (const { feature, contribution, part } of node.features) {
        const name = part === "vector" ? `(${feature})` : feature; // no word of a text is marked for it
        const added = explanation.trees ? contribution : Math.abs(contribution);
        sums.set(name, (sums.get(name) ?? 0) + added / paths.length);
      }
    }
  }
  return sums;
}

/** Return a word as the service reads it. */
const normal = (text, lowercase) => {
  const whole = text.replace(new RegExp(DIVIDED.source, "gu"), "").replaceAll("\u00ad", "").replace(/[\ufb00-\ufb06]/g, (one) => one.normalize("NFKC"));
  return lowercase ? whole.toLowerCase() : whole;
};

const isStopWords = (feature) => feature.toLowerCase().split(" ").every((word) => STOP_WORDS.has(word));

/** Return the words of a text with their places, and what each added; an n-gram counts for each of its words. */
export function wordsOf(text, contributions, lowercase = true) {
  const words = [...text.matchAll(WORD)].map((found) => ({ start: found.index, text: found[0], added: 0 }));
  const longest = Math.max(1, ...[...contributions.keys()].map((feature) => feature.split(" ").length));
  const read = words.map((word) => normal(word.text, lowercase));
  for (let n = 1; n <= longest; n++) {
    for (let i = 0; i + n <= words.length; i++) {
      const added = contributions.get(read.slice(i, i + n).join(" "));
      if (added) for (let j = i; j < i + n; j++) words[j].added += added / n;
    }
  }
  return words;
}

/** Return elements that show why a label has its score; `text` is null for features. */
export function explained(explanation, text, version) {
  if (explanation.members) return explainedByMembers(explanation, text, version);
  const contributions = contributionsOf(explanation);
  const list = counted(explanation, contributions);
  if (!contributions.size) return [list];
  if (text === null || version?.features.kind === "hashing") {
    const why = text === null ? null : el("p", { class: "dim" }, "This model hashes words: their names are not known.");
    return [why, list].filter(Boolean);
  }
  return [legend(), marked(text, contributions, version), list];
}

/** Return a table of the features that counted most, or a sentence that there is none. */
function counted(explanation, contributions, caption = "What counted most") {
  const listed = [...contributions].map(([feature, added]) => [feature, added, isStopWords(feature)])
    .sort((one, other) => one[2] - other[2] || Math.abs(other[1]) - Math.abs(one[1])).slice(0, WORDS_LISTED); // "and" and the like come last
  if (!listed.length) return el("p", { class: "dim" }, "Nothing in it counted for this label.");
  const says = explanation.trees ? ["Word or feature", "Added"] : ["Word or feature", "Weight in the decision"];
  return table(caption, says, listed.map(([feature, added]) => [
    el("bdi", {}, feature),
    el("span", { class: added < 0 ? "takes-text" : "adds-text" }, `${added < 0 ? "−" : "+"}${decimal(Math.abs(added))}`),
  ]), [1]);
}

/** Return elements that show the names of a label's concept in the text, and what each member of a combined version said. */
function explainedByMembers({ members, names }, text, version) {
  const named = new Set(names.flatMap(({ words }) => words.map((word) => word.toLowerCase())));
  const sums = new Map();
  for (const { explanation } of members) {
    for (const [feature, added] of explanation ? contributionsOf(explanation) : []) sums.set(feature, (sums.get(feature) ?? 0) + added / members.length);
  }
  const listed = names.length ? [table("Names in the text", ["Name", "Kind", "Words of the text"],
    names.map(({ name, kind, words }) => [el("bdi", {}, name), kind, el("bdi", {}, words.join(", "))]))]
    : hasVocabulary(version) && text !== null ? [el("p", { class: "dim" }, "No name of it was found in the text.")] : [];
  const said = members.flatMap(({ member, score, rank, explanation }) => [el("h3", {}, el("bdi", {}, member)),
    el("p", { class: "dim" }, rank ? `Proposed it at place ${rank}, with the score ${decimal(score)}.` : explanation ? "Did not propose it." : "Does not have this label."),
    explanation ? counted(explanation, contributionsOf(explanation), `What counted most for ${member}`) : null]);
  return [...(text === null ? [] : [legend(named.size), marked(text, sums, version, named)]), ...listed, ...said.filter(Boolean)];
}

/** Return whether a combined version looks for names: then its features say how names become words. */
const hasVocabulary = (version) => version?.features.lowercase !== undefined;

function legend(hasNames = false) {
  return el("p", { class: "dim legend" }, el("mark", { class: "adds adds-3" }, "added"), " ", el("mark", { class: "takes takes-3" }, "took away"),
    " to the label's score", hasNames ? [", ", el("mark", { class: "named" }, "a name of it")] : null);
}

/** Return the text with its words marked; `named` are words of names, in lower case. */
function marked(text, contributions, version, named = new Set()) {
  const shown = text.slice(0, TEXT_SHOWN_MAX);
  const words = wordsOf(shown, contributions, version?.features.lowercase ?? true);
  const most = Math.max(...words.map((word) => Math.abs(word.added)), 1e-9);
  const parts = [];
  let at = 0;
  for (const word of words) {
    const strength = Math.round((STRENGTHS * Math.abs(word.added)) / most);
    const isName = named.has(word.text.toLowerCase());
    if (!strength && !isName) continue;
    const kind = word.added < 0 ? "takes" : "adds";
    parts.push(shown.slice(at, word.start));
    parts.push(el("mark", { class: `${strength ? `${kind} ${kind}-${strength}` : ""}${isName ? " named" : ""}`.trim(), title: strength ? decimal(word.added) : null }, word.text));
    at = word.start + word.text.length;
  }
  parts.push(shown.slice(at));
  if (shown.length < text.length) parts.push(" …");
  return el("p", { class: "marked", dir: "auto", tabindex: "0", role: "region", "aria-label": "The text" }, parts);
}
