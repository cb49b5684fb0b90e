// A form of a JSON Schema whose values are single: numbers, choices, yes or no, texts.

import { el, field } from "./dom.js";

/**
 * Return {node, values}: fields for the properties of a schema, and what returns the values that differ from
 * their defaults, by name. `prefix` stands before each name.
 */
export function schemaForm(schema, prefix = "") {
  const inputs = new Map();
  const parts = Object.entries(schema.properties ?? {}).map(([name, property]) => {
    const input = inputFor(property);
    inputs.set(prefix + name, [input, property]);
    const [label, made] = field(prefix + name, input);
    const help = el("p", { class: "dim help", id: `${made.id}-help` }, [property.description, rangeOf(property)].filter(Boolean).join("; "));
    made.setAttribute("aria-describedby", help.id);
    return [label, made, help];
  });
  const values = () => Object.fromEntries([...inputs].map(([name, [input, property]]) => [name, valueOf(input, property)])
    .filter(([, value]) => value !== undefined));
  return { node: el("div", { class: "fields" }, parts), values };
}

function inputFor(property) {
  if (property.enum) return select(property.enum.map(String), property.default);
  if (property.type === "boolean") return select(["true", "false"], property.default);
  const number = property.type === "integer" || property.type === "number";
  return el("input", {
    type: number ? "number" : "text",
    min: number ? property.minimum : null,
    max: number ? property.maximum : null,
    step: property.type === "integer" ? 1 : "any",
    placeholder: property.default === null ? "none" : String(property.default ?? ""),
  });
}

function select(choices, standard) {
  return el("select", {}, choices.map((choice) => el("option", { value: choice, selected: choice === String(standard) }, choice)));
}

/** Return the value of a field, undefined for the default. */
function valueOf(input, property) {
  const text = input.value.trim();
  if (text === "" || text === String(property.default)) return undefined;
  if (property.type === "string" || property.enum) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text; // the service says what is wrong with it
  }
}

function rangeOf({ minimum, maximum, type }) {
  if (type !== "integer" && type !== "number") return "";
  if (minimum !== undefined && maximum !== undefined) return `from ${minimum} to ${maximum}`;
  return minimum === undefined ? "" : `at least ${minimum}`;
}
