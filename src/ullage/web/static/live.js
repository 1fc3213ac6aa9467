// Follows the server's overviews (server-sent events). When the connection is lost it tries again until it is back.

import { readEvents } from "./events.js";
import { ask } from "./key.js";

// The server sends an overview every 5 s even if nothing changed: a longer silence is a lost connection.
const SILENCE_MS = 15_000;
const AGAIN_MS = 2_000;
const MOST_SESSIONS = 300;

let stop = new AbortController();
let silence = null;
let again = null;

/** Calls `take` with each overview, and `show` with the state of the connection: live, lost or closed (not admitted). */
export function follow(take, show) {
  async function connect() {
    stop.abort();
    clearTimeout(again);
    const mine = (stop = new AbortController());
    expect();
    let status = null;
    try {
      const answer = await ask(`/v1/live?sessions=${MOST_SESSIONS}`, { signal: mine.signal });
      status = answer.status;
      if (answer.ok) await readEvents(answer.body, (name, data) => name === "overview" && receive(JSON.parse(data)));
    } catch {
      // The connection was lost, or given up for a new one.
    }
    if (mine === stop) lose(status);
  }

  function receive(overview) {
    show("live");
    expect();
    take(overview);
  }

  function expect() {
    clearTimeout(silence);
    silence = setTimeout(() => {
      show("lost");
      connect();
    }, SILENCE_MS);
  }

  function lose(status) {
    clearTimeout(silence);
    show(status === 401 ? "closed" : "lost");
    again = setTimeout(connect, AGAIN_MS);
  }

  connect();
  return connect;
}
