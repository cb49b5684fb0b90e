"use strict";

/** Return a row of the table of errors; a problem's `type` leads to it. */
function codeRow([code, problem]) {
  const row = document.createElement("tr");
  row.id = code;
  for (const text of [code, problem.status, problem.title]) {
    row.append(Object.assign(document.createElement("td"), { textContent: text }));
  }
  return row;
}

/** Show the document: the operations by Swagger UI, the codes of errors below. */
async function show() {
  const spec = await (await fetch("openapi.json")).json();
  SwaggerUIBundle({
    spec,
    dom_id: "#operations",
    deepLinking: true,
    defaultModelRendering: "model",
    defaultModelExpandDepth: 3,
    defaultModelsExpandDepth: 0,
    validatorUrl: null,
  });
  document.getElementById("codes").append(...Object.entries(spec["x-problems"]).map(codeRow));
  document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

/** Let Swagger UI be as dark as the reader's screen. */
function followScreen(dark) {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
}

const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", followScreen);
followScreen(dark);
show();
