// What this browser may do here: a key that opens reading, kept for this address and port, and the token, kept in this tab.
//
// A cookie would go to every port of the host, and another user may listen on one.

const KEY = "ullage-page";
const TOKEN = "ullage-token";

export const hasKey = () => localStorage.getItem(KEY) !== null || hasToken();
export const keepKey = (key) => localStorage.setItem(KEY, key);

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;
export const keepToken = (token) => sessionStorage.setItem(TOKEN, token);
export const dropToken = () => sessionStorage.removeItem(TOKEN);

/** Whether a text may be a token: visible ASCII without spaces. */
export const looksLikeToken = (text) => /^[\x21-\x7e]+$/.test(text);

/** The header that proves who asks: the token of this tab, or the key. */
export const credentials = () =>
  hasToken() ? `Bearer ${sessionStorage.getItem(TOKEN)}` : `Page ${localStorage.getItem(KEY)}`;

// A browser keeps a page that was left for a return, with what it reads, and has six connections to a server.
let left = new AbortController();
addEventListener("pagehide", () => {
  left.abort();
  left = new AbortController();
});

/** Fetches what the token or the key opens. What only reads ends when the page is left. */
export function ask(path, options = {}) {
  const signal = options.method ? options.signal : AbortSignal.any([left.signal, options.signal].filter(Boolean));
  return fetch(path, { ...options, signal, headers: { Authorization: credentials(), ...options.headers } });
}

/** Exchanges a token for the key that opens reading; returns the response if the server refuses. */
export async function exchange(token) {
  const response = await fetch("/v1/admit", { method: "POST", headers: { Authorization: `Bearer ${token}` } });
  if (!response.ok) return response;
  keepKey((await response.json()).key);
  keepToken(token);
  return null;
}
