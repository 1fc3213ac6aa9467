// The axis of time: round steps, and labels as short as the step allows.

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000];
const DAY_S = 86400;
const MINUTE_S = 60;

/** Marks between two times, at most `most`: each with its time and its label. */
export function marksOf(from, to, most) {
  const step = STEPS_S.find((each) => (to - from) / each <= most) ?? STEPS_S.at(-1);
  const shift = step >= 3600 ? new Date(from * 1000).getTimezoneOffset() * 60 : 0;
  const first = Math.ceil((from - shift) / step) * step + shift;
  const found = [];
  for (let at = first; at <= to; at += step) found.push({ at, text: labelOf(at, step) });
  return found;
}

function labelOf(at, step) {
  const moment = new Date(at * 1000);
  if (step >= DAY_S) return moment.toLocaleDateString(undefined, { month: "short", day: "numeric" });
  const seconds = step < MINUTE_S ? { second: "2-digit" } : {};
  return moment.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", ...seconds });
}

/** A linear scale from times to places. */
export const scaleOf = (from, to, left, right) => (at) => left + ((at - from) / Math.max(1e-9, to - from)) * (right - left);
