// Requests to the service. The key is kept for this tab alone, and goes into the header only.

const STORED = "xylem-key";
export const SECONDS_MAX = 60;

/** Why a request has no answer: `code` as in /docs, `status` 0 where the server does not answer. */
export class Problem extends Error {
  constructor(status, code, detail, errors = []) {
    super(detail);
    Object.assign(this, { status, code, errors });
  }

  get isAboutKey() {
    return this.status === 401 || this.status === 403;
  }

  get isServerGone() {
    return this.status === 0;
  }
}

export const key = {
  get: () => sessionStorage.getItem(STORED) ?? "",
  set(text) {
    if (!/^[\x21-\x7e]{1,4096}$/.test(text)) throw new Problem(422, "bad-key", "A key has no spaces or accents.");
    sessionStorage.setItem(STORED, text);
  },
  forget: () => sessionStorage.removeItem(STORED),
};

export const url = (path) => new URL(path, document.baseURI).href;

/** Return the path of a model, of a version (`version:3`), or of an alias (`alias:latest`). */
export function modelPath(model, ref = "") {
  const [kind, value] = ref.split(":");
  const rest = { version: `/versions/${value}`, alias: `/aliases/${encodeURIComponent(value)}` }[kind] ?? "";
  return `v1/models/${encodeURIComponent(model)}${rest}`;
}

/** Return the path of what admins see and do of a model. */
export const adminPath = (model) => `v1/admin/models/${encodeURIComponent(model)}`;

export function headers(more = {}) {
  const text = key.get();
  return text ? { authorization: `Bearer ${text}`, ...more } : more;
}

/** Return the fetched response. Throws a Problem for any that is none of 2xx, and has not the status `accepts`. */
export async function ask(path, { method = "GET", body, signal, more, accepts } = {}) {
  const isJson = body !== undefined;
  const patience = AbortSignal.timeout(SECONDS_MAX * 1000);
  let response;
  try {
    response = await fetch(url(path), {
      method,
      body: isJson ? JSON.stringify(body) : undefined,
      headers: headers({ ...(isJson && { "content-type": "application/json" }), ...more }),
      signal: signal ?? patience,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "no-answer", "The server does not answer.");
  }
  if (response.ok || response.status === accepts) return response;
  throw await problemOf(response);
}

async function problemOf(response) {
  let said = {};
  try {
    said = await response.json();
  } catch {
    // a proxy's page, or nothing
  }
  const { code = `http-${response.status}`, detail = response.statusText, errors = [] } = said ?? {};
  return new Problem(response.status, String(code), String(detail || `status ${response.status}`), errors);
}

export const getJson = async (path, options) => (await ask(path, options)).json();
export const sendJson = (method, path, body) => getJson(path, { method, body });

/** Upload a file; `onProgress` is called with the share that has been sent. XMLHttpRequest tells of it, fetch does not. */
export function upload(path, file, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", url(path));
    for (const [name, value] of Object.entries(headers())) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => onProgress(event.lengthComputable ? event.loaded / event.total : 0);
    request.onerror = () => reject(new Problem(0, "no-answer", "The upload broke off."));
    request.onload = () => {
      let said = {};
      try {
        said = JSON.parse(request.responseText);
      } catch {
        // no JSON: the status tells
      }
      if (request.status < 300) resolve(said);
      else reject(new Problem(request.status, said.code ?? "http-error", said.detail ?? `status ${request.status}`));
    };
    request.send(file);
  });
}
