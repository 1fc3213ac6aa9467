// The corner of the header that says who one is. The token is asked for once, and stays in this tab.

import { makeField, showForm } from "./dialog.js";
import { make, setAttribute, setText } from "./dom.js";
import { dropToken, exchange, hasToken, looksLikeToken } from "./key.js";
import { learnMe, onMe, role, user } from "./me.js";

const WRONG = "This is not a token of this server. It is in the file “token” in the server's home.";

let reconnect = () => {};
let place = null;

/** Draws the corner in `element`; `connect` opens the stream again as whoever one is then. */
export function drawAccount(element, connect) {
  reconnect = connect;
  place = element;
  const button = make("button", "quiet");
  button.id = "sign";
  setAttribute(button, "type", "button");
  button.addEventListener("click", () => (hasToken() ? leave() : enter()));
  element.replaceChildren(make("span", "who small"), button);
  onMe(update);
  update();
}

function update() {
  const [who, button] = place.children;
  setText(who, [hasToken() ? user() : null, role()].filter(Boolean).join(" · "));
  setText(button, hasToken() ? "Sign out" : "Sign in");
  setAttribute(button, "title", hasToken() ? "forget the token of this tab; it still reads" : "enter the token, to change things");
}

/** Learns who one is; a token that is not valid any more is forgotten. */
export async function refreshAccount() {
  try {
    await learnMe();
  } catch {
    if (hasToken()) leave();
  }
}

function leave() {
  dropToken();
  refreshAccount();
  reconnect();
}

function enter() {
  const field = makeField("Token", { type: "password", autocomplete: "off", spellcheck: "false", required: "" }, "It stays in this tab, and is forgotten when the tab is closed.");
  return showForm({
    title: "Sign in",
    fields: [field],
    action: "Sign in",
    act: async (form) => {
      const token = form.querySelector("input").value.trim();
      const response = looksLikeToken(token) ? await exchange(token) : { status: 401 };
      if (response?.status === 401) throw new Error(WRONG);
      if (response) throw new Error(`The server refused: status ${response.status}.`);
      await refreshAccount();
      reconnect();
    },
  });
}
