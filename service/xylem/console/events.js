// A job as it changes: server-sent events over fetch, because EventSource cannot send a key.

import { ask, Problem } from "./api.js";

const PAUSE_MS = 1000;
const EVENT_CHARACTERS_MAX = 4_000_000;
const ENDED = new Set(["succeeded", "failed", "cancelled"]);

export const hasEnded = (job) => ENDED.has(job.state);

/** Call `onJob` with a job at each change until it has ended or `signal` says so; a lost connection is taken up again. */
export async function follow(id, onJob, signal, onLost = () => {}) {
  let last = "0";
  let ended = false;
  while (!ended && !signal.aborted) {
    try {
      const response = await ask(`v1/admin/jobs/${encodeURIComponent(id)}/events`, { signal, more: { "last-event-id": last } });
      for await (const event of eventsOf(response.body)) {
        last = event.id ?? last;
        const job = JSON.parse(event.data);
        ended = hasEnded(job);
        onJob(job);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status !== 0 && error.status !== 503) throw error;
      onLost();
    }
    if (!ended) await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

/** Yield the events of a stream of bytes: {id, data}. Lines that begin with a colon are signs of life. */
export async function* eventsOf(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      if (rest.length > EVENT_CHARACTERS_MAX) throw new Problem(0, "bad-answer", "An event is too long.");
      for (const block of blocks) {
        const fields = Object.fromEntries(block.split("\n").filter((line) => !line.startsWith(":")).map((line) => {
          const at = line.indexOf(": ");
          return [line.slice(0, at), line.slice(at + 2)];
        }));
        if (fields.data) yield fields;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
