// The output of one task, as it is written: standard output, standard error, and notes of the server.

import { pathOf } from "../api.js";
import { make, setAttribute, setText } from "../dom.js";
import { readEvents } from "../events.js";
import { ask } from "../key.js";
import { setQuery } from "../router.js";

const AGAIN_MS = 2_000;
const MOST_CHARACTERS = 400_000;

export function makeLog(id) {
  let task = null;
  let stop = new AbortController();
  const title = make("h2", "", "Output of task ", make("span"));
  const state = make("span", "small");
  const leave = make("button", "quiet", "Close output");
  const lines = make("pre", "log");
  const element = make("section", "wide log-section", make("div", "section-head", title, state, leave), lines);
  setAttribute(state, "role", "status");
  setAttribute(leave, "type", "button");
  for (const [name, value] of [["tabindex", 0], ["role", "log"], ["aria-label", "Output"], ["aria-live", "off"]]) setAttribute(lines, name, value);
  leave.addEventListener("click", () => setQuery({ task: null }));
  element.hidden = true;

  async function follow() {
    stop.abort();
    const mine = (stop = new AbortController());
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
    let cursor = null;
    let ended = false;
    lines.replaceChildren();
    setText(title.lastElementChild, task);
    setText(state, "waits for output");
    while (mine === stop && !ended) {
      try {
        const answer = await ask(`${pathOf("sessions", id, "tasks", task, "log")}?follow=1`, { signal: mine.signal, headers: cursor ? { "Last-Event-ID": cursor } : {} });
        if (answer.status >= 400) return setText(state, (await answer.json()).message);
        await readEvents(answer.body, (name, data, last) => {
          cursor = last ?? cursor;
          if (name === "end") ended = show(JSON.parse(data));
          else if (name === "note") append("note", `${data}\n`);
          else append(name, decoders[name].decode(bytesOf(data), { stream: true }));
        });
      } catch {
        if (mine === stop) setText(state, "the connection is lost; it is tried again");
      }
      if (!ended) await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  function show(body) {
    const words = body.state === "succeed" ? "ended well" : body.state;
    setText(state, `${words}${body.code === null ? "" : ` with code ${body.code}`}${lines.firstChild ? "" : "; it wrote nothing"}`);
    return true;
  }

  /** Adds text, and stays at the end if one is there. */
  function append(kind, text) {
    const atEnd = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 4;
    setText(state, "follows");
    if (lines.lastElementChild?.className !== kind) lines.append(make("span", kind));
    lines.lastElementChild.append(text);
    while (lines.textContent.length > MOST_CHARACTERS && lines.children.length > 1) lines.firstElementChild.remove();
    if (atEnd) lines.scrollTop = lines.scrollHeight;
  }

  return {
    element,
    turn(query) {
      const wanted = query.get("task");
      if (wanted === task) return;
      task = wanted;
      element.hidden = task === null;
      if (task === null) return stop.abort();
      follow();
      element.scrollIntoView({ block: "nearest" });
    },
    close: () => stop.abort(),
  };
}

const bytesOf = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
