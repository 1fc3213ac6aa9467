// Who this tab is to the server, and what it may do there. A button that one may not use is not offered.

import { read, Refused } from "./api.js";
import { hasToken } from "./key.js";

const watchers = new Set();
let me = null;

/** Asks the server who asks. Without a token the tab only reads. */
export async function learnMe() {
  try {
    me = (await read("/v1/me")).body;
  } catch (error) {
    if (!(error instanceof Refused) || error.status === 0) return;
    if (error.status === 401) throw error;
    me = null;
  }
  for (const watch of watchers) watch();
}

/** Calls `watch` when the answer changes. */
export const onMe = (watch) => watchers.add(watch);

export const user = () => me?.user ?? null;

export const role = () => (hasToken() ? (me?.role ?? "token of the server") : "read only");

/** Whether this tab may change something by a route, by its `operationId`; with an owner, what belongs to that owner. */
export const may = (operation, owner = undefined) => hasToken() && mayRead(operation, owner);

/** Whether this browser may read what a route shows to owners and operators only. */
export function mayRead(operation, owner = undefined) {
  if (me === null) return true;
  if (!me.may.includes(operation)) return false;
  return owner === undefined || me.role !== "user" || owner === me.user;
}
