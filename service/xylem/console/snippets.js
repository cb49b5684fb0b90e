// A request as curl, Python and JSON. The key is never in it: a name that stands for it is.

import { key, modelPath, url } from "./api.js";
import { el } from "./dom.js";
import { dialog } from "./notice.js";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** Return JSON as Python writes the same value. */
export function python(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${python(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}

const WAYS = {
  json: (model, ref, body) => JSON.stringify(body, null, 2),
  curl(model, ref, body) {
    const says = [`curl -s ${quoted(`${url(modelPath(model, ref))}/predict`)}`, "-H 'content-type: application/json'"];
    if (key.get()) says.push('-H "authorization: Bearer $XYLEM_KEY"');
    return [...says, `-d ${quoted(JSON.stringify(body))}`].join(" \\\n  ");
  },
  python(model, ref, { instances, ...options }) {
    const [kind, value] = ref.split(":");
    const which = kind === "alias" ? { alias: value } : { version: Number(value) };
    const chosen = Object.entries({ ...(value === "latest" ? {} : which), ...options }).map(([name, one]) => `, ${name}=${python(one)}`).join("");
    const opened = key.get() ? ', os.environ["XYLEM_KEY"]' : "";
    return [
      ...(key.get() ? ["import os", ""] : []),
      "import xylem",
      "",
      `with xylem.Client(${python(url(""))}${opened}) as client:`,
      `    answer = client.predict(${python(model)}, ${python(instances)}${chosen})`,
      "    for label in answer.predictions[0].labels:",
      '        print(f"{label.score:.2f}  {label.label}")',
    ].join("\n");
  },
};

/** Return a request in one of the ways: curl, python or json. */
export const snippet = (way, model, ref, body) => WAYS[way](model, ref, body);

/** Show a text in a dialog, from where it can be copied. */
export function showText(title, text, ...more) {
  const code = el("pre", { tabindex: "0", "aria-label": title }, text);
  const said = el("span", { role: "status", class: "dim" });
  const copy = async () => {
    said.textContent = (await copied(text, code)) ? "Copied." : "Press Ctrl+C: the text is selected.";
  };
  dialog(title, ...more, code, el("div", { class: "row" }, el("button", { type: "button", class: "primary", onclick: copy }, "Copy"), said));
}

/** Copy a text, where a page may (https, or this machine); else select it. */
async function copied(text, node) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(node);
    return document.execCommand("copy");
  }
}
