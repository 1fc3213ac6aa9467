// Requests to the server. A refusal is an error with the server's own sentence, which names the field and the fix.

import { ask } from "./key.js";

const SILENT = "The server does not answer. Is it still running?";

/** A refusal, or no answer at all (`status` 0). */
export class Refused extends Error {
  constructor(status, body) {
    super(body.message ?? `status ${status}`);
    this.status = status;
    this.code = body.code ?? "";
    this.body = body;
  }
}

/** `/v1/...` of parts, each one escaped. */
export const pathOf = (...parts) => `/v1/${parts.map(encodeURIComponent).join("/")}`;

/** Reads a body, and how many items match where the answer is a page. Empty values of the query are left out. */
export async function read(path, query = {}, signal = undefined) {
  const response = await send(path + queryOf(query), { signal });
  return { body: await response.json(), total: Number(response.headers.get("X-Total-Count")) };
}

/** Changes something; returns the answer, or null if it has no body. */
export async function change(method, path, body = undefined) {
  const sent = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const response = await send(path, { method, ...sent });
  return response.status === 204 ? null : response.json();
}

function queryOf(query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

async function send(path, options) {
  let response;
  try {
    response = await ask(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { message: SILENT });
  }
  if (!response.ok) throw new Refused(response.status, await response.json().catch(() => ({})));
  return response;
}
