// The answer of the planner: where it would go, or what it lacks, what would help, and every step of the decision.

import { keep, make, setClass, setText } from "../dom.js";
import { REFUSALS, keyOfRefusal } from "../refusals.js";
import { drawRows, makeTable } from "../table.js";
import { counted, ofBytes } from "../words.js";

const STAGES = [
  { label: "step", kind: "id", text: (stage) => stage.name },
  { label: "kind", text: (stage) => stage.kind },
  { label: "cards before", kind: "number", text: (stage) => (stage.reached ? stage.before : "–") },
  { label: "after", kind: "number", text: (stage) => (stage.reached ? stage.after : "–") },
  { label: "removed because", kind: "reason", text: (stage) => [...new Set(stage.removed.map((each) => each.code))].join(", ") },
];

export function makeAnswer() {
  const verdict = make("p", "verdict");
  const lead = make("p", "lead");
  const helps = make("ul", "helps");
  const refusals = makeTable("What each node lacks", REFUSALS);
  const stages = makeTable("Steps of the decision", STAGES);
  const steps = make("details", "", make("summary", "", "Every step of the decision"), stages);
  const element = make("section", "", make("h2", "", "Answer"), verdict, lead, helps, refusals, steps);
  element.hidden = true;

  function say(kind, words, sentence, list = []) {
    element.hidden = false;
    setClass(verdict, `verdict is-${kind}`);
    setText(verdict, words);
    setText(lead, sentence);
    keep(helps, list, (text) => text, () => make("li"), setText);
    helps.hidden = list.length === 0;
  }

  function show(plan) {
    const { choice, refusal } = plan;
    if (choice) say("good", "It fits now", placeOf(choice), plan.warnings);
    else say(roomFor(plan) ? "warn" : "bad", "It does not fit now", refusal.message, [...helpOf(plan), ...plan.warnings]);
    drawRows(refusals, REFUSALS, refusal?.rejections ?? [], keyOfRefusal);
    drawRows(stages, STAGES, plan.stages, (stage) => stage.name);
    steps.hidden = plan.stages.length === 0;
  }

  function fail(error) {
    say("bad", "The request cannot be planned", error.message);
    drawRows(refusals, REFUSALS, [], () => "");
    steps.hidden = true;
  }

  return { element, show, fail, clear: () => (element.hidden = true) };
}

function placeOf({ node, gpus, placement }) {
  const amounts = (gpu) => (gpu.isolation === "shared" || gpu.vram_bytes === null ? "" : ` with ${ofBytes(gpu.vram_bytes)}`);
  const cards = gpus.length ? `${counted(gpus.length, "card")}: ${gpus.map((gpu) => gpu.uuid + amounts(gpu)).join(", ")}` : "no cards";
  const zones = placement?.zones.length ? `; zone ${placement.zones.join(", ")}` : "";
  return `on ${node}, ${cards}${zones}.`;
}

const roomFor = ({ preemption, room }) => Boolean(preemption?.node) || (room !== null && room !== undefined && room.refusal === null);

/** What would help, in the order of what it costs others. */
function helpOf({ refusal, preemption, room }) {
  const found = [...refusal.warnings];
  if (room?.moves) found.push(room.refusal === null ? `${counted(room.moves.length, "workload")} could move: ${room.moves.map((move) => move.uid).join(", ")}` : "no move of others would make room");
  if (preemption) found.push(preemption.node ? `${counted(preemption.victims.length, "request")} on ${preemption.node} would have to give way: ${preemption.victims.map((victim) => victim.uid).join(", ")}` : "nobody of lower priority could give way");
  if (!found.length) found.push(refusal.curable ? "It could start when others end." : "Freed cards would not help: ask for less, or for other cards.");
  return found;
}
