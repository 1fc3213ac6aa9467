// The key of this page: it opens reading only, and the browser keeps it for this address and port alone.
//
// A cookie would go to every port of the host, and another user may listen on one.

const NAME = "ullage-page";

export const hasKey = () => localStorage.getItem(NAME) !== null;
export const keepKey = (key) => localStorage.setItem(NAME, key);

/** Fetches what the key opens. */
export function ask(path, options = {}) {
  return fetch(path, { ...options, headers: { Authorization: `Page ${localStorage.getItem(NAME)}` } });
}
