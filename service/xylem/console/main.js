// Which page is shown (by the address's #/name), which model is chosen, and the key.

import { byId, el } from "./dom.js";
import { models } from "./models.js";
import { openKeyDialog, showKeyState, showProblem } from "./notice.js";
import * as predict from "./predict.js";

const PAGES = ["predict", "versions", "labels", "learning", "train", "keys", "health"];
const RETRY_MS = 2000;
const WITHOUT_MODEL = new Set(["train", "keys", "health"]);

let opened = null; // the code of the page that is shown
let last = "";

/** Return the name of the page of the address, and what follows it: #/train/JOB. */
function place() {
  const [, page, rest = ""] = /^#\/(\w+)(?:\/(.*))?$/.exec(location.hash) ?? [];
  return PAGES.includes(page) ? [page, rest] : ["predict", ""];
}

/** Leave the page that is shown; all but the first are made anew, so that nothing old is shown or sent. */
function leave() {
  opened?.close?.();
  opened = null;
  for (const name of PAGES.slice(1)) byId(`page-${name}`).replaceChildren();
}

/** Show the page of the address; its code comes when it is first opened. */
async function openPage() {
  const [page, rest] = place();
  for (const name of PAGES) byId(`page-${name}`).hidden = name !== page;
  if (page !== last) leave();
  last = page;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${page}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.querySelector(".picker").hidden = WITHOUT_MODEL.has(page);
  byId("version-field").hidden = page === "versions" || page === "learning";
  byId("notice").replaceChildren();
  const code = page === "predict" ? predict : await import(`./${page}.js`);
  if (place()[0] !== page) return; // another was opened meanwhile
  opened = code;
  document.title = `${code.heading} - Xylem`;
  try {
    await code.open(byId(`page-${page}`), rest);
  } catch (problem) {
    const section = byId(`page-${page}`);
    if (!section.hasChildNodes()) section.append(el("h1", {}, code.heading));
    showProblem(byId("notice"), problem, openPage);
  }
}

/** Read the models, then show the page; again when the key has changed. */
async function begin() {
  try {
    await models.load(models.name || (sessionStorage.getItem("xylem-model") ?? ""));
    showProblem(byId("notice"), null);
  } catch (problem) {
    if (problem.status === 0 || problem.status === 503) setTimeout(begin, RETRY_MS); // it starts, or is away
    showProblem(byId("notice"), problem, begin);
    return;
  }
  await openPage();
}

addEventListener("hashchange", openPage);
byId("key-button").addEventListener("click", () => openKeyDialog(begin));
byId("model").addEventListener("change", async () => {
  sessionStorage.setItem("xylem-model", models.name);
  try {
    await models.describe();
  } catch (problem) {
    showProblem(byId("notice"), problem, begin);
  }
});
byId("version").addEventListener("change", () => models.tell());
byId("language").addEventListener("change", () => {
  sessionStorage.setItem("xylem-language", byId("language").value);
  models.tell();
});
showKeyState();
predict.start();
begin();
