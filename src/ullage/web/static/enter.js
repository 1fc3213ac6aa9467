// The way in: exchanges the token of the link (`/enter#TOKEN`) for the key that opens reading.
//
// A fragment is never sent to a server, so the token is in no log; it also leaves the address bar
// before anything else happens. A link without a good token leads to a field to paste one.

import { exchange, looksLikeToken } from "./key.js";

const state = document.getElementById("state");
const form = document.getElementById("form");
const field = document.getElementById("token");

const ASK = "Open the link that `ullage page` prints, or paste the token from the file “token” in the server's home.";
const WRONG = "This is not the token of this server. It is in the file “token” in the server's home; paste it here.";
const SILENT = "The server does not answer. Is it still running? Try again when it is.";

/** Takes the token out of the address bar and returns it. */
function takeToken() {
  const token = location.hash.slice(1).trim();
  history.replaceState(null, "", location.pathname);
  return token;
}

function ask(sentence) {
  state.textContent = sentence;
  form.hidden = false;
  field.value = "";
  field.focus();
}

/** Why the server said no, in words. */
async function refusal(response) {
  if (response.status === 401) return WRONG;
  const body = await response.json().catch(() => ({}));
  return `The server refused: ${body.message ?? `status ${response.status}`}.`;
}

/** The view that was asked for before the token was. */
function takeReturn() {
  const hash = sessionStorage.getItem("ullage-return") ?? "";
  sessionStorage.removeItem("ullage-return");
  return hash.startsWith("#/") ? `/${hash}` : "/";
}

async function admit(token) {
  if (!looksLikeToken(token)) return ask(token ? WRONG : ASK);
  state.textContent = "One moment…";
  try {
    const response = await exchange(token);
    if (response) return ask(await refusal(response));
    location.replace(takeReturn());
  } catch {
    ask(SILENT);
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  admit(field.value.trim());
});
addEventListener("hashchange", () => location.hash && admit(takeToken()));
admit(takeToken());
