// A strip over time: what is held as an area, and what is measured as lines. Values are fractions of one; gaps stay gaps.

import { make } from "../dom.js";
import { percent } from "../words.js";
import { describe, draw, makePicture, set } from "./svg.js";
import { scaleOf } from "./time.js";

const HEIGHT = 44;
const PAD = 3;

/** `show` gets the times, series of (`name`, `kind`, `values`), and what the strip is about. */
export function makeStrip() {
  const ground = draw("path", { class: "ground" });
  const paths = draw("g");
  let shown = null;
  const picture = makePicture("strip", paint);
  picture.element.append(ground, paths);

  function paint(width) {
    if (shown === null || shown.at.length === 0) return;
    const { at, series, about } = shown;
    const x = scaleOf(at[0], Math.max(at[0] + 60, at.at(-1)), 0, width);
    const y = (value) => HEIGHT - PAD - value * (HEIGHT - 2 * PAD);
    describe(picture.element, HEIGHT, `${about}: ${series.map(wordsOf).join("; ")}`);
    set(ground, { d: `M0 ${HEIGHT - PAD}H${width}M0 ${PAD}H${width}` });
    while (paths.children.length < series.length) paths.append(draw("path"));
    series.forEach(({ kind, values }, place) => {
      const d = kind === "held" ? areaOf(at, values, x, y) : lineOf(at, values, x, y);
      set(paths.children[place], { class: kind, d });
    });
  }

  return {
    element: make("div", "strip-place", picture.element),
    show(found) {
      shown = found;
      picture.again();
    },
    close: picture.close,
  };
}

/** Stretches of known values: a gap in the samples is not drawn over. */
function stretches(values) {
  const found = [];
  values.forEach((value, place) => {
    if (value === null) return;
    if (place === 0 || values[place - 1] === null) found.push([]);
    found.at(-1).push(place);
  });
  return found;
}

/** Steps: what is held holds until the next sample. */
function areaOf(at, values, x, y) {
  return stretches(values).map((places) => {
    const steps = places.map((place) => `V${y(values[place]).toFixed(1)}H${x(at[place + 1] ?? at[place]).toFixed(1)}`);
    return `M${x(at[places[0]]).toFixed(1)} ${y(0)}${steps.join("")}V${y(0)}Z`;
  }).join("");
}

function lineOf(at, values, x, y) {
  return stretches(values).map((places) => places.map((place, order) => `${order ? "L" : "M"}${x(at[place]).toFixed(1)} ${y(values[place]).toFixed(1)}`).join("")).join("");
}

function wordsOf({ name, values }) {
  const known = values.filter((value) => value !== null);
  if (!known.length) return `${name} not known`;
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  return `${name} ${percent(known.at(-1))} now, ${percent(mean)} on average`;
}
