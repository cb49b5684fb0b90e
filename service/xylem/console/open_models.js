// The versions that the process which answers has open; an admin opens and closes models here.

import { ask, modelPath, Problem, sendJson } from "./api.js";
import { announce, count, el, field, table } from "./dom.js";
import { notice } from "./notice.js";

const ROWS_MAX = 200;

/** Return a part of a page: the open versions, and a form to open a model. `models` are the names to choose from. */
export function openModels(models) {
  const versions = el("div", { id: "open-versions" });
  const message = el("div", {});
  const input = el("input", { name: "model", list: "models-to-open", required: true, autocomplete: "off" });
  const names = el("datalist", { id: "models-to-open" }, models.slice(0, ROWS_MAX).map((name) => el("option", { value: name })));
  const form = el("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    change(input.value.trim(), "load");
  } }, field("Open a model", input), names, el("button", {}, "Open"));

  /** Open or close a model, then show what is open. */
  async function change(model, verb) {
    try {
      await ask(`${modelPath(model).replace("v1/models", "v2/repository/models")}/${verb}`, { method: "POST" });
      message.replaceChildren();
      announce(verb === "load" ? `${model} is open.` : `${model} is closed.`);
    } catch (problem) {
      fail(problem);
    }
    await refresh();
  }

  function fail(problem) {
    if (!(problem instanceof Problem)) throw problem;
    message.replaceChildren(notice(problem, refresh));
  }

  /** Ask the service which versions are open. */
  async function refresh() {
    try {
      const open = await sendJson("POST", "v2/repository/index", { ready: true });
      versions.replaceChildren(...shown(open));
    } catch (problem) {
      fail(problem);
    }
  }

  function shown(open) {
    if (!open.length) return [el("p", { class: "dim" }, "No model is open.")];
    const rows = open.slice(0, ROWS_MAX).map(({ name, version }) => [name, version,
      el("button", { type: "button", class: "quiet", "aria-label": `Close ${name}`, onclick: () => change(name, "unload") }, "Close")]);
    return [
      table("Open versions", ["Model", "Version", ""], rows, [1]),
      open.length > ROWS_MAX ? el("p", { class: "dim" }, `The first ${ROWS_MAX} of ${count(open.length)} open versions.`) : null,
    ].filter(Boolean);
  }

  refresh();
  return el("div", { id: "open-models" }, el("h2", {}, "Open versions"),
    el("p", { class: "dim" }, "Of the process that answered. A closed model is opened again by the next request that names it."),
    form, message, versions);
}
