// The next run of a recipe: what waits for it, when it comes, and a button to start it now.

import { sendJson } from "./api.js";
import { count, el, facts, moment } from "./dom.js";
import { notice } from "./notice.js";

const CHANGES = { difference: "the change", low: "the lower end of the 95% interval of the change", high: "the upper end of the 95% interval of the change" };

/** Return the part of the page about the next run: {node, refresh, show}. */
export function nextRun({ model, follow }, state) {
  const says = el("div", { role: "status" });
  const recipe = el("div", {});
  const said = el("div", { role: "status" });
  const pane = el("div", { id: "learn-job" });
  const button = el("button", { type: "button", class: "primary", id: "run-now", onclick: run }, "Run now");

  function refresh({ n_waiting: waiting, schedule, job, recipe: now }) {
    const rows = waiting === 1 ? "1 correction waits" : `${count(waiting)} corrections wait`;
    says.replaceChildren(el("p", { id: "waiting" }, el("b", {}, rows), " for the next run. ", ...when(schedule, waiting)),
      job ? el("p", { class: "dim" }, "A run is under way: ", el("a", { href: `#/train/${job.id}` }, "its job"), ".") : "");
    button.disabled = Boolean(job);
    recipe.replaceChildren(recipeFacts(now));
  }

  async function run() {
    said.replaceChildren();
    button.disabled = true;
    try {
      const { id } = await sendJson("POST", "v1/admin/learn-jobs", { model });
      said.replaceChildren(el("p", { class: "dim" }, "The run is ", el("a", { href: `#/train/${id}` }, `the job ${id}`), "."));
      follow(id, pane);
    } catch (problem) {
      button.disabled = false;
      said.replaceChildren(notice(problem, problem.isAboutKey ? run : null));
    }
  }

  refresh(state);
  return {
    node: el("section", { "aria-label": "Next run" }, el("h2", {}, "Next run"), says, el("div", { class: "row" }, button), said, pane,
      el("details", {}, el("summary", {}, "Recipe"), recipe)),
    refresh,
    show: (id) => follow(id, pane),
  };
}

/** Return when the next run comes, in words. */
function when(schedule, waiting) {
  if (!schedule) return ["No schedule starts it: press the button when you want it."];
  if (schedule.cron) return ["It comes ", schedule.next_at === null ? "by the schedule" : moment(schedule.next_at), ` (${schedule.cron}, in UTC).`];
  const missing = schedule.rows - waiting;
  return [`It comes by itself when ${count(schedule.rows)} wait${missing > 0 ? `: ${count(missing)} are missing` : ""}.`];
}

function recipeFacts(recipe) {
  const rule = recipe.promotion;
  return facts({
    Vocabulary: recipe.vocabulary,
    Language: recipe.language ?? "any",
    Sources: recipe.sources.map(({ file, role }) => `${file} (${role === "members" ? "weak rows" : "documents that teach and judge"})`).join(", "),
    Corrections: [recipe.feedback_days ? `of the last ${count(recipe.feedback_days)} days` : "all that are stored", `each counts ${recipe.feedback_weight}`].join(", "),
    "A new version answers": rule ? `if ${CHANGES[rule.part ?? "high"]} of ${rule.metric} is at least ${rule.least_change}` : "when somebody promotes it",
  });
}
