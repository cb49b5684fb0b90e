"use strict";

/** Return a new element; children are nodes or text, never markup. */
function element(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/** Return the schema that a reference stands for, or the schema itself. */
function resolve(document_, schema) {
  return schema.$ref ? document_.components.schemas[schema.$ref.split("/").pop()] : schema;
}

/** Return a schema's type in a few words. */
function typeOf(document_, schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  const parts = schema.oneOf || schema.anyOf;
  if (parts) return parts.map((part) => typeOf(document_, part)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  const type = [].concat(schema.type || "any").join(" or ");
  return type === "array" && schema.items ? `array of ${typeOf(document_, schema.items)}` : type;
}

/** Return what a schema demands beside its type. */
function boundsOf(schema) {
  const words = {
    minimum: "at least", maximum: "at most", minItems: "items at least", maxItems: "items at most",
    default: "default",
  };
  return Object.keys(words).filter((key) => schema[key] !== undefined)
    .map((key) => `${words[key]} ${JSON.stringify(schema[key])}`).join(", ");
}

/** Return the table of an object schema's fields. */
function fieldsTable(document_, schema) {
  const rows = Object.entries(schema.properties || {}).map(([name, field]) => element("tr", {},
    element("td", {}, element("code", {}, name)),
    element("td", {}, typeOf(document_, field)),
    element("td", {}, [field.description, boundsOf(field)].filter(Boolean).join("; "))));
  return element("table", {}, ...rows);
}

/** Return a form that sends the operation's example, or what the reader makes of it. */
function tryIt(path, method, operation, content, media) {
  const form = element("form", {});
  const inputs = {};
  for (const parameter of operation.parameters || []) {
    if (parameter.in !== "path") continue;
    inputs[parameter.name] = element("input", { value: parameter.example || "", required: "" });
    form.append(element("label", {}, parameter.name + " ", inputs[parameter.name]));
  }
  const body = content && element("textarea", { "aria-label": "body", spellcheck: "false" });
  if (body) {
    const example = content[media].example;
    body.value = typeof example === "string" ? example : JSON.stringify(example, null, 2);
    form.append(body);
  }
  const answer = element("pre", { hidden: "" });
  form.append(element("button", {}, "Send"), answer);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    let url = path;
    for (const [name, input] of Object.entries(inputs)) {
      url = url.replace(`{${name}}`, encodeURIComponent(input.value));
    }
    const options = { method: method.toUpperCase() };
    if (body) Object.assign(options, { body: body.value, headers: { "Content-Type": media } });
    answer.hidden = false;
    try {
      const response = await fetch(url, options);
      const text = await response.text();
      let shown = text;
      try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not one JSON value */ }
      answer.textContent = `${response.status}\n${shown}`;
    } catch (error) {
      answer.textContent = String(error);
    }
  });
  return form;
}

/** Return the section of one operation. */
function operationSection(document_, path, method, operation) {
  const section = element("details", { id: operation.operationId },
    element("summary", {}, element("span", { class: "method" }, method.toUpperCase()),
      element("code", {}, path), " ", element("span", { class: "says" }, operation.summary)));
  if (operation.description) section.append(element("p", {}, operation.description));
  const parameters = operation.parameters || [];
  if (parameters.length) {
    section.append(element("h4", {}, "Parameters"), element("table", {}, ...parameters.map((p) => element("tr", {},
      element("td", {}, element("code", {}, p.name)), element("td", {}, p.in),
      element("td", {}, typeOf(document_, p.schema)),
      element("td", {}, [p.description, boundsOf(p.schema)].filter(Boolean).join("; "))))));
  }
  const content = operation.requestBody && operation.requestBody.content;
  const media = content && Object.keys(content)[0];
  if (content) {
    const schema = resolve(document_, content[media].schema);
    section.append(element("h4", {}, `Body, ${media}`), fieldsTable(document_, schema));
  }
  section.append(element("h4", {}, "Answers"));
  for (const [status, response] of Object.entries(operation.responses)) {
    const answer = response.content && Object.values(response.content)[0];
    section.append(element("p", {}, element("b", {}, status), " ", response.description || ""));
    if (answer && answer.schema && status < 300) section.append(fieldsTable(document_, resolve(document_, answer.schema)));
    if (answer && answer.example) {
      const example = typeof answer.example === "string" ? answer.example : JSON.stringify(answer.example, null, 2);
      section.append(element("pre", {}, example));
    }
  }
  section.append(element("h4", {}, "Try it"), tryIt(path, method, operation, content, media));
  return section;
}

async function main() {
  const document_ = await (await fetch("/openapi.json")).json();
  document.getElementById("title").textContent = `${document_.info.title} ${document_.info.version}`;
  document.getElementById("description").textContent = document_.info.description;
  const operations = document.getElementById("operations");
  for (const [path, item] of Object.entries(document_.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      operations.append(operationSection(document_, path, method, operation));
    }
  }
  const codes = document.getElementById("codes");
  for (const [code, problem] of Object.entries(document_["x-problems"])) {
    codes.append(element("tr", { id: code }, element("td", {}, element("code", {}, code)),
      element("td", {}, String(problem.status)), element("td", {}, problem.title)));
  }
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target) target.scrollIntoView();
  if (target && target.tagName === "DETAILS") target.open = true;
}

main();
