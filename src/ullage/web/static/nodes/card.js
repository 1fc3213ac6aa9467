// One card of a node: what it is, who holds it, its last hour, and how busy it is now.

import { makeStrip } from "../charts/strip.js";
import { keep, make, setClass, setText } from "../dom.js";
import { linkTo } from "../links.js";
import { hrefOf } from "../router.js";
import { tintOf } from "../tints.js";
import { fraction, ofBytes, partOfBytes, percent } from "../words.js";

export function makeCard() {
  const strip = makeStrip();
  const name = make("div", "card-name", make("b"), " ", make("span"), make("span", "small"));
  const holders = make("ul", "holders");
  const now = make("p", "small now");
  const element = make("li", "card-row", name, holders, strip.element, now);

  function show(card, use) {
    const [index, model, facts] = name.children;
    setText(index, `GPU ${card.index}`);
    setText(model, card.model ?? "model not known");
    setText(facts, [card.vram_bytes ? ofBytes(card.vram_bytes) : "", card.pool ? `pool ${card.pool}` : "", card.healthy ? "" : "unhealthy: it receives no new work"].filter(Boolean).join(" · "));
    setClass(element, card.healthy ? "card-row" : "card-row is-bad");
    keep(holders, card.holders.length ? card.holders : [null], (part) => part?.executor ?? "", newHolder, drawHolder);
    setText(now, wordsOf(card, use));
    if (use) strip.show({ at: use.at, series: seriesOf(card, use), about: `GPU ${card.index}` });
  }

  return { element, show, close: strip.close };
}

const newHolder = () => make("li", "", make("span"), make("span"), make("span", "small"));

function drawHolder(item, part) {
  const [swatch, who, amount] = item.children;
  setClass(swatch, part === null ? "swatch free-swatch" : `swatch ${tintOf(part.session)}`);
  if (part === null) linkTo(who, "free", null);
  else linkTo(who, part.session ?? "idle executor", part.session ? hrefOf("sessions", part.session) : null);
  setText(amount, part === null ? "" : [part.isolation === "shared" ? "all of it" : fraction(part.fraction), part.owner].filter(Boolean).join(" · "));
}

/** Memory in use is a fraction of the memory of the card, if that is known. */
function seriesOf(card, use) {
  const found = [{ name: "held", kind: "held", values: use.held }];
  if (!use.measured) return found;
  if (card.vram_bytes) found.push({ name: "memory in use", kind: "memory", values: use.memory_bytes.map((bytes) => (bytes === null ? null : bytes / card.vram_bytes)) });
  return [...found, { name: "busy", kind: "compute", values: use.compute }];
}

function wordsOf(card, use) {
  if (!use?.measured) return "its load is not measured: no driver reports it";
  const busy = use.compute.at(-1);
  const bytes = use.memory_bytes.at(-1);
  const memory = bytes === null || bytes === undefined ? "memory in use not known" : `memory in use ${card.vram_bytes ? partOfBytes(bytes, card.vram_bytes) : ofBytes(bytes)}`;
  return `${busy === null || busy === undefined ? "busy: not known" : `busy ${percent(busy)}`} · ${memory}`;
}
