// Keys and the audit log, for admins.

import { getJson, sendJson } from "./api.js";
import { el, field, moment, table } from "./dom.js";
import { confirmation, notice } from "./notice.js";
import { showText } from "./snippets.js";

const SCOPES = ["predict", "feedback", "metrics", "admin"];
const LIMITS = [["requests_per_second", "Requests a second"], ["rows_per_second", "Rows a second"], ["in_flight", "In flight"]];
const ENTRIES = 50;
const DAY_SECONDS = 86_400;

export const heading = "Keys";

/** Show the page. */
export async function open(section) {
  const { keys } = await getJson("v1/admin/keys");
  const since = new Date(Date.now() - 1000 * DAY_SECONDS).toISOString();
  const { usage } = await getJson(`v1/admin/usage?by=key&from=${since}`);
  const usageOf = new Map(usage.map((line) => [line.key, line]));
  const again = () => open(section);
  const audit = el("div", {});
  section.replaceChildren(el("h1", {}, "Keys"), createForm(again), keyTable(keys, usageOf, again), el("h2", {}, "What admins did"), audit);
  await showAudit(audit);
}

function createForm(again) {
  const named = el("input", { required: true, maxlength: 100, placeholder: "who has it" });
  const days = el("input", { type: "number", min: 1, max: 36_500, placeholder: "for ever" });
  const scopes = SCOPES.map((scope) => el("input", { type: "checkbox", value: scope, checked: scope === "predict" }));
  const patterns = el("input", { maxlength: 1000, placeholder: "all; or shop-* tags" });
  const prefix = el("input", { maxlength: 256, placeholder: "with admin of some models: shop/" });
  const limits = LIMITS.map(([name]) => el("input", { type: "number", min: 0.001, step: "any", placeholder: "no limit", "data-name": name }));
  const said = el("div", { role: "status" });
  const submit = async (event) => {
    event.preventDefault();
    const body = { name: named.value.trim(), scopes: scopes.filter((box) => box.checked).map((box) => box.value) };
    if (patterns.value.trim()) body.models = patterns.value.trim().split(/\s+/);
    if (prefix.value.trim()) body.data_prefix = prefix.value.trim();
    for (const limit of limits) if (limit.value) body[limit.dataset.name] = limit.valueAsNumber;
    if (days.value) body.lifetime_seconds = days.valueAsNumber * DAY_SECONDS;
    try {
      const made = await sendJson("POST", "v1/admin/keys", body);
      await again();
      showNew(made);
    } catch (problem) {
      said.replaceChildren(notice(problem));
    }
  };
  return el("form", { class: "card", onsubmit: submit }, el("h2", {}, "Make a key"),
    el("div", { class: "fields" }, field("Name", named), field("Days", days), field("Models", patterns), field("Data files", prefix)),
    el("div", { class: "fields" }, LIMITS.map(([, heading], i) => field(heading, limits[i]))),
    el("fieldset", {}, el("legend", {}, "It opens"), el("div", { class: "row" }, scopes.map((box) => field(box.value, box).toReversed()))),
    el("button", { class: "primary" }, "Make"), said);
}

const showNew = (made) => showText("The new key", made.key, el("p", {}, "It is shown this once. Keep it now: nothing shows it again."),
  ...made.warnings.map((warning) => el("p", { class: "dim" }, warning)));

function keyTable(keys, usageOf, again) {
  const rows = keys.map((key) => [key.name, el("code", {}, key.id), key.scopes.join(", "), key.models?.join(", ") ?? "all",
    LIMITS.filter(([name]) => key[name] !== null).map(([name, heading]) => `${key[name]} ${heading.toLowerCase()}`).join(", "),
    el("span", { class: `badge ${key.state === "active" ? "good-badge" : ""}` }, key.state), moment(key.created), key.expires ? moment(key.expires) : "never", moment(key.last_used),
    usageOf.get(key.id)?.requests ?? 0, usageOf.get(key.id)?.rows ?? 0,
    key.state === "active" ? el("button", { type: "button", class: "danger", "aria-label": `Revoke… ${key.name} ${key.id}`, onclick: () => openRevoke(key, again) }, "Revoke…") : ""]);
  return keys.length ? table("All keys", ["Name", "Id", "Opens", "Models", "Limits", "State", "Made", "Ends", "Last used", "Requests, 24 h", "Rows, 24 h", ""], rows)
    : el("p", { class: "dim" }, "No keys in the database.");
}

const openRevoke = (key, again) => confirmation(`Revoke the key ${key.name}?`, ["Whoever uses it is refused from now on. This cannot be undone."], "Revoke",
  () => sendJson("DELETE", `v1/admin/keys/${encodeURIComponent(key.id)}`), again);

async function showAudit(place) {
  const rows = [];
  const shown = el("div", {});
  const older = el("button", { type: "button" }, "Older");
  const more = async () => {
    const before = rows.length ? `&before=${rows.at(-1).id}` : "";
    const { entries } = await getJson(`v1/admin/audit?limit=${ENTRIES}${before}`);
    rows.push(...entries);
    older.hidden = entries.length < ENTRIES;
    shown.replaceChildren(rows.length ? table("Audit log", ["When", "Who", "What", "On", "Outcome"],
      rows.map((entry) => [moment(entry.at), entry.who, entry.action, entry.target, entry.outcome])) : el("p", { class: "dim" }, "Nothing yet."));
  };
  older.addEventListener("click", () => more().catch((problem) => shown.replaceChildren(notice(problem, more))));
  place.replaceChildren(shown, older);
  await more();
}
