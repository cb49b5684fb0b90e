// A field for a data file: one of the service, or one of this computer, which is uploaded.

import { upload } from "./api.js";
import { bytes, el, field } from "./dom.js";

const UPLOAD = "";

/**
 * Return fields for a data file: one that is there, or one that is uploaded when it is needed.
 *
 * says    what the file is
 * files   of the service: [{name, bytes}]
 * accept  the suffixes of files of this computer
 * others  choices that are no files: [[value, text]]
 * hint    what stands below the field until a file is chosen
 */
export function dataField(says, id, files, { accept, others = [], hint = "" }) {
  const select = el("select", { id }, others.map(([value, text]) => el("option", { value }, text)),
    el("option", { value: UPLOAD }, "a file of this computer …"), files.map((file) => el("option", { value: `file:${file.name}` }, `${file.name} (${bytes(file.bytes)})`)));
  const file = el("input", { type: "file", id: `${id}-file`, accept, "aria-label": `${says}: a file of this computer` });
  const help = el("p", { class: "dim help" });
  let changed = () => {};
  const nameOf = () => (select.value === UPLOAD ? uploadName(file.files[0]) : select.value.replace(/^file:/, ""));
  const update = () => {
    file.hidden = select.value !== UPLOAD;
    const replaces = !file.hidden && files.some((one) => one.name === nameOf());
    help.textContent = replaces ? `This replaces the file ${nameOf()} of the service.` : "";
    changed(nameOf());
  };
  for (const input of [select, file]) input.addEventListener("input", update);
  update();
  help.textContent = hint;
  return {
    node: el("div", { class: "fields" }, field(says, select), el("span", {}), file, help),
    choice: () => select.value,
    onChange: (then) => {
      changed = then;
      then(nameOf());
    },
    async name(said) {
      if (select.value !== UPLOAD) return nameOf();
      if (!file.files.length) throw Object.assign(new Error(`${says}: choose a file.`), { errors: [] });
      const bar = el("progress", { max: 1, value: 0, "aria-label": "Upload" });
      said.replaceChildren(el("p", {}, `Uploading ${file.files[0].name} …`), bar);
      await upload(`v1/admin/data/${encodeURIComponent(nameOf())}`, file.files[0], (share) => (bar.value = share));
      return nameOf();
    },
  };
}

/** Return the name under which a file is kept: letters, digits, '.', '_' and '-'. */
function uploadName(file) {
  return (file?.name ?? "").replace(/[^A-Za-z0-9._-]/g, "_").replace(/^[.-]/, "_").slice(-128);
}

/** A service without a directory for data says so when a file is asked for. */
export function withoutData(problem) {
  if (problem.isAboutKey || problem.isServerGone) throw problem;
  return { files: [], problem };
}
