// The models there are, and which one is chosen, for all pages.

import { getJson, modelPath } from "./api.js";
import { byId, count, el } from "./dom.js";

/** Return the languages that the browser asks for, without their regions. */
const browserLanguages = () => navigator.languages.map((one) => one.toLowerCase().split("-")[0]);

/** `change` is dispatched when another model or version is chosen, or what is known of it has changed. */
export const models = new (class extends EventTarget {
  list = [];
  details = null;
  languages = [];
  #asked = 0;
  #answered = 0;

  get name() {
    return byId("model").value;
  }

  /** Return the languages in which labels are named, the chosen one and then the browser's; "" where they have no names, or are not to have any. */
  get language() {
    const chosen = this.languages.length ? byId("language").value : "";
    const others = browserLanguages().filter((one) => one !== chosen && this.languages.includes(one));
    return chosen && others.length ? [chosen, ...new Set(others), "*"].join(",") : chosen;
  }

  /** Return what is chosen of the model: `alias:latest` or `version:3`. */
  get ref() {
    return byId("version").value;
  }

  /** Return what the manifest says of the version that is chosen, or null. */
  get chosen() {
    const [kind, value] = this.ref.split(":");
    const number = kind === "alias" ? this.details?.aliases[value] : Number(value);
    return this.details?.version_details.find((one) => one.version === number && !one.error) ?? null;
  }

  /** Ask what there is, choose the model `name`, or keep the choice if it is still there, and read its versions. */
  async load(name) {
    const mine = ++this.#asked;
    const found = (await getJson("v1/models")).models.filter((model) => model.versions.length);
    if (mine > this.#answered) [this.list, this.#answered] = [found, mine]; // else a later call has a newer list
    const wanted = name ?? this.name; // of now: another call may have chosen one meanwhile
    const select = byId("model");
    const names = this.list.map((model) => model.name);
    select.replaceChildren(...(names.length ? names : [""]).map((name) => el("option", { value: name }, name || "none yet")));
    select.value = names.includes(wanted) ? wanted : names[0] ?? "";
    await this.describe();
  }

  /** Read the versions of the model that is chosen. */
  async describe() {
    const model = this.name;
    const details = model ? await getJson(modelPath(model)) : null;
    if (model !== this.name) return; // another was chosen meanwhile
    this.details = details;
    const before = this.ref;
    const aliases = Object.entries(details?.aliases ?? {}).map(([alias, version]) => [`alias:${alias}`, `${alias} (version ${version})`]);
    aliases.sort(([one]) => (one === "alias:latest" ? -1 : 1));
    const versions = (details?.versions ?? []).toReversed().map((version) => [`version:${version}`, `version ${version}`]);
    const options = [...aliases, ...versions];
    byId("version").replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
    byId("version").value = options.some(([value]) => value === before) ? before : options[0]?.[0] ?? "";
    await this.#readLanguages(model);
    this.tell();
  }

  /** Read in which languages the labels have names; that of the browser is chosen, or what was chosen before. */
  async #readLanguages(model) {
    const path = `${modelPath(model, this.ref)}/labels?limit=1`;
    const { languages } = this.ref ? await getJson(path).catch(() => ({ languages: [] })) : { languages: [] };
    if (model !== this.name) return;
    this.languages = languages;
    byId("language-field").hidden = !languages.length;
    byId("language").replaceChildren(...languages.map((one) => el("option", {}, one)), el("option", { value: "" }, "no language: as they are"));
    const wanted = [sessionStorage.getItem("xylem-language"), ...browserLanguages(), languages[0], ""];
    byId("language").value = wanted.find((one) => one === "" || languages.includes(one));
  }

  /** Return labels that have a part in themselves or in their names, at most so many: [{label, name}]; null if the server does not say. */
  async find(path, part, most) {
    const query = [`limit=${most}`, `search=${encodeURIComponent(JSON.stringify(part.slice(0, 200).toWellFormed()))}`];
    if (this.language) query.push(`language=${encodeURIComponent(this.language)}`);
    const found = await getJson(`${path}/labels?${query.join("&")}`).catch(() => null);
    return found?.labels ?? null;
  }

  /** Choose an alias or a version of the model, as `ref` says it. */
  choose(ref) {
    byId("version").value = ref;
    this.tell();
  }

  tell() {
    const version = this.chosen;
    byId("model-facts").textContent = version ? `${version.trainer.name}, ${count(version.n_labels)} labels` : "";
    this.dispatchEvent(new Event("change"));
  }
})();
