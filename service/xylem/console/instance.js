// What stands in the text field -> the instance of a request.

/** A text that is no instance of its kind, and why. */
export class NoInstance extends Error {}

const HINTS = {
  text: "",
  fields: "",
  features: 'One feature a line, such as "red: 0.5", or a JSON object of names and numbers.',
  indices: 'Ids and values, such as "3:0.5 17:1".',
};

export const hintOf = (kind) => HINTS[kind];

/** Return the kind of instances that a version takes, by its features. */
export function kindOf(version) {
  if (version?.fields?.length) return "fields";
  return { raw: "indices", named: "features" }[version?.features.kind] ?? "text";
}

/** Return the names of the fields of a version: of "title=3" it is "title". */
export const fieldsOf = (version) => (version?.fields ?? []).map((field) => field.replace(/=\d$/, ""));

/** Return the instance, null for an empty field. `texts` has the texts of fields, by name. Throws NoInstance. */
export function instanceOf(kind, text, texts) {
  if (kind === "fields") {
    const filled = Object.entries(texts).filter(([, value]) => value.trim()).map(([name, value]) => [name, value.toWellFormed()]);
    return filled.length ? { fields: Object.fromEntries(filled) } : null;
  }
  if (!text.trim()) return null;
  if (kind === "text") return { text: text.toWellFormed() };
  return kind === "features" ? { features: named(text) } : sparse(text);
}

function named(text) {
  if (text.trim().startsWith("{")) {
    try {
      return JSON.parse(text);
    } catch {
      throw new NoInstance("Expected a JSON object, found none yet.");
    }
  }
  return numbersOf(text);
}

/** Return {name: number} of lines such as "red: 0.5". Throws NoInstance. */
export function numbersOf(text) {
  return Object.fromEntries(text.split("\n").filter((line) => line.trim()).map((line) => {
    const at = line.lastIndexOf(":");
    const value = Number(line.slice(at + 1));
    if (at < 1 || !line.slice(at + 1).trim() || !Number.isFinite(value)) throw new NoInstance(`Expected name: number, found "${line.slice(0, 80)}".`);
    return [line.slice(0, at).trim(), value];
  }));
}

function sparse(text) {
  const pairs = text.trim().split(/[\s,]+/).map((pair) => {
    const found = /^(\d{1,15}):(-?\d+\.?\d*(?:e-?\d{1,3})?)$/i.exec(pair);
    if (!found) throw new NoInstance(`Expected id:value, found "${pair.slice(0, 80)}".`);
    return found;
  });
  return { indices: pairs.map((pair) => Number(pair[1])), values: pairs.map((pair) => Number(pair[2])) };
}
