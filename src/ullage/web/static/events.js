// Server-sent events of an answer that `fetch` gave: EventSource can send no key.

/** Calls `take` with the name, the data and the id of each event until the answer ends. */
export async function readEvents(body, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const messages = (rest + value).split(/\r?\n\r?\n/);
    rest = messages.pop();
    for (const message of messages) {
      const lines = message.split(/\r?\n/);
      const data = fieldOf(lines, "data").join("\n");
      if (data) take(fieldOf(lines, "event")[0] ?? "message", data, fieldOf(lines, "id")[0]);
    }
  }
}

function fieldOf(lines, name) {
  const begin = `${name}:`;
  return lines.filter((line) => line.startsWith(begin)).map((line) => line.slice(begin.length).replace(/^ /, ""));
}
