// What went wrong, said where it happened; where a key is missing, with a field for it.

import { key } from "./api.js";
import { byId, el, field } from "./dom.js";

/** Return an element that says a Problem; `again` is called once there is a key, or by the button. */
export function notice(problem, again) {
  if (problem.isAboutKey) return keyNotice(problem, again);
  const faults = (problem.errors ?? []).filter((fault) => !problem.message.includes(fault.detail)).slice(0, 20).map((fault) => el("li", {}, `${fault.path}: ${fault.detail}`));
  return el("div", { class: "notice bad", role: "alert" },
    el("p", {}, problem.message), faults.length ? el("ul", {}, faults) : null,
    again && el("button", { type: "button", onclick: again }, "Try again"));
}

function keyNotice(problem, again) {
  const had = key.get() !== "";
  const where = "The server's first start shows an admin key; xylem keys create makes others.";
  return el("div", { class: "notice", role: "alert" },
    el("p", {}, had ? "The key was refused. " : "This needs a key. ", el("span", { class: "dim" }, had ? problem.message : where)),
    keyForm(again));
}

/** Return a form for the key; `done` is called once there is another. */
export function keyForm(done) {
  const input = el("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const fault = el("p", { class: "fault", role: "alert" });
  const use = (event) => {
    event.preventDefault();
    try {
      key.set(input.value.trim());
    } catch (problem) {
      fault.textContent = problem.message;
      return;
    }
    input.value = "";
    showKeyState();
    done?.();
  };
  return el("form", { class: "row", onsubmit: use }, field("Key", input), el("button", { class: "primary" }, "Use this key"), fault);
}

/** Show on the page's head whether there is a key. */
export function showKeyState() {
  const button = byId("key-button");
  button.textContent = key.get() ? "Key in use" : "Key";
}

/** Open a dialog about the key; `changed` is called when there is another, or none any more. */
export function openKeyDialog(changed) {
  const forget = () => {
    key.forget();
    showKeyState();
    box.close();
    changed();
  };
  const box = dialog("Key",
    el("p", { class: "dim" }, "It stays in this tab until it is closed, and is sent in a header, never in an address."),
    keyForm(() => {
      box.close();
      changed();
    }),
    key.get() ? el("button", { type: "button", onclick: forget }, "Forget the key in use") : null);
}

/** Open a dialog, which goes when it is closed; return it. */
export function dialog(title, ...children) {
  const heading = el("h2", { id: "dialog-heading" }, title);
  const close = el("button", { type: "button", class: "quiet close", "aria-label": "Close", onclick: () => box.close() }, "×");
  const box = el("dialog", { "aria-labelledby": "dialog-heading", onclose: () => box.remove() },
    el("div", { class: "row between head" }, heading, close), ...children);
  document.body.append(box);
  box.showModal();
  return box;
}

/** Ask before something is done that cannot be undone; `act` does it, and `done` is called after. */
export function confirmation(title, says, verb, act, done) {
  const said = el("div", { role: "status" });
  const submit = async () => {
    try {
      await act();
      box.close();
      await done();
    } catch (problem) {
      said.replaceChildren(notice(problem, problem.isAboutKey ? submit : null));
    }
  };
  const box = dialog(title, ...says.map((text) => el("p", {}, text)), el("button", { type: "button", class: "danger", onclick: submit }, verb), said);
}

/** Put a problem, or nothing, into an element; returns whether there is one. */
export function showProblem(place, problem, again) {
  place.replaceChildren(...(problem ? [notice(problem, again)] : []));
  return Boolean(problem);
}
